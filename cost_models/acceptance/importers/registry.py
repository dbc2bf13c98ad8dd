"""All importers, found by their place; which of them reads a file."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from functools import cache
from pathlib import Path

from specplan.cost_models.acceptance import importers as folder
from specplan.cost_models.acceptance.importers.base import Importer, ImportRequest
from specplan.cost_models.acceptance.profile import AcceptanceKey, AcceptanceProfile
from specplan.cost_models.foreign_file import Source, is_address
from specplan.ir.errors import UsageError
from specplan.ir.files import modules_of, sha256_bytes


@cache
def discover_importers() -> dict[str, Importer]:
    """All importers by the name of their format."""
    modules = modules_of(folder.__name__, folder.__path__).values()
    known: list[Importer] = [one.IMPORTER for one in modules if hasattr(one, "IMPORTER")]
    return {importer.name: importer for importer in known}


def read_profile(
    path: Path | str, request: ImportRequest, format: str | None = None
) -> AcceptanceProfile:
    """The profile that a file of another program holds.

    Args:
        path: the file.
        request: what the profile is about.
        format: name of an importer; the only one that recognises the file when None.

    Raises:
        UsageError: the format is not known or not clear, or the file is broken.
    """
    source = Source(path)
    importer = _named(format) if format is not None else _recognised(source)
    if request.key.how == "given" and not importer.every_round:
        raise source.error(
            f"{importer.name} counts only rounds in which something was drafted, which hides "
            "the misses of a lookup",
            "Measure it with `specplan profile acceptance`, or take a log of every round.",
        )
    profile = importer.read(source, request)
    facts = profile.provenance
    rounds = f"{facts['rounds']:,.0f} rounds" if facts.get("rounds") else "rounds not counted"
    if facts.get("rounds_assumed"):
        rounds += " assumed"
    name = source.where if is_address(source.where) else source.path.name
    words = f"was imported from {name} ({importer.name}, {rounds})"
    return replace(
        profile,
        provenance={
            **facts,
            "kind": "import",
            "format": importer.name,
            "file": name,
            "sha256": sha256_bytes(source.data),
            "date": _day(source),
            "words": words,
        },
    )


def _day(source: Source) -> str:
    """The day of what was read, ISO 8601: of a file its last change, of an address today."""
    if is_address(source.where):
        return date.today().isoformat()
    return date.fromtimestamp(source.path.stat().st_mtime).isoformat()


def read_evidence(path: Path | str, key: AcceptanceKey) -> AcceptanceProfile:
    """The profile in a file, or what a log of another program gives.

    Args:
        path: an acceptance profile, or a file that one of the importers recognises.
        key: what the profile of a log is about.

    Raises:
        UsageError: the file is missing or broken, or is neither.
    """
    source = Source(path)
    ours = any(isinstance(one, dict) and "schema_version" in one for one in source.documents)
    if ours or not any(one.recognises(source) for one in discover_importers().values()):
        return AcceptanceProfile.load(path)
    return read_profile(path, ImportRequest(key))


def _named(format: str) -> Importer:
    known = discover_importers()
    if format not in known:
        raise UsageError(
            f"there is no format {format!r}",
            where="--format",
            remedy=f"Known are {', '.join(known)}.",
        )
    return known[format]


def _recognised(source: Source) -> Importer:
    known = discover_importers().values()
    candidates = [importer for importer in known if importer.recognises(source)]
    if len(candidates) != 1:
        names = ", ".join(importer.name for importer in candidates or known)
        what = "may be of several formats" if candidates else "is of no known format"
        raise source.error(f"the file {what}", f"Say which with --format: {names}.")
    return candidates[0]
