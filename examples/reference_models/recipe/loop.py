"""The training loop: schedule, progress, checkpoints, resuming.

Every random choice is drawn from a generator seeded by ``(seed, step)``, so the step number *is*
the state of the random generators and of the data order; a killed run resumes bit for bit.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from rich.console import Console
from torch import Tensor

from recipe import store
from recipe.weights import Optimiser


@dataclass(frozen=True)
class Schedule:
    """Warm-up, constant, linear decay to zero (WSD); the last steps read longer sequences."""

    steps: int
    warmup: int = 60
    decay_share: float = 0.35
    long_share: float = 0.10
    muon: float = 0.025
    adam: float = 0.008
    weight_decay: float = 0.02

    def rate(self, step: int) -> float:
        """The share of the peak learning rate at a step."""
        decay = max(1, int(self.steps * self.decay_share))
        return min(1.0, (step + 1) / self.warmup, (self.steps - step) / decay)

    def long(self, step: int) -> bool:
        """Whether the step reads sequences of full length."""
        return step >= self.steps * (1 - self.long_share)


class Task(Protocol):
    """What the loop trains: masters, and one step that fills their gradients."""

    masters: dict[str, Tensor]

    def gradients(
        self, step: int, schedule: Schedule
    ) -> tuple[dict[str, Tensor], dict[str, float]]:
        """Gradients of one step in the masters' layout, and figures to show."""

    def refresh(self) -> None:
        """Bring derived weights up to date after the masters changed."""

    def export(self) -> None:
        """Write what has been learnt so far as a usable checkpoint folder."""


@dataclass
class Run:
    """One resumable training run."""

    name: str
    checkpoint: Path
    schedule: Schedule
    save_every_s: float = 120.0
    export_every_s: float = 300.0
    show_every: int = 10
    stop_after: int | None = None
    """Leave (as if killed, but with a checkpoint) after this step; for tests."""
    minutes: float | None = None
    """Leave, with a checkpoint, after so many minutes."""
    identity: str = ""
    """What is trained on what; a checkpoint of something else is not gone on with."""
    console: Console | None = None

    def train(self, task: Task) -> dict[str, Any]:
        """Train to the end, from the last checkpoint if there is one; returns the final state."""
        optimiser = Optimiser(task.masters)
        state = self._resume(task, optimiser)
        started = saved = exported = time.monotonic()
        before = float(state["seconds"])
        while state["step"] < self.schedule.steps:
            step = int(state["step"])
            grads, figures = task.gradients(step, self.schedule)
            rate = self.schedule.rate(step)
            plan = self.schedule
            optimiser.step(grads, plan.muon * rate, plan.adam * rate, plan.weight_decay)
            task.refresh()
            now = time.monotonic()
            state.update(step=step + 1, seconds=before + now - started)
            self._show(state, figures)
            last = state["step"] in (self.schedule.steps, self.stop_after)
            last = last or (self.minutes is not None and now - started > 60 * self.minutes)
            if last or now - saved > self.save_every_s:
                self._save(task, optimiser, state)
                saved = time.monotonic()
            if last or now - exported > self.export_every_s:
                task.export()
                exported = time.monotonic()
            if last:
                break
        return state

    def _resume(self, task: Task, optimiser: Optimiser) -> dict[str, Any]:
        found = store.load_checkpoint(self.checkpoint)
        if found is None or found[1].get("identity", self.identity) != self.identity:
            return {"step": 0, "seconds": 0.0, "log": [], "identity": self.identity}
        tensors, state = found
        for name, tensor in task.masters.items():
            tensor.copy_(tensors[f"master.{name}"])
        for name, tensor in optimiser.state.items():
            tensor.copy_(tensors[name])
        optimiser.count = state["step"]
        task.refresh()
        return state

    def _save(self, task: Task, optimiser: Optimiser, state: dict[str, Any]) -> None:
        tensors = {f"master.{n}": t for n, t in task.masters.items()} | optimiser.state
        store.save_checkpoint(self.checkpoint, tensors, state)

    def _show(self, state: dict[str, Any], figures: dict[str, float]) -> None:
        step = state["step"]
        for name, value in figures.items():
            smooth = state.setdefault("smooth", {})
            smooth[name] = value + 0.96 * (smooth.get(name, value) - value)
        if step % self.show_every == 0 or step == self.schedule.steps:
            parts = "  ".join(f"{n} {v:.3f}" for n, v in sorted(state["smooth"].items()))
            pace = state["seconds"] / step
            left = (self.schedule.steps - step) * pace / 60
            text = f"{self.name} {step}/{self.schedule.steps}  {parts}  {left:.1f} min left"
            (self.console or Console()).print(text, highlight=False)
        if step % 50 == 0:
            state["log"].append([step, {n: round(v, 4) for n, v in state["smooth"].items()}])


def use_threads(threads: int) -> None:
    """Fix the number of threads (results are bit-equal only for the same number)."""
    torch.set_num_threads(threads)
