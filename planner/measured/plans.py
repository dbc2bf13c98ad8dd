"""Plans that were measured as they run, kept beside the profiles for the searches to come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from specplan.ir.errors import UsageError
from specplan.ir.files import name_of, read_document, write_json_atomic
from specplan.ir.plan import Plan
from specplan.ir.text.printer import print_plan

SCHEMA_VERSION = 1
_KIND = "measured_plans"
_REMEDY = "Remove the file; `specplan tune` writes it anew from its study."


@dataclass(frozen=True)
class MeasuredPlan:
    """What one plan took at one load.

    Attributes:
        plan: which plan, as `plan_key` names it.
        method: that wrote it.
        family: of the method.
        words: the setting in a few words.
        point: where it lies in the domains of a family of which only some settings are tried;
            empty elsewhere.
        batch: requests that ran together.
        prompt_tokens: longest prompt, in tokens.
        seconds_per_token: seconds of a request, prompt included, per output token.
        error: relative half width of its 90 % interval, beside what all have in common.
        shared: of what all plans measured at this load have in common, the drift of the machine
            apart: the prompts that they ran on.
        tokens_per_round: emitted by a request, the bonus included.
        turns: runs that these rest on.
    """

    plan: str
    method: str
    family: str
    words: str
    point: Mapping[str, Any]
    batch: int
    prompt_tokens: int
    seconds_per_token: float
    error: float
    shared: float
    tokens_per_round: float
    turns: int

    def __post_init__(self) -> None:
        sizes = (self.seconds_per_token, self.tokens_per_round)
        if (
            not all(isfinite(size) and size > 0.0 for size in sizes)
            or not min(self.error, self.shared) >= 0.0
        ):
            raise UsageError(f"a measured plan takes a time above 0, got {self!r}")


@dataclass(frozen=True)
class MeasuredPlans:
    """All that were measured for one problem on one machine.

    Attributes:
        plans: one for each plan and load.
        provenance: how they came about, free form, JSON values.
    """

    plans: tuple[MeasuredPlan, ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def points(self, method: str, family: str) -> list[Mapping[str, Any]]:
        """Measured settings of a family beside those that its search tries."""
        mine = (p.point for p in self.plans if (p.method, p.family) == (method, family))
        points: list[Mapping[str, Any]] = []
        for point in mine:
            if point and point not in points:
                points.append(point)
        return points

    def save(self, path: Path) -> None:
        """Write as JSON, atomically."""
        document = {
            "schema_version": SCHEMA_VERSION,
            "kind": _KIND,
            "provenance": dict(self.provenance),
            "plans": [asdict(plan) for plan in self.plans],
        }
        write_json_atomic(path, document)

    @classmethod
    def load(cls, path: Path) -> MeasuredPlans:
        """Read them.

        Raises:
            UsageError: the file is missing, or is something else.
        """
        document = read_document(path, "measured plans", SCHEMA_VERSION, _REMEDY, _KIND)
        try:
            plans = tuple(MeasuredPlan(**entry) for entry in document["plans"])
            return cls(plans, document["provenance"])
        except (KeyError, TypeError, ValueError, UsageError) as error:
            raise UsageError(
                f"these are no measured plans ({error})",
                where=str(path),
                remedy=_REMEDY,
            ) from error


def plan_key(plan: Plan) -> str:
    """Names what a plan runs: its models, states and rounds, and not what it was priced for."""
    lines = print_plan(plan).splitlines()
    parts = [line for line in lines if not line.startswith(("assume ", "plan "))]
    return name_of("\n".join(parts))
