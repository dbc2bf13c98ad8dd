"""An acceptance profile that grows prompt by prompt, and its file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from specplan.cost_models.acceptance.drafters import Drafter
from specplan.cost_models.acceptance.evidence.base import Evidence
from specplan.cost_models.acceptance.evidence.rounds import RoundsRun
from specplan.cost_models.acceptance.profile import AcceptanceKey, AcceptanceProfile
from specplan.ir.plan import Plan, SourceState
from specplan.measure.acceptance.continuations import BATCH, request_of
from specplan.measure.acceptance.precision import relative_half_width
from specplan.measure.acceptance.run_rounds import rehearse
from specplan.measure.acceptance.stored_traces import Rows, path_of, read_traces
from specplan.measure.acceptance.teacher import text_states
from specplan.measure.acceptance.tracers import TracedText, Tracer, tracer_of
from specplan.measure.machine import versions
from specplan.measure.progress import Progress
from specplan.measure.workbench import TokenPrompt, Workbench
from specplan.planner import ProblemFacts, acceptance_key
from specplan.runtime.executable import Executable

States = dict[str, Tensor]
"""The target's last hidden states along the outputs of some prompts, for all drafters."""


@dataclass
class Growing:
    """A profile that grows prompt by prompt, and its file.

    Attributes:
        bench: the problem's models and prompts.
        key: what the profile is about.
        path: its file.
        texts: a digest of each prompt's tokens, by its name.
        known: what was traced, by the prompt's name.
        by: how the drafter is traced, or, where its own rounds tell, what runs them.
    """

    bench: Workbench
    key: AcceptanceKey
    path: Path
    texts: Mapping[str, str]
    known: Rows
    by: Tracer | Executable

    @classmethod
    def open(
        cls,
        bench: Workbench,
        facts: ProblemFacts,
        drafter: Drafter,
        plan: Plan | None,
        texts: Mapping[str, str],
    ) -> Growing:
        """Go on with what an earlier run stored of the same texts.

        Args:
            bench: the problem's models and prompts.
            facts: the problem's shapes.
            drafter: whom the profile is about.
            plan: whose rounds are run for it; None where the drafter is traced.
            texts: a digest of each prompt's tokens, by its name.
        """
        key = acceptance_key(bench.problem, facts.shapes, drafter)
        path = path_of(bench, key)
        by = tracer_of(bench, key) if plan is None else bench.compile(plan)
        return cls(bench, key, path, texts, read_traces(path, key, texts), by)

    @property
    def _title(self) -> str:
        return f"acceptance of {self.key.drafter}"

    def grow(
        self,
        prompts: list[TokenPrompt],
        outputs: list[tuple[int, ...]],
        progress: Progress,
        states: States,
    ) -> None:
        """Trace the first prompts, those with an output; the others are counted as to come."""
        if not isinstance(self.by, Tracer):
            self._rehearse(self.by, prompts, outputs, progress)
            return
        for index, (prompt, output) in enumerate(zip(prompts, outputs, strict=False)):
            progress(self._title, index, len(prompts))
            if not output:
                continue
            request = request_of(self.bench, prompt, index)
            text = [*prompt.tokens, *output]
            logits = partial(self._logits, prompt.id, text, len(prompt.tokens), states)
            traced = TracedText(prompt.id, request, output, logits)
            if prompt.id not in self.known:
                self.known[prompt.id] = self.by.trace(traced)
                self.profile(prompts).save(self.path)
            elif self.by.replay is not None:
                self.by.replay.remember(prompt.id, text, traced.start, logits)

    def _rehearse(
        self,
        executable: Executable,
        prompts: list[TokenPrompt],
        outputs: list[tuple[int, ...]],
        progress: Progress,
    ) -> None:
        """Run the rounds of the first prompts, those with an output, some prompts at a time.

        One at a time where a source learns of all requests, so that it knows the earlier ones.
        """
        todo = [
            (index, prompt)
            for index, (prompt, output) in enumerate(zip(prompts, outputs, strict=False))
            if prompt.id not in self.known and output
        ]
        batch = 1 if _learns_of_all(executable.plan) else BATCH
        for start in range(0, len(todo), batch):
            progress(self._title, todo[start][0], len(prompts))
            group = todo[start : start + batch]
            requests = [request_of(self.bench, prompt, index) for index, prompt in group]
            ran = rehearse(executable, requests)
            self.known |= {prompt.id: row for (_, prompt), row in zip(group, ran, strict=True)}
            self.profile(prompts).save(self.path)

    def _logits(self, name: str, text: list[int], start: int, states: States) -> Tensor:
        """The target's own along a text, `[n - start, V]`."""
        target = self.bench.models["target"]
        if name not in states:
            states[name] = text_states(target, text, start)
        found: Tensor = target.logits(states[name][None])[0]
        return found

    def profile(self, prompts: list[TokenPrompt], **more: float) -> AcceptanceProfile:
        """As far as it has grown: of all prompts known, those asked for first."""
        bench, known = self.bench, self.known
        names = [prompt.id for prompt in prompts if prompt.id in known]
        asked = set(names)
        names += [name for name in known if name not in asked]
        provenance = {
            "how": "the rounds that ran"
            if self.key.how == "run"
            else "teacher forcing on the target's own continuations",
            "prompts": names,
            "texts": [self.texts[name] for name in names],
            "prompts_file": os.path.basename(bench.problem.workload.prompts or ""),
            "output_tokens": bench.output_tokens,
            "seed": bench.problem.seed,
            "backend": bench.runs_by,
            "versions": versions(),
            **more,
        }
        rows = tuple(known[name] for name in names)
        return AcceptanceProfile(self.key, self._evidence(rows), provenance)

    def _evidence(self, rows: tuple[tuple[Any, ...], ...]) -> Evidence:
        return self.by.evidence(rows) if isinstance(self.by, Tracer) else RoundsRun.of_places(rows)

    def half_width(self, facts: ProblemFacts) -> float:
        """Largest relative half width of tokens per round among the drafter's candidates."""
        return relative_half_width(facts, self.profile([]))

    def finish(
        self, facts: ProblemFacts, prompts: list[TokenPrompt], progress: Progress
    ) -> AcceptanceProfile:
        """The profile, with how sure it is."""
        left = sum(prompt.id not in self.known for prompt in prompts)
        found = self.profile(prompts, prompts_left=left, half_width=self.half_width(facts))
        found.save(self.path)
        progress(self._title, len(prompts), len(prompts))
        return found


def _learns_of_all(plan: Plan) -> bool:
    """Whether what a request drafts hangs on the requests before it."""
    sources = [state for state in plan.states if isinstance(state, SourceState)]
    return any(state.scope == "process" for state in sources)
