"""An acceptance profile that grows prompt by prompt, and its file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from specplan.cost_models.acceptance.draft_sources import DRAFT_SOURCES
from specplan.cost_models.acceptance.drafters import Drafter, source_of
from specplan.cost_models.acceptance.key import file_name
from specplan.cost_models.acceptance.profile import AcceptanceKey, AcceptanceProfile
from specplan.ir.errors import UsageError
from specplan.ir.files import name_of, sha256_file
from specplan.ir.plan import Plan
from specplan.measure.acceptance.exits import exit_layers_of
from specplan.measure.acceptance.teacher import TracedText
from specplan.measure.acceptance.tracers import (
    Row,
    Tracer,
    exits_tracer,
    rounds_tracer,
    text_tracer,
)
from specplan.measure.machine import versions
from specplan.measure.progress import Progress
from specplan.measure.workbench import TokenPrompt, Workbench
from specplan.planner import DATASTORE_FILE, ProblemFacts, acceptance_key


@dataclass
class ProfileRecorder:
    """Records one drafter's acceptance prompt by prompt, in a file.

    Attributes:
        bench: the problem's models and prompts.
        key: what the profile is about.
        path: its file.
        digests: a digest of each prompt's tokens, by its name.
        rows: what is traced so far, by the prompt's name.
        tracer: traces the drafter.
        date: day on which the latest rows were traced, ISO 8601; "" for rows without one.
    """

    bench: Workbench
    key: AcceptanceKey
    path: Path
    digests: Mapping[str, str]
    rows: dict[str, Row]
    tracer: Tracer
    date: str = ""

    @classmethod
    def open(
        cls,
        bench: Workbench,
        facts: ProblemFacts,
        drafter: Drafter,
        plan: Plan | None,
        digests: Mapping[str, str],
    ) -> ProfileRecorder:
        """Continue with the rows that an earlier run stored of the same texts.

        Args:
            bench: the problem's models and prompts.
            facts: the problem's shapes.
            drafter: the drafter to profile.
            plan: the plan whose rounds are run for it; None for a drafter that is traced on texts.
            digests: a digest of each prompt's tokens, by its name.
        """
        key = acceptance_key(bench.problem, facts.shapes, drafter)
        path = path_of(bench, key)
        if plan is None:
            tracer = text_tracer(bench, key)
        elif exit_layers_of(plan):
            tracer = exits_tracer(bench, plan)
        else:
            tracer = rounds_tracer(bench.compile(plan))
        rows, day = _stored_rows(path, key, tracer, digests)
        return cls(bench, key, path, digests, rows, tracer, day)

    def record(
        self, prompts: Sequence[TokenPrompt], texts: Sequence[TracedText], progress: Progress
    ) -> None:
        """Trace the texts that are not traced yet, batch by batch; the file is saved after each.

        Args:
            prompts: all prompts asked for, also those without a text so far.
            texts: the first prompts with their outputs, in order.
            progress: called for every batch.
        """
        batch: list[TracedText] = []
        for text in texts:
            if text.name in self.rows:
                self.tracer.remember(text)
                continue
            batch.append(text)
            if len(batch) == self.tracer.batch:
                self._trace(batch, prompts, progress)
                batch = []
        if batch:
            self._trace(batch, prompts, progress)

    def _trace(
        self, batch: Sequence[TracedText], prompts: Sequence[TokenPrompt], progress: Progress
    ) -> None:
        progress(self._title, batch[0].index, len(prompts))
        names = [text.name for text in batch]
        self.rows |= dict(zip(names, self.tracer.trace(batch), strict=True))
        self.date = date.today().isoformat()
        self.profile(prompts).save(self.path)

    @property
    def _title(self) -> str:
        return f"acceptance of {self.key.drafter}"

    def profile(self, prompts: Sequence[TokenPrompt] = (), **more: float) -> AcceptanceProfile:
        """The profile so far: of all prompts recorded, `prompts` first; `more` is provenance."""
        ordered = dict.fromkeys(prompt.id for prompt in prompts if prompt.id in self.rows)
        names = [*(ordered | dict.fromkeys(self.rows))]
        provenance = {
            "how": self.tracer.how,
            "prompts": names,
            "texts": [self.digests[name] for name in names],
            "prompts_file": os.path.basename(self.bench.problem.workload.prompts or ""),
            "output_tokens": self.bench.output_tokens,
            "seed": self.bench.problem.seed,
            "backend": self.bench.runs_by,
            "versions": versions(),
            "date": self.date,
            **more,
        }
        evidence = self.tracer.evidence(tuple(self.rows[name] for name in names))
        return AcceptanceProfile(self.key, evidence, provenance)

    def finish(
        self, prompts: Sequence[TokenPrompt], half_width: float, progress: Progress
    ) -> AcceptanceProfile:
        """Save the profile with the relative half width that it reached."""
        left = sum(prompt.id not in self.rows for prompt in prompts)
        profile = self.profile(prompts, prompts_left=left, half_width=half_width)
        profile.save(self.path)
        progress(self._title, len(prompts), len(prompts))
        return profile


def text_digests(prompts: Sequence[TokenPrompt]) -> dict[str, str]:
    """A digest of each prompt's tokens, by its name."""
    return {prompt.id: name_of(repr(prompt.tokens)) for prompt in prompts}


def path_of(bench: Workbench, key: AcceptanceKey) -> Path:
    """The file of a drafter's traces; other sampling and corpora have other files."""
    source, corpus = DRAFT_SOURCES.get(source_of(key.drafter) or ""), ""
    if source is not None and source.scope == "read_only" and bench.problem.datastore is not None:
        corpus = sha256_file(bench.problem.datastore / DATASTORE_FILE)
    name = bench.fingerprint(repr(key), bench.output_tokens, bench.problem.seed, corpus)
    return bench.problem.profiles / "acceptance" / f"{file_name(key.drafter)[:64]}-{name}.json"


def _stored_rows(
    path: Path, key: AcceptanceKey, tracer: Tracer, digests: Mapping[str, str]
) -> tuple[dict[str, Row], str]:
    """Rows of an earlier run by prompt, of prompts that have the same tokens now; and their day.

    A source has learned from the prompts before: then all have to be the same.

    Raises:
        UsageError: the file is about another drafter, or pools of another depth.
    """
    if not path.is_file():
        return {}, ""
    stored = AcceptanceProfile.load(path)
    rows = tracer.rows_of(stored.evidence)
    if stored.key != key or rows is None:
        raise UsageError(
            "the stored profile is about something else",
            where=str(path),
            remedy="Remove the file and measure again.",
        )
    names = stored.provenance["prompts"]
    then = dict(zip(names, stored.provenance.get("texts", ()), strict=False))
    same = {name for name in names if name in then and then[name] == digests.get(name)}
    if len(same) < len(names) and tracer.learns:
        return {}, ""
    again = {name: tuple(row) for name, row in zip(names, rows, strict=True) if name in same}
    return again, str(stored.provenance.get("date", ""))
