"""A backend of rounds that compiles nothing: graphs run eagerly, or in error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from specplan.backends.onnxruntime.capabilities import CAPABILITIES
from specplan.backends.static.graph import RoundGraph
from specplan.backends.static.packages import RoundBackend
from specplan.backends.static.session import Program
from specplan.runtime.models.causal import CausalModel


class Fake(RoundBackend):
    """Keeps graphs in memory, each under a name that its package holds."""

    capabilities = CAPABILITIES
    off = 0.0
    error: Exception | None = None

    def __init__(self) -> None:
        self.graphs: list[RoundGraph] = []

    def available(self) -> str | None:
        return None

    def write(self, graph: RoundGraph, tensors: Sequence[Tensor], folder: Path) -> None:
        if self.error is not None:
            raise self.error
        (folder / "place").write_text(str(len(self.graphs)))
        self.graphs.append(graph)

    def load(self, folder: Path, models: Mapping[str, CausalModel]) -> Program:
        graph = self.graphs[int((folder / "place").read_text())]
        if type(graph) is RoundGraph or not self.off:
            return graph
        return lambda *tensors: graph(*tensors) + self.off  # judged logits
