"""Profiles of schema version 1 are read, each kind of evidence as what it is called now."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specplan.cost_models.acceptance.drafters import FirstLayers
from specplan.cost_models.acceptance.evidence.base import Evidence
from specplan.cost_models.acceptance.evidence.hazards import Hazards
from specplan.cost_models.acceptance.evidence.interleaved import InterleavedTrace
from specplan.cost_models.acceptance.evidence.lengths import Lengths
from specplan.cost_models.acceptance.evidence.mixture import BetaMixture
from specplan.cost_models.acceptance.evidence.pools import Pools
from specplan.cost_models.acceptance.evidence.ranks import Ranks
from specplan.cost_models.acceptance.profile import SCHEMA_VERSION, AcceptanceProfile
from specplan.ir.errors import UsageError

KINDS = ("ranks", "lengths", "trips", "hazards", "mixture", "pools", "turns", "trials")
POOLS = {"layers": 1, "rows": [["1 0", "1"]]}
TURNS = {"longest": 4, "rows": [["1 2"], ["0 0"]]}
MIXTURE = {"members": [[2.0, 1.0, 1.0]], "others": [0.5], "trials": 9.0}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], Evidence]] = {
    "ranks": ({}, {"ranks": [[0, -1], [2]]}, Ranks(((0, -1), (2,)))),
    "lengths": ({"how": "given"}, {"lengths": [[3, 0]]}, Lengths(((3, 0),))),
    "hazards": (
        {},
        {"hazards": [[0.7, 0.1], [0.6, 0.1]], "trials": 40, "measured_depth": 2},
        Hazards(((0.7, 0.1), (0.6, 0.1)), 40, 2),
    ),
    "mixture": ({}, {"mixture": MIXTURE}, BetaMixture(((2.0, 1.0, 1.0),), (0.5,), 9.0)),
    "pools": ({"beam": 2}, {"pools": POOLS}, Pools(1, (((1, 0), (1,)),), 2)),
    "turns": ({"source": "text"}, {"turns": TURNS}, InterleavedTrace(4, (((1, 2),), ((0, 0),)))),
}


def written(path: Path, key: dict[str, Any], evidence: dict[str, Any]) -> Path:
    """A file as version 1 wrote it."""
    about = {"proposer": "draft", "target_digest": "", "task": "code", "temperature": 0.0, **key}
    document = {"schema_version": 1, "kind": "acceptance_profile", "key": about}
    parts = {kind: None for kind in KINDS} | {"measured_depth": None, "provenance": {"seed": 3}}
    path.write_text(json.dumps(document | parts | evidence))
    return path


@pytest.mark.parametrize("name", CASES)
def test_every_kind_is_read(name: str, tmp_path: Path) -> None:
    key, evidence, wanted = CASES[name]
    profile = AcceptanceProfile.load(written(tmp_path / "old.json", key, evidence))
    assert profile.evidence == wanted and profile.key.task == "code"
    assert profile.provenance == {"seed": 3}
    profile.save(tmp_path / "new.json")
    assert json.loads((tmp_path / "new.json").read_text())["schema_version"] == SCHEMA_VERSION
    assert AcceptanceProfile.load(tmp_path / "new.json") == profile


def test_rounds_that_ran_are_run_again(tmp_path: Path) -> None:
    """Their names leave out constants of the plan, so that no plan is known to be theirs."""
    evidence = {"lengths": [[1, 0, 0]], "trips": [[2, -1, 1]]}
    key = {"proposer": "draft+relaxed4", "how": "run"}
    path = written(tmp_path / "old.json", key, evidence)
    with pytest.raises(UsageError, match="belongs to no plan") as caught:
        AcceptanceProfile.load(path)
    assert caught.value.where == str(path)
    assert "specplan profile acceptance" in caught.value.remedy


def test_drafters_have_their_names_of_now(tmp_path: Path) -> None:
    more = {"layers": 4, "beam": None, "skip": [], "source": None, "proposer_digest": "d"}
    path = written(tmp_path / "old.json", {"proposer": "target@4", **more}, {"ranks": [[0]]})
    key = AcceptanceProfile.load(path).key
    assert key.drafter == FirstLayers("target", 4) and key.drafter_digest == "d"


@pytest.mark.parametrize("evidence", [{}, {"ranks": [[0]], "lengths": [[1]]}, {"pools": 3}])
def test_what_holds_no_one_kind_is_refused(evidence: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a whole acceptance profile") as caught:
        AcceptanceProfile.load(written(tmp_path / "old.json", {}, evidence))
    assert "specplan profile acceptance" in caught.value.remedy
