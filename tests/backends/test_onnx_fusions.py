"""Rounds in ONNX Runtime's own ops: each rewrite keeps the outputs, and whole rounds the tokens."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
onnx = pytest.importorskip("onnx")
onnx_ir = pytest.importorskip("onnx_ir")

import torch  # noqa: E402

from specplan.backends.onnx_export.fusions import FUSIONS, fuse  # noqa: E402
from specplan.backends.onnx_export.memory import AFTER, in_place, put_in_order  # noqa: E402
from specplan.backends.onnxruntime.backend import OnnxRuntimeBackend  # noqa: E402
from specplan.backends.onnxruntime.package import CODE, NAMES  # noqa: E402
from specplan.backends.onnxruntime.prompts import PromptProgram  # noqa: E402
from specplan.backends.onnxruntime.providers import own_ops  # noqa: E402
from specplan.backends.onnxruntime.values import run_bound  # noqa: E402
from specplan.backends.static.traced.joined_attention import joinable, joined_attention  # noqa: E402
from specplan.ir.errors import MissingCapabilityError  # noqa: E402
from specplan.ir.text.parser import parse_plan  # noqa: E402
from specplan.runtime.generate import generate  # noqa: E402
from tests.backends.compiled_plans import TREE, requests_of  # noqa: E402
from tests.backends.pairs import load_pair, run, save_pair  # noqa: E402

BLOCK = """<ir_version: 10, opset_import: ["" : 23]>
block (float[2, 8] x, float[2, 8] y) => (float[2, 8] sum, float[2, 8] gated)
  <float[8] scale = {1, 2, 3, 4, 5, 6, 7, 8}, int64[3] deep = {1, 2, 8}, int64[2] flat = {2, 8}>
{
  folded = Reshape(y, deep)
  again = Reshape(folded, flat)
  turned = Transpose<perm = [0, 1]>(x)
  sum = Add(turned, again)
  normed = RMSNormalization<axis = -1, epsilon = 0.001>(sum, scale)
  open = Sigmoid(normed)
  gated = Mul(normed, open)
}
"""
STATES = """<ir_version: 10, opset_import: ["" : 23]>
round (float[6, 4] states, float[2, 4] new, int64[2, 1] slots, int64[2] wanted)
  => (float[6, 4] after, float[2, 4] read)
{
  after = ScatterND(states, slots, new)
  read = Gather(states, wanted)
}
"""
CHANGED = {
    "reshape_back": ("Reshape", ""),
    "same_order": ("Transpose", ""),
    "skip_norm": ("RMSNormalization", "SkipSimplifiedLayerNormalization"),
    "gated_activation": ("Sigmoid", "QuickGelu"),
}
"""What goes, and what comes instead."""


def test_what_is_written_in_place_was_read_before() -> None:
    """Also where nothing says so, the graph has the writer first, and what is read is no number."""
    model = onnx_ir.serde.deserialize_model(onnx.parser.parse_model(STATES))
    model.graph.outputs[0].name = "states" + AFTER
    assert in_place(model.graph) == []
    put_in_order(model.graph)
    assert in_place(model.graph) == ["states"]
    proto = onnx_ir.serde.serialize_model(model)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    states = np.full((6, 4), np.nan, np.float32)
    states[3] = 3.0
    shared = onnxruntime.OrtValue.ortvalue_from_numpy(states)
    binding = session.io_binding()
    binding.bind_ortvalue_input("states", shared)
    binding.bind_cpu_input("new", np.ones((2, 4), np.float32))
    binding.bind_cpu_input("slots", np.array([[3], [4]]))
    binding.bind_cpu_input("wanted", np.array([3, 5]))
    binding.bind_ortvalue_output("states" + AFTER, shared)
    binding.bind_output("read")
    session.run_with_iobinding(binding)
    read = binding.copy_outputs_to_cpu()[1]
    assert (read[0] == 3.0).all() and np.isnan(read[1]).all()
    written = shared.numpy()
    assert (written[3:5] == 1.0).all() and np.isnan(written[[0, 1, 2, 5]]).all()


def block() -> Any:
    model = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(BLOCK))
    return onnx_ir.serde.deserialize_model(model)


def outputs(model: Any) -> list[Any]:
    draws = np.random.default_rng(0)
    given = {name: draws.standard_normal((2, 8)).astype(np.float32) for name in "xy"}
    code = onnx_ir.serde.serialize_model(model).SerializeToString()
    session = onnxruntime.InferenceSession(code, providers=["CPUExecutionProvider"])
    return list(session.run(None, given))


@pytest.mark.parametrize("name", sorted(FUSIONS))
def test_each_rewrite_keeps_the_outputs_and_is_refused_by_name(name: str) -> None:
    model, (gone, new) = block(), CHANGED[name]
    changed = fuse(model, own_ops(), {"reshape_back", name})
    assert changed[name] == 1
    kinds = Counter(node.op_type for node in model.graph)
    assert kinds[gone] == 0 and (not new or kinds[new] == 1)
    for before, after in zip(outputs(block()), outputs(model), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-6)
    if new:
        with pytest.raises(MissingCapabilityError, match=f"rewrite {name} needs the op {new}"):
            fuse(block(), (), [name])
        assert name not in fuse(block(), ())


@pytest.mark.parametrize(("batch", "columns", "tree"), [(1, 1, 0), (3, 1, 0), (1, 4, 0), (1, 4, 1)])
def test_joined_attention_is_grouped_query_attention(batch: int, columns: int, tree: int) -> None:
    """The torch form, which is the definition, and the op of ONNX Runtime that it becomes."""
    torch.manual_seed(batch + columns + tree)
    heads, kv_heads, size, slots, used = 4, 2, 16, 24, 14
    first = torch.tensor([5, 9, 2])[:batch]
    positions = first[:, None] + torch.tensor([0, 1, 1, 2])[:columns]
    angles = torch.arange(slots)[:, None] / 10 ** torch.linspace(0, 2, size // 2)
    seen = torch.rand(1, 1, columns, used) < 0.7
    seen[..., :5] = True
    bias = torch.where(seen, 0.0, torch.finfo().min) if tree else None
    given = {
        "joined": torch.randn(batch, columns, (heads + 2 * kv_heads) * size),
        "keys": torch.randn(batch, kv_heads, slots, size),
        "values": torch.randn(batch, kv_heads, slots, size),
        "ends": (first + columns - 1).int(),
        "total": torch.tensor(used).int(),
        "cos": angles.cos(),
        "sin": angles.sin(),
        "positions": positions,
    }
    expected = joined_attention(
        *(given[name] for name in ("joined", "keys", "values")),
        first,
        positions,
        torch.arange(used),
        given["cos"],
        given["sin"],
        bias,
        size**-0.5,
    )
    if bias is not None:
        given["bias"] = bias
    names = ["joined", "", "", *list(given)[1:]]
    results = outputs_of_attention(names, given, heads, kv_heads)
    for mine, theirs in zip(results, expected, strict=True):
        wanted = theirs.numpy()
        if mine.ndim == 4:  # what follows the text is nobody's
            least = int(first.min()) + columns
            mine, wanted = mine[:, :, :least], wanted[:, :, :least]
        np.testing.assert_allclose(mine, wanted, rtol=1e-4, atol=1e-5)


def outputs_of_attention(
    names: list[str], given: dict[str, torch.Tensor], heads: int, kv_heads: int
) -> list[Any]:
    results = ["mixed", "new_keys", "new_values"]
    node = onnx.helper.make_node(
        "GroupQueryAttention",
        names,
        results,
        domain="com.microsoft",
        num_heads=heads,
        kv_num_heads=kv_heads,
        do_rotary=1,
        scale=given["cos"].shape[1] ** -0.5 / 2**0.5,
    )
    kinds = {torch.float32: 1, torch.int32: 6, torch.int64: 7}
    inputs = [
        onnx.helper.make_tensor_value_info(name, kinds[one.dtype], list(one.shape))
        for name, one in given.items()
    ]
    made = [onnx.helper.make_tensor_value_info(name, 1, None) for name in results]
    sets = [onnx.helper.make_opsetid("", 23), onnx.helper.make_opsetid("com.microsoft", 1)]
    graph = onnx.helper.make_graph([node], "attention", inputs, made)
    code = onnx.helper.make_model(graph, opset_imports=sets, ir_version=10).SerializeToString()
    session = onnxruntime.InferenceSession(code, providers=["CPUExecutionProvider"])
    return list(session.run(None, {name: one.numpy() for name, one in given.items()}))


@pytest.mark.slow
def test_a_round_of_a_tree_is_fused_and_decodes_as_the_interpreter_does(tmp_path: Path) -> None:
    """One op attends in each layer of each pass, and all versions of a cache share its memory."""
    save_pair(tmp_path, layers=2, head_dim=16)
    models, plan = load_pair(tmp_path, dtype="float32"), parse_plan(TREE)
    assert joinable(models) == {"target", "draft"}
    requests = requests_of()
    requests[0] = requests[0].__class__(prompt_tokens=(3,), max_new_tokens=12)  # one token of text
    expected = run(plan, models, requests)
    executable = OnnxRuntimeBackend().compile(plan, models, tmp_path / "rounds")
    tokens = [generate(executable, [one]).completions[0].tokens for one in requests]
    assert tokens == expected
    (home,) = (tmp_path / "rounds").iterdir()
    graph = onnx.load(home / CODE, load_external_data=False).graph
    kinds = Counter(node.op_type for node in graph.node)
    # the target's two layers once, the draft's one layer twice
    assert kinds["GroupQueryAttention"] == 4 and kinds["Attention"] == 0
    assert kinds["SkipSimplifiedLayerNormalization"] == 3 + 1 + 1  # all norms but first and last
    in_place = set(json.loads((home / NAMES).read_text())["in_place"])
    caches = {f"kv.{part}.{i}" for part in ("keys", "values") for i in (0, 1)}
    assert in_place >= caches | {"dkv.keys.0", "dkv.values.0"}
    passed = {item.name for item in graph.output if item.name.startswith("dkv.keys.0.after")}
    assert passed == {"dkv.keys.0.after", "dkv.keys.0.after.0", "dkv.keys.0.after.1"}


def test_models_that_the_op_does_not_fit_stay_apart(pair_folder: Path) -> None:
    """Float64 has no such op, and small heads cannot be turned by it."""
    assert not joinable(load_pair(pair_folder))
    assert not joinable(load_pair(pair_folder, dtype="float32"))


@pytest.mark.parametrize("before", [False, True])
def test_rounds_run_without_denormal_numbers_and_leave_the_mode_as_it_was(
    before: bool, tmp_path: Path
) -> None:
    save_pair(tmp_path, layers=2, head_dim=16)
    prompted = load_pair(tmp_path, dtype="float32")["target"]
    smallest, one = 5e-324, 1.0
    flushed: list[bool] = []

    class Session:
        def run_with_iobinding(self, _: object) -> None:
            flushed.append(smallest * one == 0.0)
            raise RuntimeError("no kernel")

    torch.set_flush_denormal(before)
    try:
        with pytest.raises(RuntimeError, match="no kernel"):
            run_bound(Session(), None)
        assert flushed == [True]
        assert (smallest * one == 0.0) is before
        PromptProgram(prompted, 16)
        assert (smallest * one == 0.0) is before, "and a new session leaves it"
    finally:
        torch.set_flush_denormal(False)
