"""Reading acceptance profiles: every broken file gets one clear message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from specplan.ir.errors import UsageError
from specplan.ir.files import read_json

_REMEDY = "Measure it again with `specplan profile acceptance`."
ProfileT = TypeVar("ProfileT")


def read_profile_json(path: Path | str, schema_version: int) -> Mapping[str, Any]:
    """The document of a profile, its kind and version checked.

    Raises:
        UsageError: it is missing, no JSON, no profile or of another version.
    """
    document = read_json(path, "acceptance profile")
    if not isinstance(document, dict) or document.get("kind") != "acceptance_profile":
        raise UsageError("not an acceptance profile", where=str(path), remedy=_REMEDY)
    if document.get("schema_version") != schema_version:
        raise UsageError(
            f"schema version {document.get('schema_version')!r}, expected {schema_version}",
            where=str(path),
            remedy=_REMEDY,
        )
    return document


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
        fields = {
            name: value
            for name, value in document.items()
            if name not in ("schema_version", "kind", "key")
        }
        for name in ("ranks", "lengths", "hazards"):
            if fields.get(name) is not None:
                fields[name] = tuple(tuple(row) for row in fields[name])
        return profile(key=key(**named), **fields)  # type: ignore[call-arg]
    except UsageError as error:
        raise UsageError(error.what, where=where, remedy=error.remedy or _REMEDY) from error
    except (TypeError, KeyError, ValueError) as error:
        raise UsageError(
            f"not a whole acceptance profile ({error})", where=where, remedy=_REMEDY
        ) from error


def checked_rows(
    proposer: str,
    ranks: Sequence[Sequence[int]] | None,
    lengths: Sequence[Sequence[int]] | None,
    hazards: Sequence[Sequence[float]] | None,
    trials: float | None,
) -> None:
    """Check the evidence of a profile.

    Raises:
        UsageError: not exactly one kind, nothing in it, or values out of range.
    """
    where = f"acceptance profile of {proposer!r}"
    given = [rows for rows in (ranks, lengths, hazards) if rows is not None]
    if len(given) != 1:
        raise UsageError("needs exactly one of ranks, lengths and hazards", where=where)
    rows = given[0]
    if not any(len(row) for row in rows):
        raise UsageError("holds no measurement", where=where, remedy=_REMEDY)
    wanted, low, high = (int, -1, 1 << 30) if hazards is None else ((int, float), 0, 1)
    if hazards is None and lengths is not None:
        low = 0
    for row in rows:
        for value in row:
            if isinstance(value, bool) or not isinstance(value, wanted) or not low <= value <= high:
                raise UsageError(f"{value!r} is out of range", where=where)
    uneven = hazards is not None and len({len(row) for row in hazards}) != 1
    if uneven or any(sum(row) > 1 + 1e-9 for row in hazards or ()):
        raise UsageError("rows of hazards must be of one length and sum to at most 1", where=where)
    if trials is not None and not trials > 0:
        raise UsageError("trials must be positive", where=where)
