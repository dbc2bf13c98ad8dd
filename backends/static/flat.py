"""Rounds as flat programs of tensor ops: nothing to compile, and no Python of ours in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram, export

from specplan.backends.static.buckets import Bucket
from specplan.backends.static.graph import RoundGraph
from specplan.backends.static.interface import free_sizes
from specplan.backends.static.rewrites.folding import fold
from specplan.backends.static.rewrites.layer_ops import with_layer_kernels
from specplan.backends.static.session import Program


def exported(module: nn.Module, tensors: Sequence[Tensor]) -> ExportedProgram:
    """A module of a round's tensors as `torch.export` traces it, free in the slots attended to."""
    with torch.no_grad():
        sizes = (free_sizes(tensors),)
        program = export(module, tuple(tensors), dynamic_shapes=sizes, strict=False)
    fold(program)
    return program


def flat_program(graph: RoundGraph, bucket: Bucket, tensors: Sequence[Tensor]) -> Program:
    """A round traced for a bucket's tensors; its constants are tensors, as captures want them."""
    flat = exported(graph, tensors).module()
    with_layer_kernels(flat, graph.fused.layers)
    return cast(Program, flat)
