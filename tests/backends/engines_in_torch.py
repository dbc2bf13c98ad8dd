"""Rounds as the tensorrt backend makes and stores them, with engines that torch runs instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner

from specplan.backends.static.buckets import Bucket
from specplan.backends.static.graph import RoundGraph
from specplan.backends.static.packages import package_name
from specplan.backends.static.session import Program
from specplan.backends.tensorrt.backend import require_convertible
from specplan.backends.tensorrt.conversion.registry import registry_of
from specplan.backends.tensorrt.conversion.split import (
    Split,
    Support,
    decomposed,
    engines_of,
    split_decomposed,
)
from specplan.backends.tensorrt.lowering import Lowered, lower_round
from specplan.backends.tensorrt.package import program_of, read_package, write_package
from specplan.runtime.models.causal import CausalModel

REGISTRY = registry_of("2.13.0")


@dataclass
class InTorch:
    """Compiles rounds as the backend does: only what is in an engine is run by torch.

    Attributes:
        models: whose weights rounds read; engines hold none.
        folder: of the compiled rounds.
        lowered: rounds, in the order in which they were met.
        splits: how torch-tensorrt would divide them.
    """

    models: Mapping[str, CausalModel]
    folder: Path
    lowered: list[Lowered] = field(default_factory=list)
    splits: list[Split] = field(default_factory=list)

    def __call__(self, graph: RoundGraph, bucket: Bucket, tensors: Sequence[Tensor]) -> Program:
        made = lower_round(graph, tensors)
        require_convertible(made)
        self.lowered.append(made)
        program = decomposed(made.program, REGISTRY)
        self.splits.append(split_decomposed(program, REGISTRY))
        home = self.folder / package_name(graph, bucket)
        home.mkdir(parents=True)
        module, engines = divided(program)
        write_package(module, made, home)
        stored = read_package(home)
        assert len(stored.engines) == len(self.splits[-1].engines)
        return program_of(stored, engines, home, self.models, torch.device("cpu"))


def divided(program: ExportedProgram) -> tuple[Any, list[Any]]:
    """A round whose engines are submodules, and these."""
    module: Any = program.module(check_guards=False)
    support = Support(REGISTRY)
    wanted = [set(group) for group in engines_of(module, support)]
    partitioner = CapabilityBasedPartitioner(module, support, allows_single_node_partition=True)
    groups = [one for one in partitioner.propose_partitions() if set(one.nodes) in wanted]
    fused = partitioner.fuse_partitions(groups, prefix="_run_on_acc_")
    named = dict(fused.named_children())
    engines = [one for name, one in named.items() if name.startswith("_run_on_acc_")]
    for engine in engines:
        engine.serialized_engine = b"an engine"
        engine.input_binding_names = [
            node.name for node in engine.graph.find_nodes(op="placeholder")
        ]
        engine.output_binding_names = ["output"]
    return fused, engines
