"""A compiled round that may fail when it first runs: the round as a graph then takes its place."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from specplan.backends.static.graph import RoundGraph
from specplan.backends.static.session import Program
from specplan.ir.errors import SpecplanError


class FirstTried:
    """A compiled round, or the round as a graph if the first run of the compiled one fails.

    Args:
        program: the compiled round.
        graph: the same round, eagerly.
        fail: told of the error.
    """

    def __init__(
        self, program: Program, graph: RoundGraph, fail: Callable[[Exception], None]
    ) -> None:
        self._program = program
        self._graph = graph
        self._fail = fail
        self._ran = False

    def __call__(self, *tensors: Tensor) -> Tensor:
        """Run the round.

        A run that failed halfway has written to slots that the same round writes again, and to
        what goes from round to round, which is put back.
        """
        if self._ran:
            return self._program(*tensors)
        first = len(tensors) - sum(len(parts) for _, parts in self._graph.interface.values)
        kept = [tensor.clone() for tensor in tensors[first:]]
        self._ran = True
        try:
            return self._program(*tensors)
        except SpecplanError:
            raise
        except Exception as error:  # whatever a runtime raises
            self._fail(error)
        for tensor, value in zip(tensors[first:], kept, strict=True):
            tensor.copy_(value)
        self._program = self._graph
        return self._graph(*tensors)  # type: ignore[no-any-return]
