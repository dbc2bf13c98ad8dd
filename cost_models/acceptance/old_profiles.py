"""Acceptance profiles of schema version 1, read for one version more.

They held one of several kinds of evidence in fields of their own, of which all others were null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OLD_VERSION = 1
_ROWS = ("ranks", "lengths")
_WHOLE = {"mixture": "mixture", "pools": "pools", "turns": "interleaved"}


def converted(document: Mapping[str, Any]) -> dict[str, Any]:
    """A document of version 1 in the form of version 2.

    Raises:
        KeyError: it has no key.
        TypeError: its evidence is no object.
        ValueError: it holds no evidence, or several kinds of it.
    """
    key = dict(document["key"])
    return {
        "key": key,
        "evidence": _evidence(document, key),
        "provenance": document.get("provenance", {}),
    }


def _evidence(document: Mapping[str, Any], key: Mapping[str, Any]) -> dict[str, Any]:
    kinds = (*_ROWS, "hazards", *_WHOLE)
    given = [kind for kind in kinds if document.get(kind) is not None]
    if len(given) != 1:
        raise ValueError(f"it holds {' and '.join(given) or 'no evidence'}")
    (kind,) = given
    if kind == "hazards":
        names = {"rows": "hazards", "trials": "trials", "measured_depth": "measured_depth"}
        return {"kind": kind, **{new: document.get(old) for new, old in names.items()}}
    if kind == "lengths" and key.get("how") == "run":
        return {"kind": "rounds", "lengths": document[kind], "trips": document.get("trips")}
    if kind in _ROWS:
        return {"kind": kind, "rows": document[kind]}
    beam = {"beam": key.get("beam")} if kind == "pools" else {}
    return {"kind": _WHOLE[kind], **document[kind], **beam}
