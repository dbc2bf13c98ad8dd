"""Adam over the weights of a drafter, in float32 whatever their number type is."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from specplan.training.learning.learner import Learner

_FIELDS = ("step", "exp_avg", "exp_avg_sq")
_WIDE = (torch.float32, torch.float64)


class Adam:
    """Adam with the moments of EAGLE's training (SafeAILab/EAGLE) over the weights that learn.

    Weights in bfloat16 or float16 have copies in float32, which learn (Micikevicius et al. 2018,
    arXiv 1710.03740 section 3.1): a step of a usual learning rate is less than such a type tells
    apart, and would be lost. A group of weights learns at its `rate` times the learning rate; see
    `Learner.rates`.

    Args:
        learner: whose weights it changes.
    """

    def __init__(self, learner: Learner) -> None:
        self._weights: dict[str, Tensor] = {
            name: weight
            for name, weight in learner.module.named_parameters()
            if weight.requires_grad
        }
        self._learned = {
            name: weight if weight.dtype in _WIDE else weight.detach().float()
            for name, weight in self._weights.items()
        }
        groups: dict[float, list[Tensor]] = {}
        for name, weight in self._learned.items():
            rates = [rate for part, rate in learner.rates.items() if part in name]
            groups.setdefault(rates[0] if rates else 1.0, []).append(weight)
        self._adam = torch.optim.AdamW(
            [{"params": weights, "rate": rate} for rate, weights in groups.items()],
            betas=(0.9, 0.95), weight_decay=0.0, fused=True,
        )  # fmt: skip

    @property
    def gradients(self) -> list[Tensor]:
        """Those that there are, in the number type of the weights."""
        return [weight.grad for weight in self._weights.values() if weight.grad is not None]

    def forget(self) -> None:
        """Drop the gradients."""
        for weight in self._weights.values():
            weight.grad = None

    @torch.no_grad()
    def step(self, rate: float, clip: float) -> None:
        """Change the weights by their gradients.

        Args:
            rate: the learning rate.
            clip: largest norm of all gradients together.
        """
        for name, learned in self._learned.items():
            gradient = self._weights[name].grad
            learned.grad = None if gradient is None else gradient.to(learned.dtype)
        torch.nn.utils.clip_grad_norm_(list(self._learned.values()), clip)
        for group in self._adam.param_groups:
            group["lr"] = rate * group["rate"]
        self._adam.step()
        for name, learned in self._learned.items():
            if learned is not self._weights[name]:
                self._weights[name].copy_(learned)
                learned.grad = None

    def state(self) -> dict[str, Tensor]:
        """What a training goes on from, by name: moments, and copies of weights."""
        tensors: dict[str, Tensor] = {}
        for name, learned in self._learned.items():
            if learned is not self._weights[name]:
                tensors[name] = learned
            for field, value in self._adam.state.get(learned, {}).items():
                tensors[f"{name}:{field}"] = value.contiguous()
        return tensors

    @torch.no_grad()
    def resume(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from what `state` gave, with the weights of that time."""
        for name, learned in self._learned.items():
            if name in tensors:
                learned.copy_(tensors[name])
            if f"{name}:step" in tensors:
                self._adam.state[learned] = {
                    field: tensors[f"{name}:{field}"].to(learned.device) for field in _FIELDS
                }
