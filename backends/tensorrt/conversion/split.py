"""Which ops of a round torch-tensorrt runs in engines, and which it leaves to torch.

The round is decomposed as torch-tensorrt would, each op is looked up in its registry, and torch's
own partitioner (`torch.fx.passes.infra.partitioner`, which its global partitioner is built on)
groups them. Runs without torch-tensorrt, TensorRT and a GPU.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase
from torch.fx.traceback import preserve_node_meta

from specplan.backends.static.traced.round_run import PLAN_OP
from specplan.backends.tensorrt.conversion.conditions import CONDITIONS, value_of
from specplan.backends.tensorrt.conversion.decompositions import decompositions
from specplan.backends.tensorrt.conversion.registry import Registry, registry_of
from specplan.backends.tensorrt.conversion.settings import LEAST_OPS

_GETITEM = "_operator.getitem"
_REMOVED = frozenset(
    {
        "aten._assert_tensor_metadata.default", "aten._assert_scalar.default",
        "aten._assert_async.msg", "aten.detach.default",
    }
)  # fmt: skip
"""Taken out by passes before ops are looked up."""
_REWRITTEN = frozenset({"aten._fused_rms_norm.default"})
"""Made of ops that are all converted by a pass before they are looked up."""


@dataclass(frozen=True, slots=True)
class Placed:
    """One op of a decomposed round.

    Attributes:
        op: as graphs name it.
        source: the op of the plan that it comes from; empty where it is not known.
        reason: why it stays in torch; empty in an engine.
        kind: `converter`, `evaluator`, or `torch`.
    """

    op: str
    source: str
    reason: str
    kind: str


@dataclass(frozen=True)
class Split:
    """A round, divided between engines and torch.

    Attributes:
        version: of torch-tensorrt.
        placed: every op, in order.
        engines: how many ops each engine has, in order.
        small: ops that are converted, but stay in torch: their group is too small for an engine.
    """

    version: str
    placed: tuple[Placed, ...]
    engines: tuple[int, ...]
    small: int

    @property
    def whole(self) -> bool:
        """The round is one engine, and nothing else."""
        return len(self.engines) == 1 and not self.small and not any(self.in_torch())

    def in_torch(self) -> Iterator[Placed]:
        """Ops without a converter, in order."""
        return (one for one in self.placed if one.kind == "torch")

    def rows(self) -> list[tuple[str, str, str, int]]:
        """Op, reason, source and number of those without a converter, the most frequent first."""
        counts = Counter((one.op, one.reason, one.source) for one in self.in_torch())
        return [(*key, count) for key, count in counts.most_common()]

    def words(self) -> str:
        """One line: engines, ops in them, ops in torch."""
        inside, kinds = sum(self.engines), len({one.op for one in self.in_torch()})
        engines = f"{len(self.engines)} engine{'s' * (len(self.engines) != 1)}"
        outside = len(self.placed) - inside
        return f"{engines} with {inside} ops; {outside} ops in torch ({kinds} without a converter)"


def split_round(program: ExportedProgram, version: str = torch.__version__) -> Split:
    """Divide an exported round as torch-tensorrt would.

    Args:
        program: a round without effects (`static/functional.py`), as `static/export.py` gives it.
        version: of torch-tensorrt; the one for this torch.

    Raises:
        MissingCapabilityError: what that version converts is not known.
    """
    registry = registry_of(version)
    return split_decomposed(decomposed(program, registry), registry)


def split_decomposed(lowered: ExportedProgram, registry: Registry) -> Split:
    """The same of a program that is decomposed."""
    module, support = lowered.graph_module, Support(registry)
    running = _running(module.graph, lowered.graph_signature.user_inputs)
    groups = [[node for node in group if node in running] for group in engines_of(module, support)]
    inside = {node for group in groups for node in group}
    placed = tuple(map(support.placed, running))
    small = sum(one.kind != "torch" for one in placed) - len(inside)
    return Split(registry.version, placed, tuple(map(len, groups)), small)


def engines_of(module: fx.GraphModule, support: Support) -> list[list[fx.Node]]:
    """The ops of each engine, by torch's partitioner; groups that are too small are left out."""
    quiet = logging.getLogger("torch.fx.passes.infra.partitioner")
    before, quiet.level = quiet.level, logging.ERROR
    try:
        partitioner = CapabilityBasedPartitioner(module, support, allows_single_node_partition=True)
        groups = [list(group.nodes) for group in partitioner.propose_partitions()]
    finally:
        quiet.level = before
    return [group for group in groups if sum(map(_counts, group)) >= LEAST_OPS]


def _counts(node: fx.Node) -> bool:
    return node.op == "call_function" and op_name(node) != _GETITEM


def decomposed(program: ExportedProgram, registry: Registry) -> ExportedProgram:
    """A program in the ops that torch-tensorrt looks up, without those that it takes out."""
    with preserve_node_meta():  # which op of the plan each op comes from
        lowered: ExportedProgram = program.run_decompositions(decompositions(registry))
    graph = lowered.graph_module.graph
    for node in reversed(graph.nodes):
        if node.op == "call_function" and op_name(node) in _REMOVED and not node.users:
            graph.erase_node(node)
    graph.eliminate_dead_code()
    return lowered


def source_of(node: fx.Node) -> str:
    """The op of the plan that an op comes from; empty where it does not say."""
    return str((node.meta.get("custom") or {}).get(PLAN_OP, ""))


def _running(graph: fx.Graph, inputs: Collection[Any]) -> dict[fx.Node, None]:
    """Ops that run, in order: what follows from constants alone is folded."""
    running: dict[fx.Node, None] = {}
    given = {node for node in graph.nodes if node.op == "placeholder" and node.name in inputs}
    for node in graph.nodes:
        if node.op == "call_function" and any(
            one in running or one in given for one in node.all_input_nodes
        ):
            running[node] = None
    return running


def op_name(node: fx.Node) -> str:
    """An op as the registry names it."""
    target: Any = node.target
    if getattr(target, "__module__", "") == "_operator":
        return f"_operator.{target.__name__}"
    return str(target)


class Support(OperatorSupportBase):
    """Looks nodes up in a registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._known: dict[fx.Node, Placed] = {}

    def is_node_supported(self, submodules: Mapping[str, Any], node: fx.Node) -> bool:
        """See torch's partitioner."""
        if node.op == "call_function":
            return self.placed(node).kind != "torch"
        return node.op == "get_attr"

    def placed(self, node: fx.Node) -> Placed:
        """Where a node runs, and why."""
        if node not in self._known:
            kind, reason = self._looked_up(node)
            self._known[node] = Placed(op_name(node), source_of(node), reason, kind)
        return self._known[node]

    def _looked_up(self, node: fx.Node) -> tuple[str, str]:
        name = op_name(node)
        if name == _GETITEM:
            parent = node.all_input_nodes[0]
            return self._looked_up(parent)[0], "of what has none"
        if name in _REWRITTEN:
            return "converter", ""
        rows = self._registry.converters.get(name.replace("_operator.", "operator."), ())
        reasons = []
        for row in rows:
            condition = CONDITIONS.get(row.condition)
            reason = f"unless {row.condition}" if condition is None else condition(node)
            if not reason and not row.dynamic and _is_dynamic(node):
                reason = "of sizes that are known only when it runs"
            if not reason:
                return ("evaluator" if row.evaluates else "converter"), ""
            reasons.append(reason)
        return "torch", "; ".join(dict.fromkeys(reasons)) or "no converter"


def _is_dynamic(node: fx.Node) -> bool:
    values = [value_of(one) for one in (node, *node.all_input_nodes)]
    tensors = [value for value in values if isinstance(value, Tensor)]
    return any(not isinstance(size, int) for one in tensors for size in one.shape)
