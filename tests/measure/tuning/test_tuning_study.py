"""Trials are whole or absent, in a journal as in a database, and nothing else is written to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("optuna")

from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.measure.tuning.study import Trial, open_log

TRIAL = Trial(
    machine="here",
    turn=0,
    batch=2,
    prompt_tokens=40,
    plan="abc",
    method="dynamic_tree",
    family="dynamic tree by draft",
    words="dynamic tree of 9",
    seconds=0.5,
    tokens=64,
    rounds=20,
    warming=0.7,
    point={"nodes": 9},
)


def several(count: int) -> list[Trial]:
    return [replace(TRIAL, turn=turn, seconds=0.5 + turn) for turn in range(count)]


@pytest.mark.parametrize("kind", ["journal", "database"])
def test_trials_come_back_equal_and_once(tmp_path: Path, kind: str) -> None:
    storage = None if kind == "journal" else f"sqlite:///{tmp_path / 'study.db'}"
    journal = tmp_path / "folder" / "journal.log"
    first, second = (open_log(storage, journal, "study") for _ in range(2))
    for trial in several(3):
        first.add(trial)
    second.add(replace(TRIAL, seconds=9.0))  # that run was recorded already
    assert first.trials() == second.trials() == tuple(several(3))
    assert open_log(storage, journal, "other").trials() == ()
    assert TRIAL.seconds_per_token == pytest.approx(0.5 / 32)
    assert journal.exists() == (kind == "journal")


def test_half_a_line_is_taken_off(tmp_path: Path) -> None:
    """The process died while it wrote: cut anywhere in the last line, the others are there."""
    path = tmp_path / "journal.log"
    log = open_log(None, path, "study")
    for trial in several(3):
        log.add(trial)
    whole = path.read_bytes()
    last = whole.rstrip(b"\n").rfind(b"\n") + 1
    for cut in {*range(last + 1, len(whole), 97), last, len(whole) - 1}:
        path.write_bytes(whole[:cut])
        again = open_log(None, path, "study")
        assert again.trials() == tuple(several(2))
        again.add(several(3)[2])
        assert open_log(None, path, "study").trials() == tuple(several(3))


def test_half_a_line_of_another_process_harms_nobody(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    log = open_log(None, path, "study")
    log.add(several(3)[0])
    with path.open("ab") as file:
        file.write(b'{"op_code":4,"worker')
    log.add(several(3)[1])
    assert log.trials() == open_log(None, path, "study").trials() == tuple(several(2))


@pytest.mark.parametrize("text", ["schema_version: 1", '{"a": 1}\n', "text\ntext\n"])
def test_other_files_are_refused_and_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "problem.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match="no journal of a study"):
        open_log(str(path), tmp_path / "unused", "study")
    assert path.read_text() == text


def test_storages_that_cannot_be_opened_are_reported(tmp_path: Path) -> None:
    unused = tmp_path / "unused"
    with pytest.raises(UsageError, match="pickle"):
        open_log("redis://localhost", unused, "study")
    with pytest.raises(UsageError, match="cannot be opened"):
        open_log("nonsense://host", unused, "study")
    with pytest.raises(UsageError, match="cannot be opened"):
        open_log(f"sqlite:///{tmp_path}/no/such/folder/study.db", unused, "study")
    with pytest.raises(MissingCapabilityError, match="not installed") as error:
        open_log("postgresql+pg8000://me:secret@host/base", unused, "study")
    assert "me:***@host" in str(error.value) and "secret" not in str(error.value)
    with pytest.raises(UsageError, match="no journal"):
        open_log(str(tmp_path), unused, "study")
