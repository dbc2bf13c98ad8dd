"""Our own kernels give what is defined, and the same bits in rounds of any size."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import ModelProto, TensorProto, helper  # noqa: E402

from specplan.backends.eager.backend import EagerBackend  # noqa: E402
from specplan.backends.onnxruntime import packed_sessions  # noqa: E402
from specplan.backends.onnxruntime.backend import OnnxRuntimeBackend  # noqa: E402
from specplan.backends.onnxruntime.cpu_kernels import building  # noqa: E402
from specplan.backends.onnxruntime.cpu_kernels.rewriting import (  # noqa: E402
    Tiles,
    with_own_kernels,
)
from specplan.backends.onnxruntime.packed_sessions import PackedWeights, can_share  # noqa: E402
from specplan.backends.onnxruntime.sessions import open_session  # noqa: E402
from specplan.backends.onnxruntime.values import bind, elsewhere, run_bound  # noqa: E402
from specplan.backends.static.buckets import Bucket  # noqa: E402
from specplan.backends.static.identity import named_weights  # noqa: E402
from specplan.measure.device.probes import plain_plan  # noqa: E402
from specplan.runtime.generate import generate  # noqa: E402
from specplan.runtime.models.loading import load_model  # noqa: E402
from specplan.runtime.models.quantized import QuantizedMatrix, linear, quantize  # noqa: E402
from specplan.runtime.requests import Request  # noqa: E402

if not can_share() or building.kernels() is None:
    pytest.skip("no AVX-512 VNNI, or no C++ compiler", allow_module_level=True)

DRAFT = Path(__file__).parents[2] / "examples/reference_models/draft"
KINDS = {
    "bfloat16": "StoredBfloat16", "float16": "StoredFloat16", "Q8_0": "Blocks", "Q4_0": "Blocks"
}  # fmt: skip
"""Ops by the number format of a checkpoint."""
ROWS = (1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 17, 40)


def matrix_of(form: str, rows: int, columns: int) -> Any:
    draws = torch.Generator().manual_seed(rows)
    weight = torch.randn(rows, columns, generator=draws)
    weight[:2] *= 1e-6  # in float16 too small for a whole significand
    half = getattr(torch, form, torch.bfloat16)
    weight = weight.to(half).float()
    return quantize(weight, form) if form.startswith("Q") else weight


def times(
    inputs: Any, matrix: Any, *around: Any, bias: Any = None, rank: int = 2
) -> tuple[bytes, dict[str, Any]]:
    """A graph of a product `h` of `x` or `x.2` by a matrix, with nodes around it; its weights."""
    given = "x.2" if any("x.2" in node.output for node in around) else "x"
    if isinstance(matrix, QuantizedMatrix):
        weights = {"codes": matrix.codes, "scales": matrix.scales}
        bits = 8 if matrix.codes.shape[2] == 32 else 4
        options = dict(N=matrix.shape[0], K=matrix.shape[1], bits=bits, block_size=32)
        node = helper.make_node(
            "MatMulNBits", [given, *weights], ["h"], domain="com.microsoft", accuracy_level=4,
            **options,
        )  # fmt: skip
    else:
        weights = {"matrix": matrix} | ({} if bias is None else {"bias": bias})
        node = helper.make_node("Gemm", [given, *weights], ["h"], transB=1)
    floats, whole = TensorProto.FLOAT, TensorProto.INT64
    ends = [
        helper.make_tensor_value_info("x", floats, list(map(str, inputs.shape))),
        helper.make_tensor_value_info("y" if around else "h", floats, list("abc"[:rank])),
    ]
    sizes = [helper.make_tensor("flat", whole, [2], [-1, inputs.shape[-1]])]
    sizes.append(helper.make_tensor("deep", whole, [3], [1, -1, matrix.shape[0]]))
    before = [one for one in around if "x.2" in one.output]
    nodes = [*before, node, *(one for one in around if one not in before)]
    constants = [*sizes, *(elsewhere(*one) for one in weights.items())]
    graph = helper.make_graph(nodes, "product", ends[:1], ends[1:], constants)
    sets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=10).SerializeToString(), weights


def run(
    code: bytes, weights: dict[str, Any], inputs: Any, shape: tuple[int, ...], own: bool
) -> Any:
    session = open_session(code, weights, packed=PackedWeights() if own else None)
    binding, made = session.io_binding(), torch.full(shape, torch.nan)
    bind(binding.bind_input, "x", inputs)
    bind(binding.bind_output, session.get_outputs()[0].name, made)
    run_bound(session, binding)
    return made


def ops(code: bytes, weights: dict[str, Any]) -> Counter[str]:
    """Of the graph that a session opens."""
    rewritten, _ = with_own_kernels(code, weights, Tiles())
    return Counter(node.op_type for node in ModelProto.FromString(rewritten).graph.node)


@pytest.mark.parametrize("form", KINDS)
@pytest.mark.parametrize("shape", [(64, 256), (100, 96), (40, 32)], ids=str)
def test_a_row_gives_the_same_bits_whatever_is_beside_it(form: str, shape: tuple[int, int]) -> None:
    """Against products in float64; 100 and 40 columns fill no tile, 96 is no power of two."""
    matrix = matrix_of(form, *shape)
    inputs = torch.randn(max(ROWS), shape[1], generator=torch.Generator().manual_seed(1))
    inputs[0, :32] = 0.0
    code, weights = times(inputs, matrix)
    assert ops(code, weights) == {KINDS[form]: 1}
    stored = not isinstance(matrix, QuantizedMatrix)
    exact = inputs.double() @ matrix.double().T if stored else linear(inputs, matrix)
    alone = [run(code, weights, one[None], (1, shape[0]), True)[0] for one in inputs]
    assert (torch.stack(alone) - exact).abs().max() < 2e-6 * exact.abs().max()
    for rows in ROWS:
        together = run(code, weights, inputs[-rows:].contiguous(), (rows, shape[0]), True)
        assert torch.equal(together, torch.stack(alone[-rows:]))


@pytest.mark.parametrize("form", KINDS)
def test_a_product_takes_in_its_gate_and_reshapes(form: str) -> None:
    matrix, inputs = matrix_of(form, 96, 64), 3 * torch.randn(1, 5, 64)
    inputs[0, 0] *= 30  # gates far out
    split = helper.make_node("Split", ["h"], ["g", "u"], axis=-1, num_outputs=2)
    opened = helper.make_node("QuickGelu", ["g"], ["s"], domain="com.microsoft", alpha=1.0)
    gated = [split, opened, helper.make_node("Mul", ["s", "u"], ["y"])]
    flat = helper.make_node("Reshape", ["x", "flat"], ["x.2"])
    deep = helper.make_node("Reshape", ["h", "deep"], ["y"])
    for around, shape in (([flat, *gated], (5, 48)), ([flat, deep], (1, 5, 96))):
        code, weights = times(inputs, matrix, *around, rank=len(shape))
        assert sum(ops(code, weights).values()) == 1
        theirs = run(code, weights, inputs, shape, own=False)
        ours = run(code, weights, inputs, shape, own=True)
        assert (ours - theirs).abs().max() < 1e-5 * theirs.abs().max()


def test_what_others_read_stays_and_a_bias_is_added() -> None:
    matrix, inputs = matrix_of("bfloat16", 32, 64), torch.randn(3, 64)
    bias = torch.randn(32)
    code, weights = times(inputs, matrix, bias=bias)
    assert ops(code, weights) == {"StoredBfloat16": 1, "Add": 1}
    made = run(code, weights, inputs, (3, 32), own=True)
    torch.testing.assert_close(made, inputs @ matrix.T + bias, rtol=1e-5, atol=1e-5)
    split = helper.make_node("Split", ["h"], ["g", "u"], axis=-1, num_outputs=2)
    mixed = helper.make_node("Mul", ["g", "u"], ["y"])  # no gate
    code, weights = times(inputs, matrix, split, mixed)
    assert ops(code, weights) == {"StoredBfloat16": 1, "Split": 1, "Mul": 1}


@pytest.mark.parametrize("last", [1 + 2**-20, 1e30 * (1 + 2**-10), 2**-30 * (1 + 2**-10)])
def test_weights_of_more_bits_are_left_to_onnx_runtime(last: float) -> None:
    matrix, inputs = matrix_of("float16", 32, 64), torch.randn(3, 64)
    matrix[-1, -1] = last
    code, weights = times(inputs, matrix)
    assert ops(code, weights) == {"Gemm": 1}
    made = run(code, weights, inputs, (3, 32), own=True)
    torch.testing.assert_close(made, inputs @ matrix.T, rtol=1e-5, atol=1e-5)


def test_half_a_row_is_refused() -> None:
    matrix = matrix_of("bfloat16", 32, 64)
    code, weights = times(torch.randn(1, 64), matrix)
    with pytest.raises(Exception, match="no whole number of rows"):
        run(code, weights, torch.randn(1, 96), (1, 32), own=True)


@pytest.mark.parametrize("dtype", ["float32", "Q8_0"])
def test_a_model_runs_by_our_kernels_alone(dtype: str, tmp_path: Path) -> None:
    """The draft model of the reference pair: what it says is what the interpreter lets it say."""
    models = {"target": load_model(DRAFT, dtype=dtype)}
    request = Request(prompt_tokens=tuple(range(40, 60)), max_new_tokens=24, temperature=0.0)
    backend = OnnxRuntimeBackend()
    compiled = backend.compile(plain_plan(True), models, tmp_path, [Bucket(batch=1, text=64)])
    ours, theirs = (
        generate(one, [request]).completions[0].tokens
        for one in (compiled, EagerBackend().compile(plain_plan(True), models))
    )
    assert dtype != "float32" or ours == theirs
    (package,) = tmp_path.glob("*/round.onnx")
    there = ops(package.read_bytes(), named_weights(models))
    layers = models["target"].num_layers
    assert there[KINDS["bfloat16" if dtype == "float32" else dtype]] == 4 * layers + 1
    assert there["Attend"] == layers
    assert not {"Gemm", "MatMulNBits", "Split", "QuickGelu", "GroupQueryAttention"} & there.keys()
    assert backend.version.endswith(building.digest())


def attention(bias: bool) -> bytes:
    """A graph of one attention op, as rounds have it."""
    floats, heads, groups, size, slots = TensorProto.FLOAT, 6, 2, 32, 45
    kinds = {"last": TensorProto.INT32, "total": TensorProto.INT32, "positions": TensorProto.INT64}
    cache = ["b", groups, slots, size]
    shapes: dict[str, list[Any]] = {
        "x": ["b", "m", (heads + 2 * groups) * size], "keys": cache, "values": cache, "last": ["b"],
        "total": [], "cos": [64, size // 2], "sin": [64, size // 2], "positions": ["b", "m"],
    }  # fmt: skip
    if bias:
        shapes["bias"] = [1, 1, "m", "t"]
    ends = [
        helper.make_tensor_value_info(name, kinds.get(name, floats), shape)
        for name, shape in {**shapes, "y": ["b", "m", heads * size], "k": cache, "v": cache}.items()
    ]
    given = ["x", "", "", *(name for name in shapes if name != "x")]
    node = helper.make_node(
        "GroupQueryAttention", given, ["y", "k", "v"], domain="com.microsoft", num_heads=heads,
        kv_num_heads=groups, scale=size**-0.5, do_rotary=1,
    )  # fmt: skip
    graph = helper.make_graph([node], "attention", ends[:-3], ends[-3:])
    sets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=10).SerializeToString()


def attended(code: bytes, given: dict[str, Any], own: bool) -> tuple[Any, Any, Any]:
    """The result, and keys and values that were written where they are."""
    session = open_session(code, packed=PackedWeights() if own else None)
    given = given | {name: given[name].clone() for name in ("keys", "values")}
    made = torch.full((*given["x"].shape[:2], 6 * 32), torch.nan)
    binding = session.io_binding()
    for one in session.get_inputs():
        bind(binding.bind_input, one.name, given[one.name])
    for name, tensor in (("y", made), ("k", given["keys"]), ("v", given["values"])):
        bind(binding.bind_output, name, tensor)
    run_bound(session, binding)
    return made, given["keys"], given["values"]


@pytest.mark.parametrize(
    ("batch", "rows", "text"), [(1, 1, 45), (1, 2, 9), (1, 5, 31), (1, 17, 40), (3, 1, 20)]
)
@pytest.mark.parametrize("bias", [False, True], ids=["chain", "tree"])
def test_attention_is_that_of_onnx_runtime(batch: int, rows: int, text: int, bias: bool) -> None:
    """Also at the end of the cache, and for a node that sees but a part of what is before it."""
    draws = torch.Generator().manual_seed(rows)
    last = torch.tensor([text - 1 - number for number in range(batch)], dtype=torch.int32)
    angles = torch.rand(64, 16, generator=draws) * 6
    seen = torch.rand(1, 1, rows, text, generator=draws) > 0.3
    seen[..., 0] = True
    given = {
        "x": torch.randn(batch, rows, 10 * 32, generator=draws),
        "keys": torch.randn(batch, 2, 45, 32, generator=draws),
        "values": torch.randn(batch, 2, 45, 32, generator=draws),
        "last": last, "total": torch.tensor(text, dtype=torch.int32),
        "cos": angles.cos(), "sin": angles.sin(),
        "positions": torch.randint(0, 64, (batch, rows), generator=draws),
        "bias": torch.where(seen, 0.0, -torch.inf),
    }  # fmt: skip
    code = attention(bias)
    ours, theirs = attended(code, given, own=True), attended(code, given, own=False)
    assert ops(code, {}) == {"Attend": 1}
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=3e-6)
    given |= {"x": given["x"][:, -1:].contiguous(), "keys": ours[1], "values": ours[2]}
    given |= {"positions": given["positions"][:, -1:].contiguous()}
    given |= {"bias": given["bias"][:, :, -1:].contiguous()}
    assert torch.equal(attended(code, given, own=True)[0][:, 0], ours[0][:, -1])


def test_two_graphs_have_one_copy_of_a_matrix() -> None:
    matrix, tiles = matrix_of("Q4_0", 64, 64), Tiles()
    code, weights = times(torch.randn(1, 64), matrix)
    (_, first), (_, second) = (with_own_kernels(code, weights, tiles) for _ in range(2))
    assert first.keys() == {"codes.tiles", "scales.tiles"} == second.keys()
    assert all(first[name] is second[name] for name in first)


def test_without_a_compiler_onnx_runtime_multiplies(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    matrix, inputs = matrix_of("Q8_0", 64, 64), torch.randn(2, 64)
    monkeypatch.setattr(packed_sessions, "kernels", lambda: None)
    made = run(*times(inputs, matrix), inputs, (2, 64), own=True)
    torch.testing.assert_close(made, linear(inputs, matrix), rtol=1e-5, atol=1e-5)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for compiler in ("no-such-compiler", "false"):
        monkeypatch.setenv("CXX", compiler)
        building.digest.cache_clear()
        assert building.kernels.__wrapped__() is None
    building.digest.cache_clear()
    assert not [*(tmp_path / "specplan").glob("*")]
