"""Reading acceptance profiles: every broken file gets one clear message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from specplan.cost_models.acceptance.mixture import BetaMixture
from specplan.cost_models.acceptance.pools import Pools
from specplan.cost_models.acceptance.turns import Turns
from specplan.ir.blocks import Skips
from specplan.ir.errors import UsageError
from specplan.ir.files import read_document

KIND = "acceptance_profile"
_REMEDY = "Measure it again with `specplan profile acceptance`."
ProfileT = TypeVar("ProfileT")


def read_profile_json(path: Path | str, schema_version: int) -> Mapping[str, Any]:
    """The document of a profile, its kind and version checked.

    Raises:
        UsageError: it is missing, no JSON, no profile or of another version.
    """
    return read_document(path, "acceptance profile", schema_version, _REMEDY, KIND)


def profile_from_json(
    profile: type[ProfileT], key: type[Any], document: Mapping[str, Any], where: str
) -> ProfileT:
    """Build a profile from its document.

    Raises:
        UsageError: a field is missing, unknown or of the wrong kind.
    """
    try:
        named = dict(document["key"])
        if named.get("match") is not None:
            shortest, longest = named["match"]
            named["match"] = (int(shortest), int(longest))
        named["skip"] = Skips.read(named.get("skip", ())).words
        fields = {
            name: value
            for name, value in document.items()
            if name not in ("schema_version", "kind", "key")
        }
        for name in ("ranks", "lengths", "trips", "hazards"):
            if fields.get(name) is not None:
                fields[name] = tuple(tuple(row) for row in fields[name])
        if isinstance(fields.get("trials"), list):
            fields["trials"] = tuple(fields["trials"])
        if fields.get("mixture") is not None:
            fields["mixture"] = _mixture(**fields["mixture"])
        if fields.get("pools") is not None:
            fields["pools"] = Pools.from_data(**fields["pools"])
        if fields.get("turns") is not None:
            fields["turns"] = Turns.from_data(**fields["turns"])
        return profile(key=key(**named), **fields)  # type: ignore[call-arg]
    except UsageError as error:
        raise UsageError(error.what, where=where, remedy=error.remedy or _REMEDY) from error
    except (TypeError, KeyError, ValueError) as error:
        raise UsageError(
            f"not a whole acceptance profile ({error})", where=where, remedy=_REMEDY
        ) from error


def _mixture(
    members: Sequence[Sequence[float]], others: Sequence[float], trials: float | None
) -> BetaMixture:
    triples = tuple((float(a), float(b), float(decay)) for a, b, decay in members)
    return BetaMixture(triples, tuple(map(float, others)), trials)


def checked_rows(
    proposer: str,
    kinds: Sequence[object],
    trials: float | Sequence[float] | None,
    measured_depth: int | None,
) -> None:
    """Check evidence that is rows of numbers.

    Args:
        proposer: for messages.
        kinds: ranks, lengths, hazards and others, one of the first three given.
        trials: positions behind the rows of hazards.
        measured_depth: the deepest row of hazards that was measured.

    Raises:
        UsageError: not exactly one kind, nothing in it, or values out of range.
    """
    where = f"acceptance profile of {proposer!r}"
    given = [rows for rows in kinds if rows is not None]
    if len(given) != 1:
        raise UsageError(
            "needs exactly one of ranks, lengths, hazards, mixture, pools and turns",
            where=where,
            remedy=_REMEDY,
        )
    rows: Any = given[0]
    if not any(len(row) for row in rows):
        raise UsageError("holds no measurement", where=where, remedy=_REMEDY)
    table = kinds[2] is not None
    low = 0 if table or kinds[1] is not None else -1
    wanted, high = ((int, float), 1) if table else (int, 1 << 30)
    for row in rows:
        for value in row:
            if isinstance(value, bool) or not isinstance(value, wanted) or not low <= value <= high:
                raise UsageError(f"{value!r} is out of range", where=where)
    if table and (len({len(row) for row in rows}) != 1 or any(sum(row) > 1 + 1e-9 for row in rows)):
        raise UsageError("rows of hazards must be of one length and sum to at most 1", where=where)
    _check_trials(where, rows, trials, measured_depth)


def checked_trips(
    proposer: str,
    trips: Sequence[Sequence[int]] | None,
    lengths: Sequence[Sequence[int]] | None,
) -> None:
    """Check how many trips rounds took, which stand beside the lengths of their drafts.

    Raises:
        UsageError: there are no lengths, or not as many; trips are out of range; no round began.
    """
    if trips is None:
        return
    where = f"acceptance profile of {proposer!r}"
    if lengths is None or list(map(len, trips)) != list(map(len, lengths)):
        raise UsageError("trips stand beside lengths, one for each", where=where, remedy=_REMEDY)
    for value in (value for row in trips for value in row):
        if type(value) is not int or not -1 <= value < 1 << 20:
            raise UsageError(f"{value!r} trips are out of range", where=where)
    if not any(value >= 0 for row in trips for value in row):
        raise UsageError("trips tell of no round", where=where, remedy=_REMEDY)


def _check_trials(
    where: str,
    rows: Sequence[object],
    trials: float | Sequence[float] | None,
    measured_depth: int | None,
) -> None:
    each = trials if isinstance(trials, Sequence) else (trials,)
    if trials is not None and not all(value is not None and value > 0 for value in each):
        raise UsageError("trials must be positive", where=where)
    if isinstance(trials, Sequence) and len(trials) != len(rows):
        raise UsageError(f"{len(trials)} trials for {len(rows)} rows of hazards", where=where)
    if measured_depth is not None and measured_depth < 1:
        raise UsageError("measured_depth must be at least 1", where=where)


def checked_whole(
    proposer: str,
    evidence: BetaMixture | Pools | Turns,
    trials: float | Sequence[float] | None,
    measured_depth: int | None,
) -> None:
    """Check evidence that is no rows of numbers: a mixture, pools, or turns.

    Raises:
        UsageError: its numbers are out of range, or fields of other evidence are given.
    """
    where = f"acceptance profile of {proposer!r}"
    wrong = evidence.problem()
    if wrong is None and (trials is not None or measured_depth is not None):
        own = "a mixture has trials of its own"
        if not isinstance(evidence, BetaMixture):
            own = f"{type(evidence).__name__.lower()} have positions instead of trials"
        wrong = f"{own}, and no measured_depth"
    if wrong is not None:
        raise UsageError(wrong, where=where, remedy=_REMEDY)
