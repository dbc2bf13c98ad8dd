"""Sessions that share packed matrices give the numbers of sessions that pack their own."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
psutil = pytest.importorskip("psutil")

from onnx import TensorProto, helper  # noqa: E402

from specplan.backends.onnxruntime.packed_sessions import (  # noqa: E402
    PackedSession,
    PackedWeights,
    can_share,
)
from specplan.backends.onnxruntime.sessions import open_session  # noqa: E402
from specplan.backends.onnxruntime.values import bind, elsewhere, run_bound  # noqa: E402

if not can_share():
    pytest.skip("this ONNX Runtime brings no C library", allow_module_level=True)

ROWS, COLUMNS = 4096, 2048


def product(name: str = "weight") -> bytes:
    """`x` `[T, COLUMNS]` times a matrix that lies elsewhere, transposed."""
    matrix = elsewhere(name, torch.empty(ROWS, COLUMNS, device="meta"))
    ends = [
        helper.make_tensor_value_info(end, TensorProto.FLOAT, ["T", size])
        for end, size in (("x", COLUMNS), ("y", ROWS))
    ]
    node = helper.make_node("Gemm", ["x", name], ["y"], transB=1)
    graph = helper.make_graph([node], "product", ends[:1], ends[1:], [matrix])
    sets = [helper.make_opsetid("", 21)]
    code: bytes = helper.make_model(graph, opset_imports=sets, ir_version=10).SerializeToString()
    return code


def of(session: Any, inputs: Any) -> Any:
    """The product by a session."""
    binding, output = session.io_binding(), torch.empty(len(inputs), ROWS)
    bind(binding.bind_input, "x", inputs)
    bind(binding.bind_output, "y", output)
    run_bound(session, binding)
    return output


def test_a_matrix_is_packed_once_for_all_sessions() -> None:
    weight = torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(0))
    inputs = torch.randn(5, COLUMNS, generator=torch.Generator().manual_seed(1))
    expected = of(open_session(product(), {"weight": weight}), inputs)
    torch.testing.assert_close(expected, inputs @ weight.T, rtol=1e-4, atol=1e-3)
    gc.collect()
    size, packed, grown, sessions = 4 * ROWS * COLUMNS, PackedWeights(), [], []
    for name in ("weight", "weight", "other"):
        before = psutil.Process().memory_info().rss
        sessions.append(open_session(product(name), {name: weight}, packed=packed))
        grown.append(psutil.Process().memory_info().rss - before)
    assert max(grown[1:]) < size / 4, "the second has the copy of the first, under any name"
    del packed, weight
    gc.collect()
    assert all(of(session, inputs).equal(expected) for session in sessions)
    assert isinstance(sessions[0], PackedSession)
    (output,) = sessions[0].get_outputs()
    assert (output.name, output.shape, output.type) == ("y", (-1, ROWS), "tensor(float)")
    assert [one.name for one in sessions[0].get_inputs()] == ["x"]


def test_errors_are_those_of_the_python_package(tmp_path: Path) -> None:
    path = tmp_path / "damaged.onnx"
    path.write_bytes(product()[:40])
    for packed in (None, PackedWeights()):
        with pytest.raises(Exception, match=r"[Pp]rotobuf") as error:
            open_session(str(path), packed=packed)
        assert type(error.value).__name__ == "InvalidProtobuf"
        session = open_session(product(), {"weight": torch.zeros(ROWS, COLUMNS)}, packed=packed)
        with pytest.raises(Exception, match="invalid dimensions"):
            of(session, torch.zeros(2, 3))
