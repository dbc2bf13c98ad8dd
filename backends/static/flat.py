"""Rounds as flat programs of tensor ops: nothing to compile, and no Python of ours in them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.export import export

from specplan.backends.static.buckets import Bucket
from specplan.backends.static.graph import RoundGraph
from specplan.backends.static.interface import free_sizes
from specplan.backends.static.session import Program


def flat_program(graph: RoundGraph, bucket: Bucket, tensors: Sequence[Tensor]) -> Program:
    """A round traced for a bucket's tensors; its constants are tensors, as captures want them."""
    with torch.no_grad():
        sizes = (free_sizes(tensors),)
        program = export(graph, tuple(tensors), dynamic_shapes=sizes, strict=False)
    flat: Program = program.module()
    return flat
