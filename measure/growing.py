"""An acceptance profile that grows prompt by prompt, and its file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from specplan.cost_models.acceptance.evidence.interleaved import Interleaved
from specplan.cost_models.acceptance.evidence.lengths import Lengths
from specplan.cost_models.acceptance.evidence.pools import Pools
from specplan.cost_models.acceptance.evidence.ranks import Ranks
from specplan.cost_models.acceptance.evidence.rounds import RoundsRun
from specplan.cost_models.acceptance.profile import AcceptanceKey, AcceptanceProfile
from specplan.ir.blocks import Skips
from specplan.ir.plan import Plan, SourceState
from specplan.measure.continuations import BATCH, request_of
from specplan.measure.machine import versions
from specplan.measure.own_drafts import TeacherText
from specplan.measure.pools import pool_places
from specplan.measure.precision import relative_half_width
from specplan.measure.progress import Progress
from specplan.measure.rehearsal import rehearse
from specplan.measure.retrieved_drafts import RetrievingText
from specplan.measure.source_replay import SourceReplay
from specplan.measure.stored_traces import (
    POOL_LAYERS,
    Rows,
    layers_of,
    path_of,
    read_traces,
    source_of,
)
from specplan.measure.teacher import (
    greedy_ranks,
    lookup_lengths,
    sampled_ranks,
    text_logits,
    text_states,
)
from specplan.measure.workbench import TokenPrompt, Workbench
from specplan.planner import (
    CHUNK,
    DRAFT_SOURCES,
    MOST_SKIPPED_DRAFT,
    SINKS,
    ProblemFacts,
    Proposer,
    acceptance_key,
    rehearsal_of,
)
from specplan.runtime.executable import Executable

MOST_RANKS = 16
"""Ranks that are told apart; a child beyond is never worth its node."""
MOST_LOOKED_UP = 32
"""Tokens of a looked-up continuation that are compared."""
States = dict[str, Tensor]
"""The target's last hidden states along the outputs of some prompts, for all proposers."""


@dataclass
class Growing:
    """A profile that grows prompt by prompt, and its file.

    Attributes:
        bench: the problem's models and prompts.
        key: what the profile is about.
        path: its file.
        texts: a digest of each prompt's tokens, by its name.
        known: accepted ranks, lengths, places in pools, or turns, by the prompt's name.
        replay: the source that drafts, where one does that is declared.
        rehearsed: whose own rounds are run, where these tell.
    """

    bench: Workbench
    key: AcceptanceKey
    path: Path
    texts: Mapping[str, str]
    known: Rows
    replay: SourceReplay | None = None
    rehearsed: Executable | None = None

    @classmethod
    def open(
        cls, bench: Workbench, facts: ProblemFacts, proposer: str, texts: Mapping[str, str]
    ) -> Growing:
        """Go on with what an earlier run stored of the same texts."""
        key = acceptance_key(bench.problem, facts.shapes, proposer)
        path = path_of(bench, key)
        replay, source = None, source_of(key)
        if source is not None:
            vocabulary = bench.models["target"].vocab_size
            replay = SourceReplay(source, vocabulary, bench.problem.datastore)
        plan = rehearsal_of(facts, proposer)
        rehearsed = None if plan is None else bench.compile(plan)
        known = read_traces(path, key, texts)
        return cls(bench, key, path, texts, known, replay, rehearsed)

    def grow(
        self,
        prompts: list[TokenPrompt],
        outputs: list[tuple[int, ...]],
        progress: Progress,
        states: States,
    ) -> None:
        """Trace the first prompts, those with an output; the others are counted as to come."""
        if self.rehearsed is not None:
            self._rehearse(self.rehearsed, prompts, outputs, progress)
            return
        title = f"acceptance of {self.key.proposer}"
        for index, (prompt, output) in enumerate(zip(prompts, outputs, strict=False)):
            progress(title, index, len(prompts))
            if prompt.id not in self.known and output:
                self.known[prompt.id] = self._trace(prompt, output, index, states)
                self.profile(prompts).save(self.path)
            elif self.replay is not None and output:
                text, start = [*prompt.tokens, *output], len(prompt.tokens)
                logits = partial(self._logits, prompt.id, text, start, states)
                self.replay.remember(prompt.id, text, start, logits)

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
            progress(f"acceptance of {self.key.proposer}", todo[start][0], len(prompts))
            group = todo[start : start + batch]
            requests = [request_of(self.bench, prompt, index) for index, prompt in group]
            ran = rehearse(executable, requests)
            self.known |= {prompt.id: row for (_, prompt), row in zip(group, ran, strict=True)}
            self.profile(prompts).save(self.path)

    def _trace(
        self, prompt: TokenPrompt, output: tuple[int, ...], index: int, states: States
    ) -> tuple[Any, ...]:
        """Accepted rank, length of a chain, places in pools, or turns, at every position."""
        bench, key = self.bench, self.key
        text, start = [*prompt.tokens, *output], len(prompt.tokens)
        logits = partial(self._logits, prompt.id, text, start, states)
        copied: tuple[Any, ...] = ()
        if self.replay is not None:
            copied = self.replay.trace(prompt.id, text, start, logits)
        elif key.match is not None:
            copied = tuple(lookup_lengths(text, start, key.match, MOST_LOOKED_UP))
        if copied and key.source is None:
            return copied
        found = Proposer.read(key.proposer)
        role, kept = found.role, None if found.budget is None else (found.budget, SINKS)
        if key.beam is not None:
            return tuple(pool_places(bench.models[role], text, start, key.beam, POOL_LAYERS))
        request = request_of(bench, prompt, index)
        if _drafts_for_itself(key):
            text_of = (bench.models["target"], request, output, MOST_SKIPPED_DRAFT)
            if found.retrieved and found.budget is not None:
                retrieving = RetrievingText(*text_of)
                return tuple(retrieving.retrieved_lengths(found.budget, CHUNK))
            teacher = TeacherText(*text_of)
            return tuple(teacher.lengths(Skips.read(key.skip), kept=kept))
        draft = text_logits(bench.models[role], text, start, key.layers, kept)
        most = 1 if key.how == "draw" or key.source else MOST_RANKS
        if key.temperature == 0.0:
            ranks = greedy_ranks(draft, list(output), most)
        else:
            ranks = sampled_ranks(logits(), draft, request, most)
        if key.source is None:
            return tuple(ranks)
        return tuple((int(rank == 0), same) for rank, same in zip(ranks, copied, strict=True))

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
        return _profile(self.key, tuple(known[name] for name in names), provenance)

    def half_width(self, facts: ProblemFacts) -> float:
        """Largest relative half width of tokens per round among the proposer's candidates."""
        return relative_half_width(facts, self.profile([]))

    def finish(
        self, facts: ProblemFacts, prompts: list[TokenPrompt], progress: Progress
    ) -> AcceptanceProfile:
        """The profile, with how sure it is."""
        left = sum(prompt.id not in self.known for prompt in prompts)
        found = self.profile(prompts, prompts_left=left, half_width=self.half_width(facts))
        found.save(self.path)
        progress(f"acceptance of {self.key.proposer}", len(prompts), len(prompts))
        return found


def _learns_of_all(plan: Plan) -> bool:
    """Whether what a request drafts hangs on the requests before it."""
    sources = [state for state in plan.states if isinstance(state, SourceState)]
    return any(state.scope == "process" for state in sources)


def _drafts_for_itself(key: AcceptanceKey) -> bool:
    """Whether the target drafts with keys and values that differ from its own."""
    found = Proposer.read(key.proposer)
    return bool(key.skip) or (found.role == "target" and found.budget is not None)


def _profile(
    key: AcceptanceKey, rows: tuple[tuple[Any, ...], ...], provenance: Mapping[str, Any]
) -> AcceptanceProfile:
    """Traces in the form that the key's proposer has."""
    if key.source is not None:
        source = DRAFT_SOURCES.get(key.source)
        longest = MOST_LOOKED_UP if source is None else source.longest
        return AcceptanceProfile(key, Interleaved(longest, rows), provenance=provenance)
    source = DRAFT_SOURCES.get(key.proposer)
    if key.beam is not None or (source is not None and source.evidence == "pools"):
        return AcceptanceProfile(key, Pools(layers_of(key), rows, key.beam), provenance=provenance)
    if key.how == "run":
        return AcceptanceProfile(key, RoundsRun.of_places(rows), provenance)
    lengths = key.how == "given" or _drafts_for_itself(key)
    if lengths and (source is None or source.evidence == "lengths"):
        return AcceptanceProfile(key, Lengths(rows), provenance=provenance)
    return AcceptanceProfile(key, Ranks(rows), provenance=provenance)
