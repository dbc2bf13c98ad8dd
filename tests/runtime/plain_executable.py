"""A small real executable: plain decoding of a tiny model, several tokens per round if asked."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specplan.ir.plan import Guard, Plan, Round, Schedule
from specplan.runtime.executable import Observer, StepResult
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.requests import Request
from specplan.runtime.sampling import SamplingSettings, draw, probabilities
from specplan.runtime.sources.source import Source
from specplan.runtime.uniforms import uniforms


class PlainExecutable:
    """Rounds `one` and `many` emit up to 1 and `burst` tokens; the schedule prefers `many`."""

    def __init__(self, model: CausalModel, burst: int = 1, idle: bool = False) -> None:
        self.model = model
        self.shared: dict[str, Source] = {}
        self.burst = burst
        self.idle = idle
        self.plan = Plan(
            name="plain",
            rounds=(Round(name="one", ops=()), Round(name="many", ops=())),
            schedule=Schedule(guards=(Guard(formula="batch >= 2", round="many"),), otherwise="one")
            if burst > 1
            else None,
        )

    def start(self, requests: Sequence[Request], capacity: int | None = None) -> PlainSession:
        return PlainSession(self, requests)

    def forget(self) -> None:
        """It learns nothing."""


class PlainSession:
    def __init__(self, executable: PlainExecutable, requests: Sequence[Request]) -> None:
        self.executable = executable
        self.requests = requests
        self.texts = [list(request.prompt_tokens) for request in requests]
        self.done = [request.max_new_tokens == 0 for request in requests]
        self.released = False
        self.prefilled = False

    @property
    def lengths(self) -> list[int]:
        return [len(text) for text in self.texts]

    def prefill(self, observer: Observer | None = None) -> None:
        self.prefilled = True

    def finish(self, row: int) -> None:
        self.done[row] = True

    def release(self) -> None:
        self.released = True

    def step(self, round_name: str, observer: Observer | None = None) -> StepResult:
        if observer is not None:
            observer("forward", "target", len(self.texts), 1, max(self.lengths), 0.0)
        count = self.executable.burst if round_name == "many" else 1
        if self.executable.idle:
            count = 0
        emitted = [self._emit(row, count) for row in range(len(self.texts))]
        return StepResult(emitted)

    def _emit(self, row: int, count: int) -> list[int]:
        request, text, new = self.requests[row], self.texts[row], []
        while len(new) < count and not self.done[row]:
            new.append(self._next(request, text))
            text.append(new[-1])
            full = len(text) - len(request.prompt_tokens) >= request.max_new_tokens
            self.done[row] = full or new[-1] in request.stop_tokens
        return new

    def _next(self, request: Request, text: list[int]) -> int:
        """The next token, from scratch; what is drawn depends on the text alone."""
        model, size = self.executable.model, len(text)
        places = torch.arange(size)[None]
        mask = torch.ones(1, size, size).tril().bool()
        rows = model.forward(
            torch.tensor([text]), places, places, mask, model.new_cache(1, size), places[:, -1:]
        )
        number = uniforms([request.seed], "accept", [size], 0, 1)
        return int(draw(probabilities(rows, SamplingSettings.of([request]))[:, 0], number[:, 0]))
