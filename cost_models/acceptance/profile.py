"""What a target accepts from a drafter, as it was measured or published.

A profile belongs to its models, task, sampling settings and way of choosing children: another
temperature or rule is another profile (Sequoia's and SpecInfer's vectors for one pair differ).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from specplan.cost_models.acceptance.drafters import Drafter, Model
from specplan.cost_models.acceptance.evidence.base import Evidence
from specplan.cost_models.acceptance.evidence.hazards import Hazards
from specplan.cost_models.acceptance.evidence.registry import evidence_kinds
from specplan.cost_models.acceptance.key import AcceptanceKey as AcceptanceKey
from specplan.cost_models.acceptance.key import How as How
from specplan.cost_models.acceptance.model import AcceptanceModel, Outcome
from specplan.cost_models.acceptance.old_profiles import OLD_VERSION, converted
from specplan.cost_models.intervals import Interval
from specplan.ir.errors import UsageError
from specplan.ir.files import read_document, write_json_atomic

SCHEMA_VERSION = 2
KIND = "acceptance_profile"
ASSUMPTION = "assumption"
"""The provenance's `kind` of profiles that nobody measured."""
DRAFT = Model("draft")
_FIELDS = {"schema_version", "kind", "key", "evidence", "provenance"}
_REMEDY = "Measure it again with `specplan profile acceptance`."


@dataclass(frozen=True)
class AcceptanceProfile(AcceptanceModel):
    """Acceptance of one drafter.

    Attributes:
        key: what it is about.
        evidence: what is known.
        provenance: how it came about, free form, JSON values.
    """

    key: AcceptanceKey
    evidence: Evidence
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        wrong = self.evidence.problem()
        if wrong is not None:
            where = f'acceptance profile of "{self.key.drafter}"'
            raise UsageError(wrong, where=where, remedy=_REMEDY)

    @classmethod
    def from_hazards(
        cls,
        hazards: Sequence[Sequence[float]],
        *,
        drafter: Drafter = DRAFT,
        trials: float | Sequence[float] | None = None,
        measured_depth: int | None = None,
        key: AcceptanceKey | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> AcceptanceProfile:
        """From published hazards, one row per depth; a single row is position independent."""
        width = max((len(row) for row in hazards), default=0)
        rows = tuple((*map(float, row), *(0.0,) * (width - len(row))) for row in hazards)
        behind = tuple(trials) if isinstance(trials, Sequence) else trials
        evidence = Hazards(rows, behind, measured_depth)
        return cls(key or AcceptanceKey(drafter), evidence, provenance or {})

    @property
    def match(self) -> tuple[int, int] | None:
        """Shortest and longest suffix that was looked up; None for models."""
        return self.key.match

    @property
    def positions(self) -> int:
        """Positions measured; 0 where the evidence is no trace."""
        return self.evidence.positions

    @property
    def prompts(self) -> int:
        """Prompts measured; 0 where the evidence is no trace."""
        return self.evidence.prompts

    @property
    def source(self) -> str:
        """What is behind it, in words."""
        if self.positions:
            return f"was measured at {self.positions} positions of {self.prompts} prompts"
        words = self.provenance.get("words")
        return str(words) if words else "is a given table of rates"

    @property
    def assumption(self) -> str | None:
        """What was assumed, in words; None where the profile rests on measurements."""
        if self.provenance.get("kind") != ASSUMPTION:
            return None
        return str(self.provenance.get("assumed", "an assumption"))

    def hazard(self, depth: int, rank: int) -> float:
        """P(the child of this rank is accepted | its parent was); depth >= 1, rank >= 0."""
        return self.evidence.model.hazard(depth, rank)

    def hazard_counts(self, depth: int, rank: int) -> tuple[float, float]:
        """(accepted, trials) behind a hazard; (0, 0) where nothing was counted."""
        return self.evidence.model.hazard_counts(depth, rank)

    def hazard_interval(self, depth: int, rank: int, confidence: float = 0.9) -> Interval:
        """A hazard with its posterior interval."""
        return self.evidence.model.hazard_interval(depth, rank, confidence)

    def outcome(self, parents: Sequence[int], ranks: Sequence[int]) -> Outcome:
        """What happens with a static tree; for a source, a chain of the tokens proposed at most."""
        return self.evidence.model.outcome(parents, ranks)

    def with_all_trips(self) -> AcceptanceProfile:
        """The same for a backend that runs every trip of a loop that may end early."""
        return replace(self, evidence=self.evidence.with_all_trips())

    def save(self, path: Path | str) -> None:
        """Write the profile atomically as JSON."""
        document = {
            "schema_version": SCHEMA_VERSION,
            "kind": KIND,
            "key": self.key.as_data(),
            "evidence": {"kind": self.evidence.kind, **self.evidence.as_data()},
            "provenance": dict(self.provenance),
        }
        write_json_atomic(path, document)

    @classmethod
    def load(cls, path: Path | str) -> AcceptanceProfile:
        """Read a profile, also one of the version before.

        Raises:
            UsageError: the file is missing, or is no acceptance profile of these versions.
        """
        document = read_document(
            path, "acceptance profile", SCHEMA_VERSION, _REMEDY, KIND, (OLD_VERSION,)
        )
        try:
            if document["schema_version"] == OLD_VERSION:
                document = converted(document)
            unknown = set(document) - _FIELDS
            if unknown:
                raise ValueError(f"unknown: {', '.join(sorted(unknown))}")
            evidence = dict(document["evidence"])
            kind = evidence_kinds()[evidence.pop("kind")]
            key = AcceptanceKey.from_data(document["key"])
            provenance = document["provenance"]
            if not isinstance(provenance, dict):
                raise TypeError(f"provenance is {provenance!r}, not an object")
            return cls(key, kind.from_data(evidence), provenance)
        except UsageError as error:
            raise UsageError(error.what, where=str(path), remedy=error.remedy or _REMEDY) from error
        except (TypeError, KeyError, ValueError) as error:
            raise UsageError(
                f"not a whole acceptance profile ({error})", where=str(path), remedy=_REMEDY
            ) from error
