"""A draft model that is kept fresh while it serves.

Online Speculative Decoding (Liu et al. 2023, arXiv 2310.07177): where the target rejects a draft
token, the draft model learns the target's distribution there, from a buffer of the latest texts and
with processor time that serving leaves. Learning runs in a thread of its own; new weights take the
place of the old ones between two rounds, and change no output: the target judges every draft.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Condition, Thread
from time import perf_counter
from types import TracebackType
from typing import Self

import torch

from specplan.ir.plan import Plan
from specplan.runtime.executable import Executable
from specplan.runtime.generate import Generation, generate
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.requests import Request
from specplan.training.drafts.distilling import DraftLearner, soft_objective
from specplan.training.learning.adam import Adam
from specplan.training.learning.features import Features
from specplan.training.learning.objective import loss_of
from specplan.training.learning.packing import Rows, Text, labels_of

CAPACITY = 65_536
"""Tokens of the latest texts that are remembered: some 4 MB."""
EVERY = 8
"""Served texts after which the draft model learns (I of the paper)."""


def live(plan: Plan, draft: str) -> Plan:
    """A plan whose draft model changes while it runs, so that sampled texts are not reproducible.

    Args:
        plan: that drafts with the model.
        draft: its role.
    """
    models = tuple(
        replace(one, revision="live", digest=None) if one.name == draft else one
        for one in plan.models
    )
    return replace(plan, models=models, assumptions=replace(plan.assumptions, reproducible=False))


@dataclass(frozen=True)
class Served:
    """A text that was served.

    Attributes:
        text: prompt and output.
        rejected: places of its tokens where a draft token was rejected.
    """

    text: Text
    rejected: tuple[int, ...]


class Replay:
    """The latest texts, the oldest of which give way.

    Args:
        capacity: tokens of all of them.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.capacity, self.tokens = capacity, 0
        self.texts: deque[Served] = deque()

    def add(self, served: Served) -> None:
        """Remember a text; one without a rejected token teaches nothing, one too long is left."""
        size = len(served.text.tokens)
        if not served.rejected or size > self.capacity:
            return
        self.texts.append(served)
        self.tokens += size
        while self.tokens > self.capacity:
            self.tokens -= len(self.texts.popleft().text.tokens)

    def latest(self, most: int) -> list[Served]:
        """The last texts of at most so many tokens together, at least one."""
        chosen: list[Served] = []
        for served in reversed(self.texts):
            most -= len(served.text.tokens)
            if chosen and most < 0:
                break
            chosen.append(served)
        return chosen


class FreshDraft:
    """Serves with a draft model, and lets it learn.

    Used as a context: inside, a thread learns whenever `every` texts came; without it, `learn` does
    a step at once.

    Args:
        executable: of a `live` plan that drafts with the model.
        served: the draft model that it runs.
        learner: the same checkpoint, to be trained.
        replay: of its texts.
        every: texts after which it learns.

    Attributes:
        steps: that it has learned.
        pauses: seconds for which serving waited while new weights were put in place.
    """

    def __init__(
        self,
        executable: Executable,
        served: CausalModel,
        learner: DraftLearner,
        replay: Replay | None = None,
        every: int = EVERY,
    ) -> None:
        self.executable, self.served, self.learner = executable, served, learner
        self.replay, self.every = replay or Replay(), every
        self.objective = soft_objective(learner, learner.recipe)
        learner.trains(True)
        self.optimizer = Adam(learner)
        self.steps, self.pauses = 0, list[float]()
        self._ready: CausalModel | None = None
        self._waiting, self._open, self._longest = 0, False, 1
        self._news = Condition()
        self._thread: Thread | None = None

    def generate(self, requests: Sequence[Request]) -> Generation:
        """Continue requests as a batch, and remember what was rejected."""
        places: list[list[int]] = [[] for _ in requests]
        lengths = [0] * len(requests)

        def note(row: int, tokens: tuple[int, ...], _: object) -> None:
            self.take_weights()
            lengths[row] += len(tokens)
            self._longest = max(self._longest, len(tokens))
            if 0 < len(tokens) < self._longest:  # its last token is the target's own
                places[row].append(len(requests[row].prompt_tokens) + lengths[row] - 1)

        done = generate(self.executable, requests, on_tokens=note)
        with self._news:
            for request, made, rejected in zip(requests, done.completions, places, strict=True):
                prompt = request.prompt_tokens
                self.replay.add(Served(Text((*prompt, *made.tokens), len(prompt)), tuple(rejected)))
            self._waiting += len(requests)
            self._news.notify()
        return done

    def take_weights(self) -> None:
        """Put new weights in place, if there are any; called between rounds."""
        ready, self._ready = self._ready, None
        if ready is None:
            return
        begin, new = perf_counter(), ready.weights()
        with torch.no_grad():
            for name, weight in self.served.weights().items():
                weight.copy_(new[name])
        self.pauses.append(perf_counter() - begin)

    def learn(self) -> float | None:
        """A step on the latest texts; its loss, or None where nothing was rejected yet."""
        recipe = self.learner.recipe
        with self._news:
            chosen = self.replay.latest(recipe.rows * recipe.row_tokens)
        if not chosen:
            return None
        self.optimizer.forget()
        features = Features(self.learner, (), self.objective)
        rows, states = features.of_others([[one.text] for one in chosen])
        counts = torch.zeros_like(rows.counts)
        for row, one in enumerate(chosen):
            counts[row, list(one.rejected)] = True
        labels = labels_of(Rows(rows.texts, counts), 1, 0)
        loss = loss_of(self.learner, rows, labels, states, self.objective)
        self.optimizer.step(recipe.learning_rate, recipe.clip)
        self.steps += 1
        self._ready = self.learner.drafter
        return loss.item()

    def save(self, folder: Path) -> None:
        """Write the draft model as it is now, as `transformers` loads it."""
        folder.mkdir(parents=True, exist_ok=True)
        self.learner.write(folder)

    def __enter__(self) -> Self:
        self._open, self._thread = True, Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._news:
            self._open = False
            self._news.notify()
        assert self._thread is not None
        self._thread.join()
        self.take_weights()

    def _run(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: not self._open or self._waiting >= self.every)
                if not self._open:
                    return
                self._waiting = 0
            self.learn()
