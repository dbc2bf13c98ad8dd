"""Lowerings of ops are found by place, and tell nothing of requests to Python."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from specplan.backends.eager.session import EagerSession
from specplan.backends.ops import lowerings
from specplan.backends.ops.accept import accept
from specplan.backends.ops.grow import grow
from specplan.backends.ops.pick import pick
from specplan.backends.ops.prune import prune
from specplan.backends.ops.root import first_tree
from specplan.backends.ops.tensors.values import Logits
from specplan.ir.ops import OPS, Accept, Grow, Pick, Prune
from specplan.ir.types.value_types import NodesType, TreeType
from specplan.ir.values import Value
from specplan.runtime.acceptance import RULES
from specplan.runtime.sampling import SamplingSettings

OF_HOSTS = {"emit", "refresh", "repeat", "segment", "uniform", "update"}
"""Ops that are arithmetic of the host, or touch texts, states and sources alone."""
GREEDY = SamplingSettings(torch.zeros(2), torch.zeros(2), torch.ones(2), True, False)


def test_every_op_runs_and_has_a_lowering_or_is_of_the_host() -> None:
    assert set(lowerings()) | OF_HOSTS == set(OPS)
    assert not set(lowerings()) & OF_HOSTS
    for keyword, lowering in lowerings().items():
        fields = {field.name for field in dataclasses.fields(OPS[keyword])}
        if not hasattr(EagerSession, f"run_{keyword}"):
            assert fields >= set(lowering.operands)
            assert all(hasattr(EagerSession, name) for name in lowering.asked)


class Round(torch.nn.Module):
    """Children of the root, the best two of them, and a verdict."""

    def forward(
        self, tokens: Tensor, keys: Tensor, drafted: Tensor, target: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Accepted tokens `[B, 2]`, and how many."""
        value = Value("x")
        tree = first_tree(tokens, keys, torch.float64)
        rows = Logits(tree.keys, drafted, tree.live, tree.everything)
        op = Grow(tree=value, at=value, logits=value, children=3)
        grown = grow(
            op, tree, tree.everything, rows, None, settings=GREEDY,
            kind=TreeType(nodes=3, depth=1, parents=(-1, -1, -1)),
        )  # fmt: skip
        two = NodesType(2, None, None, closed=True)
        best = pick(Pick(tree=value, of="all", best=2), grown, None, None, None, kind=two)
        kind = TreeType(nodes=2, depth=1, parents=None, chain=False)
        chosen = prune(Prune(tree=value, to=value), grown, best, kind=kind, reads={value: two})
        nodes = chosen.everything
        path = accept(
            Accept(tree=value, target=value), chosen, Logits(nodes.keys, target, nodes.live, nodes),
            None, None, settings=GREEDY, most=2, reads={value: kind},
            form=lambda rule: RULES[rule].accept_vectorised,
        )  # fmt: skip
        return path.tokens, path.counts


def test_lowerings_can_be_exported() -> None:
    torch.manual_seed(0)
    inputs = (
        torch.tensor([[3], [4]]), torch.tensor([[11], [12]]),
        torch.randn(2, 1, 7, dtype=torch.float64), torch.randn(2, 3, 7, dtype=torch.float64),
    )  # fmt: skip
    exported = torch.export.export(Round(), inputs).module()
    others = tuple(part.roll(1, 0) for part in inputs)
    for given in (inputs, others):
        for output, expected in zip(exported(*given), Round()(*given), strict=True):
            assert torch.equal(output, expected)
