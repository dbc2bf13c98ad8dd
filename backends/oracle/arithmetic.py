"""Arithmetic on logits `[V]` of one request, as `specplan.ir.world.World` asks for it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from specplan.ir.meaning import Node
from specplan.ir.tables.builtin import BUILTIN
from specplan.ir.values import Entry
from specplan.runtime import sampling
from specplan.runtime.laws import LAWS
from specplan.runtime.races import drawn_alike, exponentials
from specplan.runtime.requests import Request


class Arithmetic:
    """Distributions and draws under the sampling settings of a request."""

    def __init__(self, request: Request) -> None:
        self.settings = sampling.SamplingSettings.of([request])

    def probabilities(self, logits: Tensor) -> Tensor:
        """The distribution that the request's sampling settings make of logits, `[V]`."""
        return sampling.probabilities(logits[None, None], self.settings)[0, 0]

    def log_probability(self, logits: Tensor, token: int) -> float:
        """See `World.log_probability`."""
        return float(logits[token] - logits.logsumexp(-1))

    def likeliest(self, logits: Tensor, count: int) -> list[int]:
        """See `World.likeliest`."""
        tokens: list[int] = sampling.best(logits[None, None], count)[0, 0].tolist()
        return tokens

    def drawn(self, logits: Tensor, how: str, count: int, numbers: Sequence[float]) -> list[int]:
        """See `World.drawn`."""
        probs = self.probabilities(logits)
        if how == "draw":
            return [int(sampling.draw(probs, torch.tensor(u).double())) for u in numbers]
        given = torch.tensor(numbers, dtype=torch.float64)
        if how == "draw_distinct":
            tokens: list[int] = sampling.draw_distinct(probs[None, None], given[None, None])[
                0, 0
            ].tolist()
            return tokens
        raced: list[int] = drawn_alike(how, probs, given[0], count).tolist()
        return raced

    def perturbed(
        self, logits: Tensor, count: int, number: float, line: Sequence[Node]
    ) -> list[tuple[int, float]]:
        """See `World.perturbed`."""
        probs = self.probabilities(logits).double()
        above = 0.0
        for node in line:
            if node.drawn and node.logits is not None:
                above += float(self.probabilities(node.logits)[node.token].double().log())
        times = exponentials(torch.tensor(number, dtype=torch.float64), len(probs))
        noise = above + probs.log() - times.log()
        if line and line[0].drawn:  # the best child has the noise of its parent
            shift = math.exp(-line[0].noise) - torch.exp(-noise.max())
            noise = -torch.log((torch.exp(-noise) + shift).clamp(min=1e-300))
        best = noise.topk(min(count, int((probs > 0).sum()))).indices.tolist()
        return [(token, float(noise[token])) for token in best]

    def measured(self, kind: Entry, vector: Tensor, beside: Tensor | None = None) -> float:
        """See `World.measured`."""
        if kind.name == "saturation":
            assert beside is not None, "the verifier says so"
            one, other = vector.double(), beside.double()
            return float((one @ other) / (one.norm() * other.norm()).clamp(min=1e-30))
        if kind.name == "logistic":
            state = vector.double() / vector.double().square().mean().clamp(min=1e-30).sqrt()
            pairs = zip(state.tolist(), kind.items("weights"), strict=False)
            exponent = sum(x * w for x, w in pairs) + float(kind.get("bias", 0.0))  # type: ignore[arg-type]
            return 0.5 + 0.5 * math.tanh(0.5 * exponent)  # as 1 / (1 + exp(-x)), never too large
        if kind.name == "score":
            return float(vector[0])
        probs = vector.double().softmax(-1)
        if kind.name == "entropy":
            return float(-torch.where(probs > 0, probs * probs.log(), 0.0).sum())
        top = probs.topk(2).values
        return float(top[0] if kind.name == "top1" else top[0] - top[1])

    def mixed(self, law: Entry, logits: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
        """See `World.mixed`."""
        declared = BUILTIN.find("law", law.name)
        assert declared is not None
        shares = torch.tensor(weights, dtype=logits[0].dtype) if weights else None
        stacked, given = torch.stack(list(logits)), declared.arguments(law)
        mixed: Tensor = LAWS[law.name].combine(stacked, shares, **given)
        return mixed
