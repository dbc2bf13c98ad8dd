"""Exact laws of a round by enumeration, in fractions.

Every draft and every way to judge it is a scenario with an exact weight and with uniforms from just
inside the region that leads to it. The real rule is run on all scenarios as one batch and must
decide as enumerated; the weights then say what law it emits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from math import prod
from typing import Any

import torch

from specplan.runtime.acceptance import DraftedTree

Law = tuple[Fraction, ...]
Laws = Callable[[tuple[int, ...]], Law]
"""From the tokens since the root to the law of the next token."""

EDGE = Fraction(1, 10**9)
"""How far inside its region a uniform lies."""


@dataclass(frozen=True)
class Case:
    """A static tree, and how its children come about.

    `points` maps nodes that are not drawn to their tokens; the others are drawn from the draft.
    `dead` nodes are drafted but not live.
    """

    parents: tuple[int, ...]
    target: Laws
    draft: Laws
    distinct: bool = True
    points: dict[int, int] = field(default_factory=dict)
    dead: tuple[int, ...] = ()


@dataclass(frozen=True)
class Scenario:
    """One outcome: weight, drafted tokens, uniforms, accepted nodes, bonus."""

    weight: Fraction
    tokens: tuple[int, ...]
    uniforms: tuple[Fraction, ...]
    path: tuple[int, ...]
    bonus: int


def scenarios(case: Case, *, as_a_block: bool = False) -> list[Scenario]:
    """All outcomes of one round; judged node by node, or a chain as a whole."""
    found = []
    for weight, tokens in _drafts(case, ()):
        ways = _judge_block(case, tokens) if as_a_block else _judge(case, tokens, -1, (), {})
        for judged in ways:
            found.append(_scenario(case, weight, tokens, *judged))
    return found


def _scenario(
    case: Case, weight: Fraction, tokens: Any, more: Any, path: Any, law: Any, used: Any, bonus: int
) -> Scenario:
    count = len(case.parents)
    below = sum(law[:bonus], Fraction(0))
    uniforms = [used.get(node, Fraction(1, 3)) for node in range(count)]
    last = below + law[bonus] / 2
    return Scenario(weight * more * law[bonus], tokens, (*uniforms, last), path, bonus)


def path_tokens(case: Case, tokens: tuple[int, ...], node: int) -> tuple[int, ...]:
    """Tokens from the first below the root down to `node`; empty for the root."""
    if node < 0:
        return ()
    return (*path_tokens(case, tokens, case.parents[node]), tokens[node])


def _proposal(case: Case, tokens: tuple[int, ...], node: int) -> Law:
    """The law of `node`'s token given the nodes before it."""
    law = list(case.draft(path_tokens(case, tokens, case.parents[node])))
    if node in case.points:
        return tuple(Fraction(x == case.points[node]) for x in range(len(law)))
    if not case.distinct:
        return tuple(law)
    gone = {
        tokens[other]
        for other in range(node)
        if case.parents[other] == case.parents[node] and other not in case.points
    }
    left = [Fraction(0) if x in gone else mass for x, mass in enumerate(law)]
    if sum(left) == 0:
        left = [Fraction(x not in gone) for x in range(len(law))]
    return normalise(left)


def normalise(law: Any) -> Law:
    """The law with sum 1."""
    return tuple(mass / sum(law) for mass in law)


def _drafts(case: Case, tokens: tuple[int, ...]) -> Iterator[tuple[Fraction, tuple[int, ...]]]:
    if len(tokens) == len(case.parents):
        yield Fraction(1), tokens
        return
    for token, mass in enumerate(_proposal(case, tokens, len(tokens))):
        if mass:
            for weight, whole in _drafts(case, (*tokens, token)):
                yield mass * weight, whole


def _judge(case: Case, tokens: Any, here: int, path: Any, used: Any) -> Iterator[Any]:
    """Ways to judge: (weight, path, law of the bonus, uniforms used, bonus)."""
    residual = case.target(path_tokens(case, tokens, here))
    weight = Fraction(1)
    for node, parent in enumerate(case.parents):
        if parent != here or node in case.dead:
            continue
        proposal = _proposal(case, tokens, node)
        chance = min(Fraction(1), residual[tokens[node]] / proposal[tokens[node]])
        if chance > 0:
            inside = {**used, node: chance * (1 - EDGE)}
            for more, *rest in _judge(case, tokens, node, (*path, node), inside):
                yield weight * chance * more, *rest
        if chance == 1:
            return
        used = {**used, node: chance + (1 - chance) * EDGE}
        weight *= 1 - chance
        residual = normalise(
            [max(Fraction(0), r - d) for r, d in zip(residual, proposal, strict=True)]
        )
    for bonus, mass in enumerate(residual):
        if mass:
            yield weight, path, residual, used, bonus


def _judge_block(case: Case, tokens: Any) -> Iterator[Any]:
    """Ways to judge a chain by arXiv 2403.10444: all nodes throw coins, the last success counts."""
    size = next((node for node in range(len(tokens)) if node in case.dead), len(tokens))
    target = [case.target(tokens[:place]) for place in range(size + 1)]
    draft = [_proposal(case, tokens, node) for node in range(size)]
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
        kept = max((node + 1 for node, won in enumerate(thrown) if won), default=0)
        residual = target[kept] if kept == size else surplus[kept]
        if not weight:
            continue
        law = normalise(residual)
        used = {
            node: coin * (1 - EDGE) if won else coin + (1 - coin) * EDGE
            for node, (coin, won) in enumerate(zip(coins, thrown, strict=True))
        }
        for bonus, mass in enumerate(law):
            if mass:
                yield weight, tuple(range(kept)), law, used, bonus


def run(rule: Any, case: Case, found: list[Scenario], dtype: torch.dtype = torch.float64) -> Any:
    """Run a rule's `accept` on all scenarios as one batch."""
    tokens = torch.tensor([item.tokens for item in found])
    nodes = range(-1, len(case.parents))

    def rows(laws: Laws) -> torch.Tensor:
        return torch.tensor(
            [
                [
                    [float(mass) for mass in laws(path_tokens(case, item.tokens, node))]
                    for node in nodes
                ]
                for item in found
            ],
            dtype=dtype,
        )

    drawn = len(case.points) < len(case.parents)
    tree = DraftedTree(
        tokens,
        case.parents,
        live=torch.tensor([[node not in case.dead for node in nodes if node >= 0]] * len(found)),
        laws=rows(case.draft) if drawn else None,
        law_index=tuple(
            -1 if node in case.points else parent + 1 for node, parent in enumerate(case.parents)
        )
        if drawn
        else None,
        distinct=case.distinct,
    )
    uniforms = torch.tensor(
        [[float(number) for number in item.uniforms] for item in found], dtype=torch.float64
    )
    return rule(tree, rows(case.target), uniforms)


def emitted_law(case: Case, found: list[Scenario], length: int) -> dict[tuple[int, ...], Fraction]:
    """Law of the first `length` tokens: what a round emits, continued by the target itself."""
    total: dict[tuple[int, ...], Fraction] = {}
    for item in found:
        text = (*(item.tokens[node] for node in item.path), item.bonus)
        for weight, whole in _continue(case.target, text, length):
            total[whole] = total.get(whole, Fraction(0)) + item.weight * weight
    return total


def _continue(target: Laws, text: tuple[int, ...], length: int) -> Iterator[Any]:
    if len(text) >= length:
        yield Fraction(1), text[:length]
        return
    for token, mass in enumerate(target(text)):
        if mass:
            for weight, whole in _continue(target, (*text, token), length):
                yield mass * weight, whole


def target_law(target: Laws, length: int) -> dict[tuple[int, ...], Fraction]:
    """The target's own law of `length` tokens."""
    return {whole: weight for weight, whole in _continue(target, (), length)}


def accepted_chance(found: list[Scenario], depth: int = 1) -> Fraction:
    """Probability that at least `depth` nodes are accepted."""
    return sum((item.weight for item in found if len(item.path) >= depth), Fraction(0))
