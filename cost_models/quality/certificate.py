"""A certificate: which settings were tested on which data, and what the chosen plan may lose.

It belongs to one plan, named by its key (`rounds_key`: states with their calibrated numbers, ops,
schedule), to the checkpoints that it ran, and to the sampling at which it ran.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from specplan.cost_models.acceptance.drafters import rounds_key
from specplan.cost_models.quality.bounds import upper_bound
from specplan.ir.errors import UsageError
from specplan.ir.files import read_json, write_json_atomic
from specplan.ir.plan import Plan
from specplan.ir.tables.builtin import BUILTIN

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Measured:
    """Losses of one plan, request by request, on the two parts of the prompts.

    Attributes:
        calibration: on which thresholds are chosen, each in [0, 1] after division by `most`.
        report: on which the bound is stated, likewise.
        most: largest loss of a request, in the unit of the measure.
        data: digests of the prompts of both parts.
    """

    calibration: tuple[float, ...]
    report: tuple[float, ...]
    most: float = 1.0
    data: tuple[str, str] = ("", "")

    def bound(self, risk: float) -> float:
        """The mean loss is at most this, in the unit of the measure; of the report's part."""
        return upper_bound(self.report, risk) * self.most

    @property
    def mean(self) -> float:
        """Mean loss of the report's part, in the unit of the measure."""
        return self.most * sum(self.report) / len(self.report) if self.report else self.most


@dataclass(frozen=True)
class Loss:
    """What a plan was found to lose.

    Attributes:
        mean: on the report's prompts, in the unit of the measure.
        bound: the loss is at most this.
        risk: probability that the bound is wrong.
        samples: prompts of the report.
        calibrated: mean on the calibration prompts.
        p_value: of the hypothesis that the loss is above the limit, on the calibration prompts.
        keeps: whether it is shown to keep the limit, beside all others that were tested.
    """

    mean: float
    bound: float
    risk: float
    samples: int
    calibrated: float
    p_value: float
    keeps: bool


@dataclass(frozen=True)
class Tested:
    """One setting of the grid.

    Attributes:
        plan: key of its plan.
        words: the setting.
        loss: mean on the calibration prompts, in the unit of the measure.
        p_value: of the hypothesis that its loss is above the limit.
        keeps: whether it is shown to keep the limit.
    """

    plan: str
    words: str
    loss: float
    p_value: float
    keeps: bool


@dataclass(frozen=True)
class Certificate:
    """What was tested before a plan was chosen, and what its output may lose.

    Attributes:
        plan: key of the plan that it is of.
        models: digests of the checkpoints that ran, by role.
        sampling: temperature, top-k and top-p.
        measure: of the loss, as the problem states it.
        at_most: the limit.
        risk: probability that the bound is wrong.
        data: digests of the calibration prompts and of the report's.
        grid: every setting that was tested, those of a sequence in their order.
        mean: loss on the report's prompts.
        bound: the loss is at most this.
        samples: prompts of the report.
    """

    plan: str
    models: Mapping[str, str]
    sampling: tuple[float, int, float]
    measure: str
    at_most: float
    risk: float
    data: tuple[str, str]
    grid: tuple[Tested, ...]
    mean: float
    bound: float
    samples: int

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {"schema_version": SCHEMA_VERSION, **asdict(self)}

    def save(self, path: Path) -> None:
        """Write it to a file."""
        write_json_atomic(path, self.as_dict())


def read_certificate(path: Path) -> Certificate:
    """A certificate from its file.

    Raises:
        UsageError: the file is missing or holds something else.
    """
    data = read_json(path, "certificate")
    try:
        return certificate_of(data)
    except (TypeError, KeyError, ValueError) as error:
        raise UsageError(
            f"this is no certificate ({error})",
            where=str(path),
            remedy="Write it anew with `specplan calibrate`.",
        ) from error


def certificate_of(data: Mapping[str, Any]) -> Certificate:
    """A certificate from JSON data.

    Raises:
        KeyError: a part is missing.
        TypeError: a part is unknown or of another form.
        ValueError: it has another version.
    """
    known = {key: value for key, value in data.items() if key != "schema_version"}
    if data["schema_version"] != SCHEMA_VERSION:
        raise ValueError(f"version {data['schema_version']}")
    grid = tuple(Tested(**one) for one in known["grid"])
    lists = {"sampling": tuple(known["sampling"]), "data": tuple(known["data"]), "grid": grid}
    return Certificate(**{**known, **lists})


def check_certified(
    plan: Plan, certificate: Certificate | None, digests: Mapping[str, str], where: str
) -> None:
    """Refuse a plan that promises a bounded loss which nobody has tested.

    Args:
        plan: a verified plan; any other promise needs no certificate.
        certificate: what stands beside it; None where nothing does.
        digests: of the checkpoints that it is to run, by role.
        where: the plan's place, for the message.

    Raises:
        UsageError: there is no certificate, or it is of another plan, checkpoint or loss.
    """
    promise = plan.assumptions.law
    if promise.name != "bounded":
        return
    remedy = "Run `specplan calibrate` with this plan, which writes one."
    if certificate is None:
        what = "the plan promises a bounded loss, and no certificate says that it was tested"
        raise UsageError(what, where=where, remedy=remedy)
    wrong = list(_differences(plan, certificate, digests))
    if wrong:
        raise UsageError(f"the certificate is of another {wrong[0]}", where=where, remedy=remedy)


def _differences(plan: Plan, certificate: Certificate, digests: Mapping[str, str]) -> list[str]:
    declared = BUILTIN.find("promise", "bounded")
    assert declared is not None
    promised = declared.arguments(plan.assumptions.law)
    ran = {role: digest for role, digest in digests.items() if role in plan.models_run}
    pairs = {
        "plan: its ops, thresholds or schedule have changed": certificate.plan == rounds_key(plan),
        "checkpoint": dict(certificate.models) == ran,
        "measure than the plan promises": promised["measure"] == certificate.measure,
        "risk than the plan promises": promised["risk"] == certificate.risk,
        "limit than the plan promises": promised["loss"] == certificate.at_most,
    }
    return [what for what, same in pairs.items() if not same]
