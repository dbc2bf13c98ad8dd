"""Acceptance profiles of schema version 1 and their names for drafters, read for one version more.

They held one of several kinds of evidence in fields of their own, of which all others were null,
and named a drafter in a word: `target@4`, `target~512r`, `target-a3m4`, `draft^4`, `draft&text`.
The word for rounds that ran, `target+jacobi8`, left out constants of the plan: no plan of today is
known to be the one that ran, so that such a profile is measured again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from specplan.cost_models.acceptance.drafters import (
    Beam,
    Drafter,
    FirstLayers,
    Interleaved,
    SkipBlocks,
    SmallCache,
    named_drafter,
)
from specplan.ir.blocks import Skips
from specplan.ir.errors import UsageError

OLD_VERSION = 1
_NAME = re.compile(
    r"(?P<model>[a-z][a-z0-9_]*)(?:@(?P<layers>[1-9][0-9]*)|\^(?P<beam>[1-9][0-9]*)"
    r"|~(?P<budget>[1-9][0-9]*)(?P<retrieved>r?)|&(?P<source>[a-z][a-z0-9_]*)"
    r"|-(?P<blocks>(?:[am](?:0|[1-9][0-9]{0,5}))+)|(?P<ran>\+[a-z][a-z0-9_]*))?"
)
_BLOCK = re.compile(r"([am])([0-9]+)")
_OF_NAMES = ("layers", "beam", "skip", "source")
_ROWS = ("ranks", "lengths")
_WHOLE = {"mixture": "mixture", "pools": "pools", "turns": "interleaved"}


def converted(document: Mapping[str, Any]) -> dict[str, Any]:
    """A document of version 1 in the form of version 2.

    Raises:
        KeyError: it has no key.
        TypeError: its evidence is no object.
        UsageError: it is of rounds that ran.
        ValueError: its name is none, or it holds no evidence, or several kinds of it.
    """
    key = dict(document["key"])
    name = key.pop("proposer")
    drafter = drafter_of_old_name(name)
    if drafter is None:
        raise ValueError(f'"{name}" names no drafter')
    named = {name: value for name, value in key.items() if name not in _OF_NAMES}
    named["drafter_digest"] = named.pop("proposer_digest", "")
    return {
        "key": {**named, "drafter": str(drafter)},
        "evidence": _evidence(document, key),
        "provenance": document.get("provenance", {}),
    }


def drafter_of_old_name(name: str) -> Drafter | None:
    """The drafter that a word of version 1 named; None where it is no such word.

    Raises:
        UsageError: it named rounds that ran.
    """
    parts = _NAME.fullmatch(name)
    if parts is None:
        return None
    model = parts["model"]
    if parts["ran"]:
        raise UsageError(
            f'"{name}" belongs to no plan: rounds that ran are known by their plan now',
            remedy="Measure them again with `specplan profile acceptance`.",
        )
    if parts["layers"]:
        return FirstLayers(model, int(parts["layers"]))
    if parts["beam"]:
        return Beam(model, int(parts["beam"]))
    if parts["budget"]:
        return SmallCache(
            model, int(parts["budget"]), "retrieved" if parts["retrieved"] else "recent"
        )
    if parts["source"]:
        return Interleaved(model, parts["source"])
    if parts["blocks"]:
        blocks = _BLOCK.findall(parts["blocks"])
        attentions, mlps = ([int(n) for kind, n in blocks if kind == wanted] for wanted in "am")
        return SkipBlocks(model, Skips.of(attentions, mlps))
    return named_drafter(name)


def _evidence(document: Mapping[str, Any], key: Mapping[str, Any]) -> dict[str, Any]:
    kinds = (*_ROWS, "hazards", *_WHOLE)
    given = [kind for kind in kinds if document.get(kind) is not None]
    if len(given) != 1:
        raise ValueError(f"it holds {' and '.join(given) or 'no evidence'}")
    (kind,) = given
    if kind == "hazards":
        names = {"rows": "hazards", "trials": "trials", "measured_depth": "measured_depth"}
        return {"kind": kind, **{new: document.get(old) for new, old in names.items()}}
    if kind in _ROWS:
        return {"kind": kind, "rows": document[kind]}
    beam = {"beam": key.get("beam")} if kind == "pools" else {}
    return {"kind": _WHOLE[kind], **document[kind], **beam}
