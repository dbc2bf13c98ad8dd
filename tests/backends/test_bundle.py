"""Bundles: whole, checked, replaced as a whole, refused when a byte has changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specplan.backends.bundle import Bundle, load_bundle, write_bundle
from specplan.ir import files
from specplan.ir.errors import UsageError
from specplan.ir.text.parser import parse_plan
from tests.planner.checkpoints import write_checkpoint

PLANS = Path(__file__).parent.parent / "ir" / "plans"


def _write(folder: Path, plan: str = "draft_chain") -> Bundle:
    models = {name: (folder.parent / name, "auto") for name in ("target", "draft")}
    for path, _ in models.values():
        if not path.exists():
            write_checkpoint(path)
    return write_bundle(
        folder,
        plan=parse_plan((PLANS / f"{plan}.plan").read_text()),
        problem={"schema_version": 1},
        report={"candidates": []},
        models=models,
        backend="eager",
        versions={"specplan": "0"},
    )


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    written = _write(tmp_path / "out" / "bundle")
    assert load_bundle(tmp_path / "out" / "bundle") == written
    assert written.model_folder("draft") == (tmp_path / "out" / "draft").resolve()
    written.check_models()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "bundle", "draft", "target",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["plan.txt", "plan.json", "problem.json", "report.json"])
def test_a_changed_byte_is_named(tmp_path: Path, name: str) -> None:
    _write(tmp_path / "bundle")
    path = tmp_path / "bundle" / name
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(bytes(raw))
    with pytest.raises(UsageError, match=f"{name}: the file's bytes have changed"):
        load_bundle(tmp_path / "bundle")
    path.unlink()
    with pytest.raises(UsageError, match=f"{name}: the bundle lacks this file"):
        load_bundle(tmp_path / "bundle")


def test_checkpoints_that_changed_or_went_are_refused(tmp_path: Path) -> None:
    written = _write(tmp_path / "bundle")
    config = tmp_path / "target" / "config.json"
    text = config.read_text()
    config.write_text(text + " ")
    with pytest.raises(UsageError, match="checkpoint of model target has changed"):
        written.check_models()
    config.unlink()
    with pytest.raises(UsageError, match="checkpoint of model target is missing"):
        written.check_models()


def test_other_folders_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="holds no bundle"):
        _write(tmp_path / "bundle")
    assert (tmp_path / "bundle" / "thesis.txt").read_text() == "mine"
    for text in ('{"manifest_version": 3, "name": "an extension"}', "[]", "{"):
        (tmp_path / "bundle" / "manifest.json").write_text(text)
        with pytest.raises(UsageError, match="holds no bundle"):
            _write(tmp_path / "bundle")
    (tmp_path / "bundle" / "manifest.json").unlink()
    with pytest.raises(UsageError, match="not a bundle"):
        load_bundle(tmp_path / "bundle")


def test_an_old_bundle_is_replaced_whole_or_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = _write(tmp_path / "bundle")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(files, "_put_in_place", fail)
        with pytest.raises(OSError, match="disk full"):
            _write(tmp_path / "bundle", "static_tree")
    assert load_bundle(tmp_path / "bundle") == old
    new = _write(tmp_path / "bundle", "static_tree")
    assert load_bundle(tmp_path / "bundle") == new != old
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle", "draft", "target"]


def test_another_version_is_refused(tmp_path: Path) -> None:
    _write(tmp_path / "bundle")
    path = tmp_path / "bundle" / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps(manifest | {"schema_version": 99}))
    with pytest.raises(UsageError, match="version 99; 1 is read"):
        load_bundle(tmp_path / "bundle")
