"""Rounds that call our kernels decode as the interpreter does; on a CPU the plain forms run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from specplan.backends.inductor.backend import InductorBackend
from specplan.backends.onnxruntime.backend import OnnxRuntimeBackend
from specplan.backends.static.executable import StaticExecutable
from specplan.backends.static.export import exported, flat_program, with_layer_kernels
from specplan.backends.static.fusing import NOTHING, fused_for
from specplan.backends.static.graph import RoundGraph
from specplan.runtime.generate import generate
from specplan.runtime.models.causal import CausalModel
from tests.backends.compiled_plans import PLANS, drawn_tree, requests_of
from tests.backends.dynamic_trees import dynamic_plan
from tests.backends.pairs import load_pair, plain, run, save_pair

ALL = {**PLANS, "drawn, no laws": (dynamic_plan(2, 2, 4, greedy=False), {"temperature": 0.7})}
OPS = {"specplan.tree_attention.default", "specplan.accept.default", "specplan.move_slots.default"}
OF_LAYERS = {"specplan.rms_norm.default", "specplan.gated_silu.default"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pair with heads that the kernels know."""
    folder = tmp_path_factory.mktemp("fusing")
    save_pair(folder, head_dim=64)
    return folder


@pytest.fixture(scope="module")
def models(folder: Path) -> dict[str, CausalModel]:
    return load_pair(folder, dtype="float32")


@pytest.mark.parametrize("name", ALL)
def test_tokens_are_those_of_the_interpreter(name: str, models: dict[str, CausalModel]) -> None:
    plan, settings = ALL[name]
    requests = requests_of(**settings)
    executable = StaticExecutable(plan, models, fused_on={"cpu"})
    tokens = [item.tokens for item in generate(executable, requests).completions]
    assert tokens == run(plan, models, requests)


def test_an_exported_round_calls_the_ops(models: dict[str, CausalModel]) -> None:
    plan, requests = drawn_tree(1), requests_of(temperature=0.8)[:2]
    called: set[str] = set()

    def traced(graph: RoundGraph, _: object, tensors: Sequence[Tensor]) -> torch.nn.Module:
        program = exported(graph, tensors)
        called.update(str(node.target) for node in program.graph.nodes)
        return program.module()

    executable = StaticExecutable(plan, models, traced, fused_on={"cpu"})
    tokens = [item.tokens for item in generate(executable, requests).completions]
    assert called >= OPS
    assert tokens == run(plan, models, requests)


@pytest.mark.parametrize("fused", [True, False])
def test_a_flat_program_calls_kernels_between_its_products(
    fused: bool, models: dict[str, CausalModel]
) -> None:
    plan, requests = drawn_tree(1), requests_of(temperature=0.8)[:2]
    called: set[str] = set()

    def flat(graph: RoundGraph, bucket: Any, tensors: Sequence[Tensor]) -> Any:
        program: Any = flat_program(graph, bucket, tensors)
        called.update(str(node.target) for node in program.graph.nodes)
        return program

    executable = StaticExecutable(plan, models, flat, fused_on={"cpu"} if fused else ())
    tokens = [item.tokens for item in generate(executable, requests).completions]
    assert (called & OF_LAYERS) == (OF_LAYERS if fused else set())
    assert ("aten.silu.default" in called) != fused
    assert tokens == run(plan, models, requests)


class Between(torch.nn.Module):
    """What stands between the products of a layer."""

    def __init__(self, width: int, hidden: torch.dtype, weight: torch.dtype) -> None:
        super().__init__()
        self.given = torch.randn(3, width, dtype=hidden)
        self.weight = torch.randn(width, dtype=weight)

    def forward(self, given: Tensor) -> Tensor:
        normed = torch.nn.functional.rms_norm(given, self.weight.shape, self.weight, 1e-5)
        gate, passed = torch.cat((normed, normed), -1).chunk(2, dim=-1)
        return torch.nn.functional.silu(gate).mul_(passed)


@pytest.mark.parametrize(
    ("width", "hidden", "weight", "expected"),
    [
        (32, torch.float32, torch.float32, OF_LAYERS),
        (24, torch.float32, torch.float32, set()),
        (32, torch.float64, torch.float64, set()),
        (32, torch.bfloat16, torch.bfloat16, set()),
        (32, torch.float32, torch.bfloat16, {"specplan.gated_silu.default"}),
    ],
)
def test_kernels_stand_where_their_shapes_and_types_fit(
    width: int, hidden: torch.dtype, weight: torch.dtype, expected: set[str]
) -> None:
    module = Between(width, hidden, weight)
    program: Any = torch.export.export(module, (module.given,)).module()
    wanted = program(module.given)
    with_layer_kernels(program, {"float32"})
    assert {str(node.target) for node in program.graph.nodes} & OF_LAYERS == expected
    torch.testing.assert_close(program(module.given), wanted)


def test_what_is_fused_is_stated_by_device_and_model(
    models: dict[str, CausalModel], folder: Path, pair_folder: Path
) -> None:
    both, rules = {"target", "draft"}, {"greedy", "token", "recursive"}
    fused = fused_for(models, {"cpu"})
    assert (fused.attention, fused.moves, fused.rules) == (both, both, rules)
    assert fused_for(models, {"cuda"}) == NOTHING
    exact = fused_for(load_pair(folder, dtype="float64"), {"cpu"})
    assert (exact.attention, exact.moves, exact.layers) == (set(), set(), set())
    small = fused_for(load_pair(pair_folder, dtype="bfloat16"), {"cpu"})
    assert (small.attention, small.moves, small.layers) == (set(), both, {"bfloat16"})
    # on a CPU nothing is fused unless a test asks for it; ONNX has no form for the ops
    compiled = StaticExecutable(plain(), models, fused_on=InductorBackend().fused_on)
    assert compiled.fused == NOTHING and InductorBackend().fused_on == {"cuda"}
    assert not OnnxRuntimeBackend().fused_on
