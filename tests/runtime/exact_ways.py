"""All ways in which each rule judges a draft, in fractions, written from the papers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product
from math import exp, log, prod
from typing import Any

from tests.runtime.exact import (
    EDGE,
    Case,
    Probabilities,
    Way,
    Ways,
    normalise,
    path_tokens,
    proposal,
)

Tokens = tuple[int, ...]
Used = dict[int, Fraction]


def recursive_ways(case: Case, tokens: Tokens) -> Iterator[Way]:
    """Sibling by sibling, the residual without what was rejected."""
    return _below(case, tokens, -1, (), {}, _judge_recursively)


def deterministic_ways(case: Case, tokens: Tokens) -> Iterator[Way]:
    """The same, with every child a point."""
    return recursive_ways(replace(case, points=dict(enumerate(tokens))), tokens)


def k_seq_ways(case: Case, tokens: Tokens) -> Iterator[Way]:
    """Scanned in order under one level."""
    return _below(case, tokens, -1, (), {}, _judge_by_level)


Child = tuple[Fraction, int | None, Probabilities, Used]
"""One way to judge siblings: weight, the accepted one, the residual, uniforms."""


def _below(
    case: Case, tokens: Tokens, here: int, path: Tokens, used: Used, judge: Any
) -> Iterator[Way]:
    probs = case.target(path_tokens(case, tokens, here))
    for weight, chosen, left, more in judge(case, tokens, here, probs):
        if chosen is None:
            for way in _bonus(case, left, path, used | more):
                yield weight * way[0], *way[1:]
        else:
            for way in _below(case, tokens, chosen, (*path, chosen), used | more, judge):
                yield weight * way[0], *way[1:]


def _bonus(case: Case, probs: Probabilities, path: Tokens, used: Used) -> Iterator[Way]:
    """The bonus drawn from a distribution by the last number."""
    for token, inside in _drawn(probs):
        yield probs[token], path, token, {**used, len(case.parents): inside}


def _drawn(probs: Probabilities) -> Iterator[tuple[int, Fraction]]:
    """Every token of a distribution with a number that draws it."""
    for token, mass in enumerate(probs):
        if mass:
            yield token, sum(probs[:token], Fraction(0)) + mass / 2


def _children(case: Case, here: int) -> list[int]:
    return [n for n, parent in enumerate(case.parents) if parent == here and n not in case.dead]


def _judge_recursively(
    case: Case, tokens: Tokens, here: int, probs: Probabilities
) -> Iterator[Child]:
    weight, used = Fraction(1), {}
    for node in _children(case, here):
        drawn = proposal(case, tokens, node)
        chance = min(Fraction(1), probs[tokens[node]] / drawn[tokens[node]])
        if chance > 0:
            yield weight * chance, node, probs, {**used, node: chance * (1 - EDGE)}
        if chance == 1:
            return
        used[node] = chance + (1 - chance) * EDGE
        weight *= 1 - chance
        probs = normalise([max(Fraction(0), r - d) for r, d in zip(probs, drawn, strict=True)])
    yield weight, None, probs, used


def _judge_by_level(case: Case, tokens: Tokens, here: int, probs: Probabilities) -> Iterator[Child]:
    children = _children(case, here)
    if not children:
        yield Fraction(1), None, probs, {}
        return
    drawn = proposal(case, tokens, children[0])
    level = acceptance_level(probs, drawn, len(children))
    overlap = [min(q, p / level) for p, q in zip(probs, drawn, strict=True)]
    beta = sum(overlap, Fraction(0))
    taken = 1 - (1 - beta) ** len(children)
    weight, used = Fraction(1), {}
    for node in children:
        chance = min(Fraction(1), probs[tokens[node]] / (level * drawn[tokens[node]]))
        if chance > 0:
            yield weight * chance, node, probs, {**used, node: chance * (1 - EDGE)}
        if chance == 1:
            return
        used[node] = chance + (1 - chance) * EDGE
        weight *= 1 - chance
    left = [p - k * taken / beta if beta else p for p, k in zip(probs, overlap, strict=True)]
    yield weight, None, normalise(left), used


@cache
def acceptance_level(probs: Probabilities, drawn: Probabilities, count: int) -> Fraction:
    """The level of K-SEQ to 2^-40 of its interval, from above."""
    low, high = Fraction(1), Fraction(count)
    for _ in range(40):
        middle = (low + high) / 2
        beta = sum((min(q, p / middle) for p, q in zip(probs, drawn, strict=True)), Fraction(0))
        if 1 - (1 - beta) ** count > middle * beta:
            low = middle
        else:
            high = middle
    return high


def naive_ways(case: Case, tokens: Tokens) -> Iterator[Way]:
    """The target draws; where a child holds its draw, the walk goes on there."""

    def walk(here: int, path: Tokens, used: Used) -> Iterator[Way]:
        probs = case.target(path_tokens(case, tokens, here))
        for token, inside in _drawn(probs):
            now = {**used, here + 1: inside}
            hit = next((n for n in _children(case, here) if tokens[n] == token), None)
            if hit is None:
                yield probs[token], path, token, now
            else:
                for weight, *rest in walk(hit, (*path, hit), now):
                    yield probs[token] * weight, *rest  # type: ignore[misc]

    return walk(-1, (), {})


def lenient_ways(lenience: Fraction) -> Ways:
    """Token by token, q times the lenience in the comparison."""

    def judge(case: Case, tokens: Tokens, here: int, probs: Probabilities) -> Iterator[Child]:
        children = _children(case, here)
        if not children:
            yield Fraction(1), None, probs, {}
            return
        (node,) = children
        drawn = proposal(case, tokens, node)
        chance = min(Fraction(1), probs[tokens[node]] / (lenience * drawn[tokens[node]]))
        if chance > 0:
            yield chance, node, probs, {node: chance * (1 - EDGE)}
        if chance < 1:
            left = [max(Fraction(0), p - q) for p, q in zip(probs, drawn, strict=True)]
            yield 1 - chance, None, normalise(left), {node: chance + (1 - chance) * EDGE}

    return lambda case, tokens: _below(case, tokens, -1, (), {}, judge)


def span_ways(strictness: Fraction) -> Ways:
    """Token by token, beside the likeliest one; where one is rejected the target draws."""

    def judge(case: Case, tokens: Tokens, here: int, probs: Probabilities) -> Iterator[Child]:
        children = _children(case, here)
        if not children:
            yield Fraction(1), None, probs, {}
            return
        (node,) = children
        chance = min(Fraction(1), probs[tokens[node]] / (strictness * max(probs)))
        if chance > 0:
            yield chance, node, probs, {node: chance * (1 - EDGE)}
        if chance < 1:
            yield 1 - chance, None, probs, {node: chance + (1 - chance) * EDGE}

    return lambda case, tokens: _below(case, tokens, -1, (), {}, judge)


def passing_ways(passes: Callable[[Probabilities, int], bool]) -> Ways:
    """The longest path of nodes that pass, the likeliest among equals; then the first choice."""

    def ways(case: Case, tokens: Tokens) -> Iterator[Way]:
        best, most = (0, Fraction(0), 0), ()
        standing: dict[int, tuple[Tokens, Fraction]] = {-1: ((), Fraction(1))}
        for node, parent in enumerate(case.parents):
            probs = case.target(path_tokens(case, tokens, parent))
            if parent in standing and node not in case.dead and passes(probs, tokens[node]):
                path, mass = standing[parent]
                standing[node] = (*path, node), mass * probs[tokens[node]]
                if (rank := (len(path) + 1, standing[node][1], -node)) > best:
                    best, most = rank, standing[node][0]
        probs = case.target(path_tokens(case, tokens, most[-1] if most else -1))
        yield Fraction(1), most, probs.index(max(probs)), {}

    return ways


def joint_ways(threshold: Fraction) -> Ways:
    """The longest path with a large enough share of the draft's joint probability."""

    def ways(case: Case, tokens: Tokens) -> Iterator[Way]:
        best, most = (0, Fraction(0), 0), ()
        known: dict[int, tuple[Tokens, Fraction, Fraction]] = {-1: ((), Fraction(1), Fraction(1))}
        for node, parent in enumerate(case.parents):
            if parent not in known or node in case.dead:
                continue
            (path, mass, drafted), above = known[parent], path_tokens(case, tokens, parent)
            mass *= case.target(above)[tokens[node]]
            drafted *= 1 if node in case.points else case.draft(above)[tokens[node]]
            known[node] = (*path, node), mass, drafted
            rank = (len(path) + 1, mass, -node)
            if mass >= threshold * drafted and rank > best:
                best, most = rank, known[node][0]
        probs = case.target(path_tokens(case, tokens, most[-1] if most else -1))
        yield Fraction(1), most, probs.index(max(probs)), {}

    return ways


def typical(probs: Probabilities, token: int) -> bool:
    """Medusa's criterion at its defaults."""
    entropy = -sum(float(p) * log(float(p) + 1e-5) for p in probs)
    return probs[token] > min(0.09, 0.3 * exp(-entropy))


def among_the_first(beta: int, tolerance: float) -> Callable[[Probabilities, int], bool]:
    """SpecDec's criterion."""

    def passes(probs: Probabilities, token: int) -> bool:
        ranked = sorted(range(len(probs)), key=lambda x: (-probs[x], x))[:beta]
        return token in ranked and float(probs[token]) >= exp(-tolerance) * float(max(probs))

    return passes


def not_too_unlikely(threshold: float) -> Callable[[Probabilities, int], bool]:
    """BiLD's criterion."""
    return lambda probs, token: (
        float(probs[token]) >= exp(-threshold) or token == probs.index(max(probs))
    )


def block_ways(case: Case, tokens: Tokens) -> Iterator[Way]:
    """Ways to judge a chain by arXiv 2403.10444: all nodes throw coins, the last success counts."""
    size = next((node for node in range(len(tokens)) if node in case.dead), len(tokens))
    target = [case.target(tokens[:place]) for place in range(size + 1)]
    draft = [proposal(case, tokens, node) for node in range(size)]
    reached, coins = [Fraction(1)], []
    for node in range(size):
        ratio = target[node][tokens[node]] / draft[node][tokens[node]]
        reached.append(min(reached[-1] * ratio, Fraction(1)))
    surplus = [
        [max(Fraction(0), at * p - q) for p, q in zip(target[place], draft[place], strict=True)]
        for place, at in enumerate(reached[:-1])
    ]
    for place in range(1, size + 1):
        left = sum(surplus[place]) if place < size else Fraction(0)
        whole = left + 1 - reached[place]
        coins.append(reached[place] if place == size else left / whole if whole else Fraction(1))
    for thrown in product((False, True), repeat=size):
        weight = prod((c if won else 1 - c for c, won in zip(coins, thrown, strict=True)), start=1)
        accepted = max((node + 1 for node, won in enumerate(thrown) if won), default=0)
        residual = target[accepted] if accepted == size else surplus[accepted]
        if not weight:
            continue
        probs = normalise(residual)
        used = {
            node: coin * (1 - EDGE) if won else coin + (1 - coin) * EDGE
            for node, (coin, won) in enumerate(zip(coins, thrown, strict=True))
        }
        for way in _bonus(case, probs, tuple(range(accepted)), used):
            yield weight * way[0], *way[1:]
