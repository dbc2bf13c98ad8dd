"""Files of torch read without pickle: against torch itself, and files that ask for more."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specplan.cost_models.acceptance.torch_zip import read_torch_zip
from specplan.ir.errors import UsageError


def equal(loaded: Any, saved: Any) -> bool:
    if hasattr(saved, "numpy"):
        array = saved.numpy()
        return bool(loaded.dtype == array.dtype and np.array_equal(loaded, array))
    if isinstance(saved, dict):
        return list(loaded) == list(saved) and all(equal(loaded[k], saved[k]) for k in saved)
    if isinstance(saved, list | tuple):
        same = type(loaded) is type(saved) and len(loaded) == len(saved)
        return same and all(equal(a, b) for a, b in zip(loaded, saved, strict=True))
    return bool(loaded == saved)


@pytest.mark.parametrize("protocol", [2, 4])
def test_what_torch_saves(tmp_path: Path, protocol: int) -> None:
    torch = pytest.importorskip("torch")
    matrix = torch.arange(24, dtype=torch.float64).reshape(4, 6)
    plain = {
        "roots": [[0], [1, 2]],
        "depth": (0, 1, 1),
        "none": None,
        "flags": [True, False],
        "big": 1 << 40,
        "real": 0.25,
        "name": "növel",
        "nothing": {},
    }
    for saved in (
        torch.tensor([0.0, 0.6, 0.4]),
        torch.tensor(3),
        torch.zeros(0, 3, dtype=torch.int32),
        {**plain, "mask": torch.eye(5, dtype=torch.int64)},
        [matrix[1:, ::2], matrix.t(), matrix[2], torch.tensor([1.5], dtype=torch.float16)],
        OrderedDict(weight=torch.tensor([True, False])),
    ):
        path = tmp_path / "saved.pt"
        torch.save(saved, path, pickle_protocol=protocol)
        assert equal(read_torch_zip(path), saved), saved


class Nasty:
    """Touches a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def archive(program: bytes, **files: bytes) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        file.writestr("archive/data.pkl", program)
        for name, content in files.items():
            file.writestr(f"archive/data/{name}", content)
    return data.getvalue()


def test_code_is_named_and_not_run(tmp_path: Path) -> None:
    touched, path = tmp_path / "touched", tmp_path / "saved.pt"
    for protocol in (0, 2, 4):
        program = pickle.dumps({"x": [Nasty(touched)]}, protocol=protocol)
        path.write_bytes(archive(program))
        with pytest.raises(UsageError, match=r"touch|getattr|opcode|call") as caught:
            read_torch_zip(path)
        assert str(path) in str(caught.value)
        assert caught.value.remedy
        assert not touched.exists()
    pickle.loads(program)
    assert touched.exists()  # the trap works


def test_other_kinds_of_files_are_named(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "saved.pt"
    torch.save(torch.ones(3), path, _use_new_zipfile_serialization=False)
    with pytest.raises(UsageError, match="legacy"):
        read_torch_zip(path)
    torch.save(torch.nn.Linear(2, 2), path)
    with pytest.raises(UsageError, match=r"Linear|opcode|call"):
        read_torch_zip(path)
    torch.save(torch.ones(3, dtype=torch.complex64), path)
    with pytest.raises(UsageError, match="ComplexFloatStorage"):
        read_torch_zip(path)
    with pytest.raises(UsageError, match="cannot read"):
        read_torch_zip(tmp_path / "none.pt")
    for data in (b"", b"not a zip", archive(b"")[:-5], archive(b""), archive(b"\x80\x02]"),
                 archive(b"\x80\x02a."), archive(b"\x80\x02K\x01K\x01R.")):  # fmt: skip
        path.write_bytes(data)
        with pytest.raises(UsageError):
            read_torch_zip(path)
    empty = io.BytesIO()
    with zipfile.ZipFile(empty, "w") as file:
        file.writestr("x", "y")
    path.write_bytes(empty.getvalue())
    with pytest.raises(UsageError, match=r"data\.pkl"):
        read_torch_zip(path)


def test_tensors_stay_within_their_storage(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "saved.pt"
    torch.save(torch.arange(7, dtype=torch.int32), path)
    with zipfile.ZipFile(path) as file:
        (name,) = (entry for entry in file.namelist() if entry.endswith("data.pkl"))
        program, content = file.read(name), file.read(name.replace("data.pkl", "data/0"))
    assert program.count(b"K\x07") == 2  # elements of the storage, and of the tensor
    longer = program.replace(b"K\x07", b"K\x09")
    path.write_bytes(archive(longer, **{"0": content}))
    with pytest.raises(UsageError, match="storage 0 has 7 of 9"):
        read_torch_zip(path)
    head, tail = program.rsplit(b"K\x07", 1)
    path.write_bytes(archive(head + b"K\x09" + tail, **{"0": content}))
    with pytest.raises(UsageError, match="beyond its storage"):
        read_torch_zip(path)


@given(st.data())
@settings(max_examples=150)
def test_broken_programs_are_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Bytes changed at random end in a value or a message, never in another exception."""
    program = bytearray(pickle.dumps({"a": [1, 2.5, ("x", None, True)], "b": {}}, protocol=2))
    for _ in range(data.draw(st.integers(1, 4))):
        program[data.draw(st.integers(0, len(program) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "fuzz.pt"
    path.write_bytes(archive(bytes(program)))
    try:
        read_torch_zip(path)
    except UsageError as error:
        assert error.remedy
