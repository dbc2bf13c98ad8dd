"""Types of single values in rounds written for the purpose."""

from __future__ import annotations

import pytest

from specplan.ir import infer_round, parse_ops, parse_plan
from specplan.ir.plan import Round
from specplan.ir.types.infer import InferenceError, RoundTypes
from specplan.ir.types.value_types import NodesType, TreeType, Type
from specplan.ir.values import Value

HEAD = """plan p
model target
model draft
state @kv = cache target
state @dkv = cache draft
state @view = cache target view=@kv policy=retrieved budget=64
state @low = track target layer=8
state @chain = value tree(nodes=3, depth=3)
state @tree = value tree(nodes=4, depth=3, parents=[-1, 0, 0, 1])
state @drawn = value tree(nodes=2, depth=2, how=draw)
"""
DRAFTED = """%t0 = root
%q = forward draft %t0 cache=@dkv pending=2 levels=3
%t1 = grow %t0 at=%t0 logits=%q children=2
%q1 = forward draft %t1 cache=@dkv
%t2 = grow %t1 at=%t1 logits=%q1 children=[0, 2, 1]
"""


def infer(body: str) -> RoundTypes:
    """Types of a round of these ops."""
    return infer_round(parse_plan(HEAD), Round(name="r", ops=parse_ops(body)))


def kind_of(body: str, name: str) -> Type:
    """Type of one value."""
    return infer(body).types[Value(name)]


def tree_of(body: str, name: str) -> TreeType:
    """Type of one tree."""
    kind = kind_of(body, name)
    assert isinstance(kind, TreeType)
    return kind


def nodes_of(body: str, name: str) -> NodesType:
    """Type of some nodes."""
    kind = kind_of(body, name)
    assert isinstance(kind, NodesType)
    return kind


def refusal(body: str) -> str:
    """The rule that an inference breaks off with."""
    with pytest.raises(InferenceError) as caught:
        infer(body)
    assert caught.value.op is not None
    return caught.value.error.rule
