"""The kernels as torch ops: their plain form, fake tensors, export, and errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._functorch.aot_autograd import aot_export_module
from torch._subclasses import FakeTensorMode
from torch.nn import functional

from specplan.backends.kernels import ops
from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.runtime.acceptance import RULES, DraftedTree
from tests.backends.kernels.cases import attention_case, tree_case

SHAPE = dict(batch=2, kv_heads=2, group=2, tokens=4, head_dim=16, slots=30, window=6)


@pytest.mark.parametrize("page", [0, 4])
def test_attention_sees_the_prefix_and_what_the_mask_says(page: int) -> None:
    query, keys, values, prefix, seen, pages, scale = attention_case(3, page=page, **SHAPE)
    output = ops.tree_attention(query, keys, values, prefix, seen, pages, scale)
    for row in range(2):
        if pages is None:
            own_keys, own_values = keys[row], values[row]
        else:
            own_keys, own_values = (
                torch.cat(list(it[pages[row].long()]), 1) for it in (keys, values)
            )
        for token in range(4):
            start = int(prefix[row])
            after = [start + w for w in range(6) if seen[row, token, w]]
            slots = [*range(start), *(slot for slot in after if slot >= 0)]
            wanted = torch.zeros(4, 1, 16)
            if slots:
                wanted = functional.scaled_dot_product_attention(
                    query[row, :, token : token + 1],
                    own_keys[:, slots].repeat_interleave(2, 0),
                    own_values[:, slots].repeat_interleave(2, 0),
                    scale=scale,
                )
            torch.testing.assert_close(output[row, :, token : token + 1], wanted)


def test_a_query_that_sees_nothing_gives_zeros() -> None:
    query, keys, values, _, seen, pages, scale = attention_case(4, **SHAPE)
    nothing = torch.zeros_like(seen)
    start = torch.zeros(2, dtype=torch.int64)
    output = ops.tree_attention(query, keys, values, start, nothing, pages, scale)
    assert torch.equal(output, torch.zeros_like(output))


@pytest.mark.parametrize("rule", ops.RULES)
@pytest.mark.parametrize("seed", range(5))
def test_accepting_is_the_rule(rule: str, seed: int) -> None:
    tree, target, uniforms = tree_case(seed, chain=rule == "token")
    wanted = RULES[rule].accept_reference(tree, target, uniforms)
    judged = ops.accept(rule, tree, target, uniforms)
    assert torch.equal(judged.accepted, wanted.accepted)
    assert torch.equal(judged.bonus, wanted.bonus)
    assert torch.equal(judged.path, wanted.path)


def test_a_rule_without_a_kernel_is_refused() -> None:
    tree, target, uniforms = tree_case(0, chain=True)
    with pytest.raises(MissingCapabilityError, match="'block' has no kernel"):
        ops.accept("block", tree, target, uniforms)


class Step(torch.nn.Module):
    """All ops, as a round has them."""

    def forward(
        self, case: list[Tensor], target: Tensor, tokens: Tensor, source: Tensor, live: Tensor
    ) -> tuple[Tensor, Tensor]:
        query, keys, values, prefix, seen = case
        mixed = ops.tree_attention(query, keys, values, prefix, seen, None, 0.25)
        judged = ops.accept("greedy", DraftedTree(tokens, (-1, 0, 0)), target)
        ops.move_slots([keys, values], source, source - 1, live)
        return mixed.sum() + keys[0, 0, 3, 0], judged.path


def step_arguments() -> tuple[Any, ...]:
    case = list(attention_case(5, **SHAPE)[:5])
    random = torch.Generator().manual_seed(0)
    target = torch.randn(2, 4, 9, generator=random)
    tokens = target[:, :3].argmax(-1)
    source = torch.tensor([[4, 7], [9, 3]])
    return case, target, tokens, source, torch.tensor([[True, True], [True, False]])


def copied(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(
        [one.clone() for one in item] if isinstance(item, list) else item.clone()
        for item in arguments
    )


def test_export_carries_the_ops() -> None:
    arguments = step_arguments()
    program = torch.export.export(Step(), copied(arguments), strict=False)
    called = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert {"specplan.tree_attention.default", "specplan.accept.default"} <= called
    assert "specplan.move_slots.default" in called
    for output, wanted in zip(
        program.module()(*copied(arguments)), Step()(*copied(arguments)), strict=True
    ):
        torch.testing.assert_close(output, wanted)


class Attend(torch.nn.Module):
    def forward(self, *case: Tensor) -> tuple[Tensor]:
        return (ops.tree_attention(*case, None, 0.25, 4),)


class CapabilityChecker(torch.nn.Module):
    def forward(self, target: Tensor, tokens: Tensor) -> tuple[Tensor]:
        return (ops.accept("greedy", DraftedTree(tokens, (-1, 0, 0)), target).path,)


def lowered(module: torch.nn.Module, arguments: Sequence[Any]) -> str:
    """The graph that Inductor is given."""
    graph, _ = aot_export_module(module, arguments, trace_joint=False)
    return str(graph.code)


def test_on_the_cpu_lowering_leaves_plain_torch() -> None:
    case, target, tokens, *_ = step_arguments()
    for module, arguments in ((Attend(), case), (CapabilityChecker(), (target, tokens))):
        code = lowered(module, arguments)
        assert "ops.aten" in code and "ops.specplan" not in code


def test_on_a_gpu_lowering_leaves_our_kernels() -> None:
    """Traced with tensors that only pretend: no GPU is needed."""
    pytest.importorskip("triton", reason="triton is not installed")
    with FakeTensorMode(allow_non_fake_inputs=True):
        case = tuple(
            torch.empty_strided(item.shape, item.stride(), dtype=item.dtype, device="cuda")
            for item in attention_case(6, **{**SHAPE, "head_dim": 64})[:5]
            if isinstance(item, Tensor)
        )
        program = torch.export.export(Attend(), case, strict=False)
        assert "specplan.tree_attention" in program.graph_module.code
        code = lowered(Attend(), case)
    assert code.count("triton_kernel_wrapper_functional(") == 2  # splits, and their combination
    assert "specplan.tree_attention" not in code


def test_shapes_that_do_not_fit_are_refused() -> None:
    query, keys, values, prefix, seen, pages, scale = attention_case(7, **SHAPE)
    with pytest.raises(UsageError, match="do not fit the queries"):
        ops.tree_attention(query, keys[..., :8], values, prefix, seen, pages, scale)
    with pytest.raises(UsageError, match="2 rows of queries and 1 of keys"):
        ops.tree_attention(query, keys[:1], values[:1], prefix, seen, pages, scale)
    with pytest.raises(UsageError, match=r"the mask \[2, 3, 6\] does not fit 4 queries"):
        ops.tree_attention(query, keys, values, prefix, seen[:, :3], pages, scale)
