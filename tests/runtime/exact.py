"""Exact distributions of a round by enumeration, in fractions.

Every draft and every way to judge it is a scenario with an exact weight and with uniforms from just
inside the region that leads to it. The real rule is run on all scenarios as one batch and must
decide as enumerated; the weights then say what distribution it emits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import torch

from specplan.runtime.acceptance import DraftedTree

Probabilities = tuple[Fraction, ...]
NextProbabilities = Callable[[tuple[int, ...]], Probabilities]
"""From the tokens since the root to the distribution of the next token."""

EDGE = Fraction(1, 10**9)
"""How far inside its region a uniform lies."""


@dataclass(frozen=True)
class Case:
    """A static tree, and how its children come about.

    `points` maps nodes that are not drawn to their tokens; the others are drawn from the draft.
    `dead` nodes are drafted but not live.
    """

    parents: tuple[int, ...]
    target: NextProbabilities
    draft: NextProbabilities
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


Way = tuple[Fraction, tuple[int, ...], int, dict[int, Fraction]]
"""One way to judge a draft: its weight, the accepted nodes, the bonus, and the uniforms that lead
there by number."""
Ways = Callable[[Case, tuple[int, ...]], Iterator[Way]]
"""From a case and its drafted tokens to all ways in which a rule judges them."""


def scenarios(case: Case, ways: Ways) -> list[Scenario]:
    """All outcomes of one round, judged by a rule."""
    outcomes = []
    for weight, tokens in _drafts(case, ()):
        for more, path, bonus, used in ways(case, tokens):
            uniforms = [used.get(node, Fraction(1, 3)) for node in range(len(case.parents) + 1)]
            outcomes.append(Scenario(weight * more, tokens, tuple(uniforms), path, bonus))
    return outcomes


def path_tokens(case: Case, tokens: tuple[int, ...], node: int) -> tuple[int, ...]:
    """Tokens from the first below the root down to `node`; empty for the root."""
    if node < 0:
        return ()
    return (*path_tokens(case, tokens, case.parents[node]), tokens[node])


def proposal(case: Case, tokens: tuple[int, ...], node: int) -> Probabilities:
    """The distribution of `node`'s token given the nodes before it."""
    probs = list(case.draft(path_tokens(case, tokens, case.parents[node])))
    if node in case.points:
        return tuple(Fraction(x == case.points[node]) for x in range(len(probs)))
    if not case.distinct:
        return tuple(probs)
    gone = {
        tokens[other]
        for other in range(node)
        if case.parents[other] == case.parents[node] and other not in case.points
    }
    left = [Fraction(0) if x in gone else mass for x, mass in enumerate(probs)]
    if sum(left) == 0:
        left = [Fraction(x not in gone) for x in range(len(probs))]
    return normalise(left)


def normalise(probs: Any) -> Probabilities:
    """The distribution with sum 1."""
    return tuple(mass / sum(probs) for mass in probs)


def _drafts(case: Case, tokens: tuple[int, ...]) -> Iterator[tuple[Fraction, tuple[int, ...]]]:
    if len(tokens) == len(case.parents):
        yield Fraction(1), tokens
        return
    for token, mass in enumerate(proposal(case, tokens, len(tokens))):
        if mass:
            for weight, whole in _drafts(case, (*tokens, token)):
                yield mass * weight, whole


def run(rule: Any, case: Case, outcomes: list[Scenario], target: str = "probabilities") -> Any:
    """Run a rule's `accept` on all scenarios as one batch; it takes distributions, or "logits"."""
    tokens = torch.tensor([item.tokens for item in outcomes])
    nodes = range(-1, len(case.parents))

    def rows(probs: NextProbabilities) -> torch.Tensor:
        return torch.tensor(
            [
                [
                    [float(mass) for mass in probs(path_tokens(case, item.tokens, node))]
                    for node in nodes
                ]
                for item in outcomes
            ],
            dtype=torch.float64,
        )

    drawn = len(case.points) < len(case.parents)
    tree = DraftedTree(
        tokens,
        case.parents,
        live=torch.tensor([[node not in case.dead for node in nodes if node >= 0]] * len(outcomes)),
        probs=rows(case.draft) if drawn else None,
        probs_index=tuple(
            -1 if node in case.points else parent + 1 for node, parent in enumerate(case.parents)
        )
        if drawn
        else None,
        distinct=case.distinct,
    )
    uniforms = torch.tensor(
        [[float(number) for number in item.uniforms] for item in outcomes], dtype=torch.float64
    )
    judged = rows(case.target)
    return rule(tree, judged.log() if target == "logits" else judged, uniforms)


def emitted_probabilities(
    case: Case, outcomes: list[Scenario], length: int
) -> dict[tuple[int, ...], Fraction]:
    """Law of the first `length` tokens: what a round emits, continued by the target itself."""
    total: dict[tuple[int, ...], Fraction] = {}
    for item in outcomes:
        text = (*(item.tokens[node] for node in item.path), item.bonus)
        for weight, whole in _continue(case.target, text, length):
            total[whole] = total.get(whole, Fraction(0)) + item.weight * weight
    return total


def _continue(target: NextProbabilities, text: tuple[int, ...], length: int) -> Iterator[Any]:
    if len(text) >= length:
        yield Fraction(1), text[:length]
        return
    for token, mass in enumerate(target(text)):
        if mass:
            for weight, whole in _continue(target, (*text, token), length):
                yield mass * weight, whole


def target_probabilities(target: NextProbabilities, length: int) -> dict[tuple[int, ...], Fraction]:
    """The target's own distribution of `length` tokens."""
    return {whole: weight for weight, whole in _continue(target, (), length)}


def accepted_chance(outcomes: list[Scenario], depth: int = 1) -> Fraction:
    """Probability that at least `depth` nodes are accepted."""
    return sum((item.weight for item in outcomes if len(item.path) >= depth), Fraction(0))


def mean_accepted(outcomes: list[Scenario]) -> Fraction:
    """Accepted nodes per round."""
    return sum((item.weight * len(item.path) for item in outcomes), Fraction(0))


def total_variation(
    one: dict[tuple[int, ...], Fraction], other: dict[tuple[int, ...], Fraction]
) -> Fraction:
    """Half the sum of what two distributions of texts differ by."""
    texts = one.keys() | other.keys()
    differences = (abs(one.get(x, Fraction(0)) - other.get(x, Fraction(0))) for x in texts)
    return sum(differences, Fraction(0)) / 2
