"""The stack program that torch's zip holds, written without pickle.

Sources: the opcodes of Python's `pickletools`, protocol 2, and the calls that
torch/serialization.py makes of them. Only dicts by text, lists, text, whole numbers and arrays of
64-bit integers can be written; reading is `specplan.cost_models.acceptance.torch_zip`.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray


def torch_program(value: Any) -> tuple[bytes, list[bytes]]:
    """The program that builds a value, and the raw bytes of its arrays by number."""
    storages: list[bytes] = []
    return b"\x80\x02" + _built(value, storages) + b".", storages


def _built(value: Any, storages: list[bytes]) -> bytes:
    if isinstance(value, dict):
        items = b"".join(_text(k) + _built(v, storages) for k, v in value.items())
        return b"}(" + items + b"u"
    if isinstance(value, list):
        return b"](" + b"".join(_built(item, storages) for item in value) + b"e"
    if isinstance(value, np.ndarray):
        return _tensor(value, storages)
    return _integer(value)


def _text(value: str) -> bytes:
    raw = value.encode("utf-8")
    return b"X" + struct.pack("<I", len(raw)) + raw


def _integer(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def _integers(values: tuple[int, ...]) -> bytes:
    return b"(" + b"".join(map(_integer, values)) + b"t"


def _tensor(value: NDArray[np.int64], storages: list[bytes]) -> bytes:
    """The call of torch._utils._rebuild_tensor_v2 on a storage named by its number."""
    number = str(len(storages))
    array = np.ascontiguousarray(value, dtype="<i8")
    storages.append(array.tobytes())
    storage = b"(" + _text("storage") + b"ctorch\nLongStorage\n" + _text(number) + _text("cpu")
    strides = tuple(step // array.itemsize for step in array.strides)
    arguments = (
        storage + _integer(array.size) + b"tQ",
        _integer(0),
        _integers(array.shape),
        _integers(strides),
        b"\x89",  # no gradient
        b"ccollections\nOrderedDict\n)R",  # no hooks
    )
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + b"".join(arguments) + b"tR"
