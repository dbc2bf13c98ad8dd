"""Logits of the nodes of a pass: what its model says of each, level by level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from specplan.backends.eager.op_runner import OpRunner
from specplan.backends.eager.passes.columns import Columns, Passed
from specplan.backends.eager.passes.pass_spec import PassSpec
from specplan.backends.ops.tensors.values import Logits, Nodes, part


def rows_of_pass(
    session: OpRunner,
    spec: PassSpec,
    call: Columns,
    passed: Passed,
    operands: Sequence[Nodes],
) -> list[Logits]:
    """Logits of the nodes of each operand, of everything that the model is to give."""
    if not spec.gives:
        return []
    with_root = any(nodes.root for nodes in operands) and not call.rooted
    first = call.texts - 1 if with_root else call.texts
    outputs = [_outputs(session, spec, passed, name, first) for name in spec.gives]
    logits, start = [], call.texts - first
    for nodes, inner in zip(operands, call.inner, strict=False):
        stop = start + inner.width
        for output in outputs:
            own, *deeper = (_rows_of(nodes, *each, start, stop, with_root) for each in output)
            deeper = [_counted(rows, spec, level) for level, rows in enumerate(deeper, 1)]
            logits.append(replace(own, sure=passed.sure, deeper=tuple(deeper)))
        start = stop
    return logits


def _outputs(
    session: OpRunner, spec: PassSpec, passed: Passed, name: str, first: int
) -> list[tuple[Tensor, Tensor]]:
    """One kind of rows of the columns from `first` on, and which there are, level by level."""
    model, steps = session.models[spec.model], passed.steps
    hidden, live = part(passed.hidden, first), part(passed.live, first)
    if name == "states":
        return [(hidden, live)]
    steps = None if steps is None else part(steps, first)
    ahead = passed.ahead if name == "logits" else ()
    if not spec.tells_ahead:
        ahead = ahead[: int(model.slots_first)]
    by_slots = [
        (model.rows(states[:, first:], name, steps), there[:, first:]) for states, there in ahead
    ]
    if model.slots_first and by_slots:
        return by_slots
    output = [(model.rows(hidden, name, steps), live), *by_slots]
    if not spec.tells_ahead or name != "logits":
        return output
    if not passed.ahead:
        heads = range(1, spec.most_levels)
        output += [(model.rows(hidden, name, steps, level), live) for level in heads]
    return output


def _counted(rows: Logits, spec: PassSpec, level: int) -> Logits:
    """Logits of a level, of those nodes that look so far ahead."""
    rows = replace(rows, sure=False)
    if isinstance(spec.levels, int):
        return rows
    far = torch.tensor([count > level for count in spec.levels], device=rows.live.device)
    return replace(rows, live=rows.live & far)


def _rows_of(
    nodes: Nodes, values: Tensor, live: Tensor, start: int, stop: int, with_root: bool
) -> Logits:
    """Logits of one operand, whose drafted nodes stand from `start` on; the root is in column 0."""
    if isinstance(nodes.at, range):
        if not nodes.root:
            return Logits(nodes.keys, part(values, start, stop), part(live, start, stop), nodes)
        if start == 1:
            return Logits(nodes.keys, part(values, 0, stop), part(live, 0, stop), nodes)
        values = torch.cat([values[:, :1], values[:, start:stop]], 1)
        there = torch.cat([live[:, :1], live[:, start:stop]], 1)
        return Logits(nodes.keys, values, there, nodes)
    if not nodes.root or not with_root:
        return Logits(nodes.keys, part(values, start, stop), part(live, start, stop), nodes)
    place = torch.arange(start, stop, device=values.device).where(nodes.at > 0, 0)
    rows = values.gather(1, place[:, :, None].expand(-1, -1, values.shape[2]))
    there = live.gather(1, place) & nodes.live
    return Logits(nodes.keys, rows, there, nodes)
