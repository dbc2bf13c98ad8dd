"""What the model card says, measured on held-out text."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

from recipe import nets, weights
from recipe.nets import Shape

ROWS = 8
CONTINUED = 48
PROMPT_TOKENS, NEW_TOKENS = 96, 96


@dataclass
class Net:
    """A checkpoint ready for forward passes."""

    shape: Shape
    leaves: dict[str, Tensor]

    @staticmethod
    def load(folder: Path, shape: Shape) -> Net:
        """Read the weights of a checkpoint folder."""
        masters = weights.from_hf_state(load_file(folder / "model.safetensors"), shape.layers)
        leaves = weights.make_leaves(masters, shape.layers)
        return Net(shape, {n: t.requires_grad_(False) for n, t in leaves.items()})

    def logits(self, stream: Tensor) -> Tensor:
        """Logits of a residual stream through final norm and head, in fp32."""
        return (nets.norm(stream, self.leaves["norm"]) @ self.leaves["embed"].t()).float()

    def streams(self, ids: Tensor) -> list[Tensor]:
        """The residual stream after every layer."""
        return nets.forward(ids, self.leaves, self.shape)


@torch.no_grad()
def on_text(target: Net, draft: Net, windows: Tensor) -> dict[str, Any]:
    """Losses, per-exit accuracy and agreement with the target over held-out windows."""
    depth = target.shape.layers
    right, agree = torch.zeros(depth), torch.zeros(depth)
    sums = dict.fromkeys(("loss", "draft_loss", "draft_right", "draft_same", "overlap"), 0.0)
    count = 0
    for rows in windows.split(ROWS):
        ids, goal = rows[:, :-1], rows[:, 1:]
        streams = target.streams(ids)
        final = torch.log_softmax(target.logits(streams[-1]), -1)
        first = final.argmax(-1)
        for i, stream in enumerate(streams):
            choice = first if i == depth - 1 else target.logits(stream).argmax(-1)
            right[i] += (choice == goal).sum()
            agree[i] += (choice == first).sum()
        other = torch.log_softmax(draft.logits(draft.streams(ids)[-1]), -1)
        choice = other.argmax(-1)
        sums["loss"] -= float(final.gather(-1, goal[..., None]).sum())
        sums["draft_loss"] -= float(other.gather(-1, goal[..., None]).sum())
        sums["draft_right"] += float((choice == goal).sum())
        sums["draft_same"] += float((choice == first).sum())
        sums["overlap"] += float(torch.minimum(final.exp(), other.exp()).sum())
        count += goal.numel()
    return {
        "tokens": count,
        **{name: value / count for name, value in sums.items()},
        "exit_right": (right / count).tolist(),
        "exit_same": (agree / count).tolist(),
    }


@torch.no_grad()
def on_own_text(model: Any, target: Net, draft: Net, prompts: Tensor) -> dict[str, Any]:
    """Agreement along the target's own greedy continuations of held-out prompts."""
    full = model.generate(
        prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=NEW_TOKENS, do_sample=False
    )
    begin = prompts.shape[1]
    streams = target.streams(full[:, :-1])
    goal = full[:, begin:]
    alive = (goal != 0).cumprod(-1).bool()

    def share(choice: Tensor) -> float:
        return float((choice[:, begin - 1 :] == goal)[alive].float().mean())

    return {
        "tokens": int(alive.sum()),
        "draft_same": share(draft.logits(draft.streams(full[:, :-1])[-1]).argmax(-1)),
        "exit_same": [share(target.logits(s).argmax(-1)) for s in streams],
    }


def prompt_batch(path: Path, tokenizer: Tokenizer) -> Tensor:
    """The first tokens of the bench half of a prompt file, all of one length."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    texts = [r["text"] for r in rows if r["split"] == "bench"][:CONTINUED]
    return torch.tensor([e.ids[:PROMPT_TOKENS] for e in tokenizer.encode_batch(texts)])


@torch.no_grad()
def step_times(models: dict[str, Any], context: int = 128, rounds: int = 200) -> dict[str, float]:
    """Seconds of one cached single-token step of each model, measured in turns on one thread.

    The shortest, on one thread: other work on the machine only ever adds time, and with
    more threads each operator waits for the slowest, which adds most to the deeper model.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    ids = torch.arange(context)[None] + 1
    caches = {n: m(ids, use_cache=True).past_key_values for n, m in models.items()}
    taken: dict[str, list[float]] = {n: [] for n in models}
    for _ in range(rounds):
        for name, model in models.items():
            begin = time.perf_counter()
            model(ids[:, :1], past_key_values=caches[name], use_cache=True)
            taken[name].append(time.perf_counter() - begin)
            caches[name].crop(-1)
    torch.set_num_threads(threads)
    return {n: min(t) for n, t in taken.items()}
