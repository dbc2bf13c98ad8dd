"""Grammars of a batch: logits of nodes, masked along their paths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from threading import Lock

import numpy as np
import torch
from torch import Tensor

from specplan.backends.ops.tensors.values import Logits, Nodes
from specplan.runtime.grammar import Constraint
from specplan.runtime.requests import Request


class Grammars:
    """The constraint of each request that has one.

    All nodes of a forward are masked at once. Lanes that run side by side take turns, since a
    request has one parser.
    """

    def __init__(self, requests: Sequence[Request]) -> None:
        self._of = [None if one.grammar is None else Constraint(one.grammar) for one in requests]
        self._turn = Lock()

    @classmethod
    def of(cls, requests: Sequence[Request]) -> Grammars | None:
        """None where no request has a grammar."""
        return cls(requests) if any(one.grammar is not None for one in requests) else None

    @classmethod
    def exchanged(
        cls, before: Grammars | None, stay: Sequence[int], requests: Sequence[Request]
    ) -> Grammars | None:
        """Those of the rows that stay, as far as these have come, and of the requests behind."""
        grammars = cls.of(requests)
        if grammars is not None and before is not None:
            grammars._of[: len(stay)] = [before._of[row] for row in stay]
        return grammars

    def append(self, row: int, tokens: Sequence[int]) -> None:
        """A request's text has grown."""
        constraint = self._of[row]
        if constraint is not None:
            constraint.append(tokens)

    def of_pass(
        self, rows: Sequence[Logits], operands: Sequence[Nodes], gives: Sequence[str]
    ) -> list[Logits]:
        """What a pass gives of each operand, its logits under the grammars.

        Levels below the first are masked where they are read: only there are their nodes known.
        """
        masked = []
        for place, own in enumerate(rows):
            if gives[place % len(gives)] == "logits":
                values = self.mask(own.values, operands[place // len(gives)])
                own = replace(own, values=values, mask=self.mask if own.deeper else None)
            masked.append(own)
        return masked

    def mask(self, values: Tensor, nodes: Nodes) -> Tensor:
        """Logits `[B, W, V]` of nodes: those of impossible tokens are the least there is.

        A quarter of the least finite number, so that differences of masked logits stay numbers.
        """
        tree = nodes.tree
        flags = np.zeros(values.shape, dtype=np.bool_)
        facts = zip(
            nodes.columns.tolist(), tree.tokens.tolist(), tree.parents.tolist(), tree.keys.tolist(),
            strict=True,
        )  # fmt: skip
        with self._turn:
            for constraint, own, (wanted, *columns) in zip(self._of, flags, facts, strict=True):
                if constraint is not None:
                    constraint.fill(own, wanted, *columns)
        ruled_out = torch.from_numpy(flags).to(values.device)
        return values.masked_fill(ruled_out, torch.finfo(values.dtype).min / 4)
