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
    Law,
    Laws,
    Scenario,
    Ways,
    emitted_law,
    normalise,
    run,
    scenarios,
    target_law,
)

CHAIN = (-1, 0, 1)
TREE = (-1, -1, 0, 0, 1)
P = tuple(Fraction(n, 100) for n in (50, 30, 15, 5))
Q = tuple(Fraction(n, 100) for n in (25, 25, 40, 10))
"""The pair of laws of docs/rules.md."""

JUDGING: dict[str, ModuleType] = {
    module.name: import_module(f"tests.runtime.ways.{module.name}")
    for module in iter_modules([str(Path(__file__).parent / "ways")])
}
"""Rules whose draft is enumerated on its own."""
WAYS: dict[str, Ways] = {
    rule.name: JUDGING[rule.name].WAYS for rule in LOSSLESS if rule.name in JUDGING
}
"""The lossless ones of them."""


def constant(law: Law) -> Laws:
    """The same law in every context."""
    return lambda context: law


def random_laws(seed: int, vocabulary: int = 3, zeros: bool = False) -> Laws:
    """A law per context, with some zero entries on request."""
    known: dict[tuple[int, ...], Law] = {}

    def law(context: tuple[int, ...]) -> Law:
        if context not in known:
            random = Random(f"{seed}{context}")
            masses = [Fraction(random.randint(0 if zeros else 1, 6)) for _ in range(vocabulary)]
            masses[random.randrange(vocabulary)] += 1
            known[context] = normalise(masses)
        return known[context]

    return law


def one_hot(laws: Laws) -> Laws:
    """The laws at temperature 0."""

    def law(context: tuple[int, ...]) -> Law:
        found = laws(context)
        return tuple(Fraction(x == found.index(max(found))) for x in range(len(found)))

    return law


def decided(rule: str, case: Case, ways: Ways, **parameters: Any) -> list[Scenario]:
    """All scenarios, of which the rule decides each as enumerated."""
    found = scenarios(case, ways)
    assert sum(item.weight for item in found) == 1
    agrees(rule, case, found, **parameters)
    return found


def agrees(rule: str, case: Case, found: list[Scenario], **parameters: Any) -> None:
    """Hold all forms of a rule to the paths and bonuses of scenarios."""
    module = RULES[rule]
    for form in ("accept_reference", "accept", "accept_vectorised"):
        judged = run(partial(getattr(module, form), **parameters), case, found, module.TARGET)
        for row, item in enumerate(found):
            path = [node for node in judged.path[row].tolist() if node >= 0]
            assert (tuple(path), int(judged.bonus[row])) == (item.path, item.bonus), (form, item)
            assert int(judged.accepted[row]) == len(path)


def lossless(rule: str, case: Case, length: int) -> list[Scenario]:
    """`decided`, and the law of the first `length` tokens is exactly the target's."""
    found = decided(rule, case, WAYS[rule])
    assert emitted_law(case, found, length) == target_law(case.target, length)
    return found
