"""Files are old or new, never in between, also when the writer is killed."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from specplan.ir.errors import UsageError
from specplan.ir.files import (
    model_digest,
    read_document,
    read_json,
    sha256_bytes,
    sha256_file,
    staged,
    write_atomic,
    write_json_atomic,
)

OLD, NEW = b"old\n" * 1000, b"new\n" * 1000
STEPS = ["os.fsync", "os.chmod", "os.replace", "os.fdopen"]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file.txt"
    write_atomic(path, "grün ∀\n")
    assert path.read_bytes() == "grün ∀\n".encode()
    write_atomic(str(path), b"\x00\xff")
    assert path.read_bytes() == b"\x00\xff"
    assert [item.name for item in path.parent.iterdir()] == ["file.txt"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_errors_name_what_was_to_be_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="this is a folder") as refused:
        write_atomic(tmp_path, OLD)
    assert refused.value.where == str(tmp_path)
    with pytest.raises(OSError) as failed:
        write_atomic("/proc/x", OLD)
    assert failed.value.filename == "/proc/x"
    with pytest.raises(OSError) as failed, staged(Path("/proc/x")):
        pass
    assert failed.value.filename == "/proc/x"


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_failure_inside_leaves_the_old_file_and_nothing_else(
    step: str, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_atomic(path, OLD)

    def fail(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(f"specplan.ir.files.{step}", fail)
        with pytest.raises(type(error)):
            write_atomic(path, NEW)
    assert path.read_bytes() == OLD
    assert list(tmp_path.iterdir()) == [path]
    write_atomic(path, NEW)
    assert path.read_bytes() == NEW


WRITER = """
import sys
from specplan.ir.files import write_atomic
path, size = sys.argv[1], int(sys.argv[2])
print("ready", flush=True)
index = 0
while True:
    write_atomic(path, bytes([index % 256]) * size)
    index += 1
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_killed_writer_leaves_a_whole_file(tmp_path: Path) -> None:
    """A process that writes without pause is killed at random moments."""
    chance, size = random.Random(0), 300_000
    path = tmp_path / "file"
    write_atomic(path, b"\0" * size)
    for _ in range(6):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(size)], stdout=subprocess.PIPE
        )
        assert writer.stdout is not None and writer.stdout.readline() == b"ready\n"
        time.sleep(chance.uniform(0.0, 0.05))
        writer.kill()
        writer.wait()
        writer.stdout.close()
        raw = path.read_bytes()
        assert len(raw) == size and len(set(raw)) == 1
    left = [item for item in tmp_path.iterdir() if item != path]
    assert all(item.name.startswith(".file.") for item in left), "left-overs cannot be mistaken"


def test_readers_never_see_half_a_file(tmp_path: Path) -> None:
    size, path = 300_000, tmp_path / "file"
    write_atomic(path, b"\0" * size)
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(size)], stdout=subprocess.PIPE
    )
    try:
        assert writer.stdout is not None and writer.stdout.readline() == b"ready\n"
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            raw = path.read_bytes()
            assert len(raw) == size and len(set(raw)) == 1
    finally:
        writer.kill()
        writer.wait()
        if writer.stdout is not None:
            writer.stdout.close()


def test_json_is_sorted_and_strict(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json_atomic(path, {"b": [1, 2.5], "a": None})
    assert path.read_text() == '{\n  "a": null,\n  "b": [\n    1,\n    2.5\n  ]\n}\n'
    assert read_json(path) == {"a": None, "b": [1, 2.5]}
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json_atomic(path, {"a": float("nan")})
    assert read_json(path) == {"a": None, "b": [1, 2.5]}


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none.json"
    with pytest.raises(UsageError) as caught:
        read_json(path, "acceptance profile")
    assert caught.value.where == str(path)
    assert caught.value.what == "cannot read the acceptance profile (No such file or directory)"
    assert caught.value.remedy
    with pytest.raises(UsageError, match=r"cannot read the JSON file \(it is a folder\)"):
        read_json(tmp_path)


@pytest.mark.parametrize("data", [b"", b"{", b'{"a": 1,}', b"nope"])
def test_a_broken_file_is_named(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(data)
    with pytest.raises(UsageError) as caught:
        read_json(path, "plan")
    assert caught.value.where == str(path) and "the plan is not valid JSON" in caught.value.what


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(b"\xff\xfe{}")
    with pytest.raises(UsageError, match=r"the plan is not UTF-8 text \(byte 0\)") as caught:
        read_json(path, "plan")
    assert caught.value.where == str(path)


def test_json_nested_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    path.write_text("[" * 100_000 + "]" * 100_000)
    with pytest.raises(UsageError, match="not valid JSON"):
        read_json(path)


def test_digests(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(NEW)
    assert sha256_file(path) == sha256_bytes(NEW) == hashlib.sha256(NEW).hexdigest()


def test_a_checkpoint_is_known_by_its_config_and_weights(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no config\.json"):
        model_digest(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"hidden_size": 8}))
    with pytest.raises(UsageError, match=r"no \*\.safetensors"):
        model_digest(tmp_path)
    for name in ("b.safetensors", "a.safetensors"):
        (tmp_path / name).write_bytes(name.encode())
    names = ("config.json", "a.safetensors", "b.safetensors")
    lines = "".join(f"{name} {sha256_file(tmp_path / name)}\n" for name in names)
    digest = model_digest(tmp_path)
    assert digest == sha256_bytes(lines.encode())
    (tmp_path / "tokenizer.json").write_text("{}")
    assert model_digest(str(tmp_path)) == digest, "the tokenizer does not count"
    os.utime(tmp_path / "a.safetensors", ns=(1, 1))
    assert model_digest(tmp_path) == digest, "nor does the time of a change"
    (tmp_path / "a.safetensors").write_bytes(b"other")
    assert model_digest(tmp_path) != digest


def test_documents_are_of_one_kind_and_version(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"schema_version": 2, "kind": "table"}')
    for kind in (None, "table"):
        assert read_document(path, "table", 2, "Make it.", kind)["schema_version"] == 2
    with pytest.raises(UsageError, match=r"a\.json: .*version 2; 3 is read\. Make it\."):
        read_document(path, "table", 3, "Make it.")
    with pytest.raises(UsageError, match=r"a\.json: the file holds no plan"):
        read_document(path, "plan", 2, "Make it.", "plan")
    path.write_text("[]")
    with pytest.raises(UsageError, match="holds no table"):
        read_document(path, "table", 2, "Make it.")
