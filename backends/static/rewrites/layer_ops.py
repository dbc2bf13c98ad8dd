"""Norms and gated activations of a flat program as kernels of ours; compilers fuse them anyway."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor, fx
from torch.fx.subgraph_rewriter import replace_pattern_with_filters

from specplan.backends.kernels import ops  # noqa: F401  (registers them)

_ATEN, _OURS = torch.ops.aten, torch.ops.specplan
_MULTIPLE = 16
"""Of which a row's entries must be a multiple, so that rows begin where wide loads may."""


def with_layer_kernels(program: fx.GraphModule, dtypes: Collection[str]) -> None:
    """Put kernels into a traced program, in place.

    Args:
        program: as `torch.export` gives it.
        dtypes: number types that there are kernels for, as torch names them.
    """
    if not dtypes:
        return

    def served(node: fx.Node) -> bool:
        value = node.meta["val"]
        fits = value.shape[-1] % _MULTIPLE == 0
        return fits and str(value.dtype).removeprefix("torch.") in dtypes

    for node in program.graph.nodes:
        if node.target is _ATEN.rms_norm.default and len(node.args) == 4 and served(node):
            hidden, shape, weight, epsilon = node.args
            known = len(shape) == 1 and weight is not None and epsilon is not None
            if known and weight.meta["val"].dtype == node.meta["val"].dtype:
                node.target, node.args = _OURS.rms_norm.default, (hidden, weight, epsilon)
    replace_pattern_with_filters(
        program, _gated, _gated_by_kernel, [lambda match, *_: served(match.returning_nodes[0])]
    )
    program.recompile()


def _gated(joined: Tensor) -> Tensor:
    """As `RotaryLayer` traces it."""
    halves = _ATEN.chunk.default(joined, 2, -1)
    return _ATEN.mul_.Tensor(_ATEN.silu.default(halves[0]), halves[1])  # type: ignore[no-any-return]


def _gated_by_kernel(joined: Tensor) -> Tensor:
    return _OURS.gated_silu.default(joined)  # type: ignore[no-any-return]
