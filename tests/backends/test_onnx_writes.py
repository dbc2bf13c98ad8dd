"""Programs without ops that write in place: what they compute, and which are left as they are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from specplan.backends.onnx_export.writes import without_writes


class Writing(nn.Module):
    """Every kind of write that rounds have, and the casts and conjunctions beside them."""

    def forward(self, hidden: Tensor, places: Tensor) -> tuple[Tensor, ...]:
        first, second = torch.nn.functional.silu(hidden).mul_(2.0).chunk(2, -1)
        joined = (first + 1.0).add_(second)
        view = joined.view(-1)
        before = view.sum()
        joined.neg_()
        flags = (places > 1) & (places < 3) | (places == 7)
        marks = torch.zeros_like(places).scatter_(0, places.clamp(max=3), 5)
        again = flags.to(device=places.device)
        marks.scatter_(0, places.clamp(max=3), again.to(torch.int64))
        return joined.to(torch.float64), before, marks


class SeenThroughAView(nn.Module):
    """A column is written, and the whole is read."""

    def forward(self, hidden: Tensor, places: Tensor) -> tuple[Tensor, ...]:
        whole = hidden + 1.0
        whole[:, 0].fill_(0.0)
        return whole, places


class InputWritten(nn.Module):
    """What is given is written."""

    def forward(self, hidden: Tensor, places: Tensor) -> tuple[Tensor, ...]:
        return hidden.add_(1.0), places


class WrittenByName(nn.Module):
    """What is written is no first operand."""

    def forward(self, hidden: Tensor, places: Tensor) -> tuple[Tensor, ...]:
        whole = torch.empty_like(hidden)
        torch.add(hidden, hidden, out=whole)
        return whole, places


def given() -> tuple[Tensor, Tensor]:
    return torch.linspace(-1, 1, 16).view(2, 8), torch.tensor([0, 2, 7, 3])


def writes(program: Any) -> list[str]:
    schemas = (getattr(node.target, "_schema", None) for node in program.graph.nodes)
    return [schema.name for schema in schemas if schema is not None and schema.is_mutable]


def test_it_computes_the_same_and_is_not_traced_again() -> None:
    program = torch.export.export(Writing(), given(), strict=False)
    assert len(writes(program)) == 5
    expected = Writing()(*given())
    assert without_writes(program) and not writes(program)
    assert program.run_decompositions() is program
    for one, other in zip(program.module()(*given()), expected, strict=True):
        assert torch.equal(one, other)
    names = {str(node.target) for node in program.graph.nodes}
    assert not names & {"aten.__and__.Tensor", "aten.__or__.Tensor"}
    assert not any(name.startswith("aten.to.") for name in names)


@pytest.mark.parametrize("module", [SeenThroughAView(), InputWritten(), WrittenByName()])
def test_what_is_read_elsewhere_is_left_to_the_exporter(module: nn.Module) -> None:
    program = torch.export.export(module, given(), strict=False)
    before = str(program.graph)
    assert not without_writes(program) and str(program.graph) == before
    assert program.run_decompositions() is not program
