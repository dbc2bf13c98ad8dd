"""The draft: one wide layer, distilled from the target.

Wide and shallow because a draft's step is bound by its depth, not by its width (arXiv 2402.01528).
It first learns the text itself, which needs no target and is cheap, then the target's next-token
distribution on the same kind of text (forward KL, Zhou et al., "DistillSpec", 2023, arXiv
2310.08461), with extra weight on the target's first choice, which is what greedy decoding accepts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from recipe import data, nets, weights
from recipe.corpus import hash_file
from recipe.loop import Schedule
from recipe.nets import CHUNK, Shape
from recipe.stages import Plan, load_data, record, run_of

TEXT_SHARE = 0.65
"""Share of the steps that learn from the text; the rest learn from the target."""
FIRST_CHOICE = 0.3
"""Share of the distillation goal that is the target's first choice alone."""


class _Distil(torch.autograd.Function):
    """Cross entropy against the target's softened first choice; gradients formed in chunks."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, head: Tensor, taught: Tensor, tutor: Tensor) -> Tensor:
        count = hidden.shape[0]
        d_hidden = torch.empty_like(hidden)
        d_head = torch.zeros(head.shape, dtype=torch.float32)
        total, same = torch.zeros(()), torch.zeros(())
        for s in range(0, count, CHUNK):
            part = hidden[s : s + CHUNK]
            goal = torch.softmax((taught[s : s + CHUNK] @ tutor.t()).float(), -1)
            top = goal.argmax(-1, keepdim=True)
            goal.mul_(1 - FIRST_CHOICE)
            goal.scatter_add_(1, top, torch.full(top.shape, FIRST_CHOICE))
            logits = torch.log_softmax((part @ head.t()).float(), -1)
            total -= (goal * logits).sum()
            same += (logits.argmax(-1, keepdim=True) == top).sum()
            grad = logits.exp_().sub_(goal).div_(count).to(hidden.dtype)
            d_hidden[s : s + CHUNK] = grad @ head
            d_head += grad.t() @ part
        ctx.save_for_backward(d_hidden, d_head.to(head.dtype))
        return torch.stack((total, same)) / count

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, Tensor, None, None]:
        d_hidden, d_head = ctx.saved_tensors
        return d_hidden * grads[0][0], d_head * grads[0][0], None, None


def distil_loss(hidden: Tensor, head: Tensor, taught: Tensor, tutor: Tensor) -> Tensor:
    """``[loss, agreement]`` of a draft's normed states against a target's normed states."""
    flat, other = hidden.reshape(-1, hidden.shape[-1]), taught.reshape(-1, taught.shape[-1])
    out: Tensor = _Distil.apply(flat, head, other, tutor)  # type: ignore[no-untyped-call]
    return out


def initial(shape: Shape, embed: Tensor, seed: int) -> dict[str, Tensor]:
    """Fresh draft weights whose embedding begins with the target's (scaled down), if as wide."""
    masters = weights.initial(shape, seed + 1)
    width = min(shape.hidden, embed.shape[1])
    masters["embed"][:, :width] = embed[:, :width] * (0.02 / embed.square().mean().sqrt())
    return masters


@dataclass
class DraftTask:
    """Learning the text, then the target."""

    shape: Shape
    tutor_shape: Shape
    tutor: dict[str, Tensor]
    masters: dict[str, Tensor]
    order: data.WindowOrder
    rows: int
    length: int
    write: Callable[[dict[str, Tensor]], None]
    text_share: float = TEXT_SHARE

    def __post_init__(self) -> None:
        self.refresh()

    def refresh(self) -> None:
        """Round the masters to the bf16 leaves the forward pass uses."""
        self.leaves = weights.make_leaves(self.masters, self.shape.layers)

    def export(self) -> None:
        """Write the present weights."""
        self.write(self.masters)

    def gradients(
        self, step: int, schedule: Schedule
    ) -> tuple[dict[str, Tensor], dict[str, float]]:
        """Loss and gradients of one step."""
        rows, length = self.rows, self.length
        if schedule.long(step):
            rows, length = rows // 2, length * 2
        tokens = self.order.batch(step * self.rows, rows, length)
        ids, leaves = tokens[:, :-1], self.leaves
        stream = nets.forward(ids, leaves, self.shape)[-1]
        hidden = nets.norm(stream, leaves["norm"])
        if step < schedule.steps * self.text_share:
            loss = nets.token_loss(hidden, leaves["embed"], tokens[:, 1:])
            figures = {"text": float(loss.detach())}
        else:
            with torch.no_grad():
                taught = nets.forward(ids, self.tutor, self.tutor_shape)[-1]
                taught = nets.norm(taught, self.tutor["norm"])
            both = distil_loss(hidden, leaves["embed"], taught, self.tutor["embed"])
            loss = both[0]
            figures = {"distil": float(both[0].detach()), "same": float(both[1].detach())}
        loss.backward()
        return weights.gather_grads(leaves, self.masters, self.shape.layers), figures


def task(
    plan: Plan,
    order: data.WindowOrder,
    start: Callable[[Tensor], dict[str, Tensor]],
    text_share: float = TEXT_SHARE,
) -> tuple[DraftTask, str]:
    """The draft learning from the exported target, and what names this target.

    ``start`` gives the draft's first weights, from the target's embedding.
    """
    source = plan.out / "target" / "model.safetensors"
    target = weights.from_hf_state(load_file(source), plan.target.layers)
    leaves = weights.make_leaves(target, plan.target.layers)
    tutor = {n: t.requires_grad_(False) for n, t in leaves.items()}

    def write(now: dict[str, Tensor]) -> None:
        weights.export(now, plan.draft, plan.out / "draft")

    masters, rows = start(target["embed"]), plan.rows
    shapes = plan.draft, plan.target
    made = DraftTask(*shapes, tutor, masters, order, rows, plan.length, write, text_share)
    return made, f"target {hash_file(source)}"


def stage(plan: Plan) -> None:
    """Train the draft and export it."""
    _, streams = load_data(plan)
    order = data.WindowOrder(streams, plan.length, plan.seed + 1, plan.draft_steps * plan.rows)
    made, basis = task(plan, order, lambda embed: initial(plan.draft, embed, plan.seed))
    record(plan, "draft", run_of(plan, "draft", plan.draft_steps, basis).train(made))
