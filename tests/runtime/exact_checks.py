"""A rule decides every scenario as enumerated, in all its forms.

How a rule judges stands in the file of its name in `tests/runtime/ways`, found by its place:
`WAYS`, all ways of it, in fractions, written from the paper; of a lossy rule also `PARAMETERS`, at
which those ways are and something is lost, and `DEFAULT`, the ways by its default parameters.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from random import Random
from types import ModuleType
from typing import Any

from specplan.ir.tables.acceptance import LOSSLESS
from specplan.runtime.acceptance import RULES
from tests.runtime.exact import (
    Case,
    NextProbabilities,
    Probabilities,
    Scenario,
    Ways,
    emitted_probabilities,
    normalise,
    run,
    scenarios,
    target_probabilities,
)

CHAIN = (-1, 0, 1)
TREE = (-1, -1, 0, 0, 1)
P = tuple(Fraction(n, 100) for n in (50, 30, 15, 5))
Q = tuple(Fraction(n, 100) for n in (25, 25, 40, 10))
"""The pair of distributions of docs/rules.md."""

JUDGING: dict[str, ModuleType] = {
    module.name: import_module(f"tests.runtime.ways.{module.name}")
    for module in iter_modules([str(Path(__file__).parent / "ways")])
}
"""Rules whose draft is enumerated on its own."""
WAYS: dict[str, Ways] = {
    rule.name: JUDGING[rule.name].WAYS for rule in LOSSLESS if rule.name in JUDGING
}
"""The lossless ones of them."""


def constant(probs: Probabilities) -> NextProbabilities:
    """The same distribution in every context."""
    return lambda context: probs


def random_probabilities(seed: int, vocabulary: int = 3, zeros: bool = False) -> NextProbabilities:
    """A distribution per context, with some zero entries on request."""
    known: dict[tuple[int, ...], Probabilities] = {}

    def probs(context: tuple[int, ...]) -> Probabilities:
        if context not in known:
            random = Random(f"{seed}{context}")
            masses = [Fraction(random.randint(0 if zeros else 1, 6)) for _ in range(vocabulary)]
            masses[random.randrange(vocabulary)] += 1
            known[context] = normalise(masses)
        return known[context]

    return probs


def one_hot(given: NextProbabilities) -> NextProbabilities:
    """The same at temperature 0."""

    def probs(context: tuple[int, ...]) -> Probabilities:
        probabilities = given(context)
        return tuple(
            Fraction(x == probabilities.index(max(probabilities)))
            for x in range(len(probabilities))
        )

    return probs


def decided(rule: str, case: Case, ways: Ways, **parameters: Any) -> list[Scenario]:
    """All scenarios, of which the rule decides each as enumerated."""
    outcomes = scenarios(case, ways)
    assert sum(item.weight for item in outcomes) == 1
    agrees(rule, case, outcomes, **parameters)
    return outcomes


def agrees(rule: str, case: Case, outcomes: list[Scenario], **parameters: Any) -> None:
    """Hold all forms of a rule to the paths and bonuses of scenarios."""
    module = RULES[rule]
    for form in ("accept_reference", "accept", "accept_vectorised"):
        judged = run(partial(getattr(module, form), **parameters), case, outcomes, module.TARGET)
        for row, item in enumerate(outcomes):
            path = [node for node in judged.path[row].tolist() if node >= 0]
            assert (tuple(path), int(judged.bonus[row])) == (item.path, item.bonus), (form, item)
            assert int(judged.accepted[row]) == len(path)


def lossless(rule: str, case: Case, length: int) -> list[Scenario]:
    """`decided`, and the distribution of the first `length` tokens is exactly the target's."""
    outcomes = decided(rule, case, WAYS[rule])
    assert emitted_probabilities(case, outcomes, length) == target_probabilities(
        case.target, length
    )
    return outcomes
