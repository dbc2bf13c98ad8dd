"""Search for sets of blocks that the target skips while it drafts for itself.

On a few prompts, the loss of acceptance of each single block is measured. From there, the planner's
search proposes sets, which are measured on the same prompts and priced on the problem's device.
Every measurement is stored in one file, so that a run that was killed repeats no pass of a model.
Only sets that come near plain decoding are then measured on as many prompts as other drafters.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from math import log
from pathlib import Path

from specplan.cost_models.acceptance.drafters import Drafter, SkipBlocks
from specplan.cost_models.acceptance.evidence.lengths import Lengths
from specplan.cost_models.acceptance.profile import AcceptanceKey, AcceptanceProfile
from specplan.cost_models.devices.device import UnpricedError
from specplan.ir.blocks import Skips
from specplan.ir.errors import UsageError
from specplan.ir.files import read_json, write_json_atomic
from specplan.measure.acceptance.continuations import continue_prompts, request_of
from specplan.measure.acceptance.own_drafts import TeacherText
from specplan.measure.acceptance.profile import measure_acceptance
from specplan.measure.machine import versions
from specplan.measure.progress import Progress, silent
from specplan.measure.workbench import PROFILE, TokenPrompt, Workbench
from specplan.planner import (
    MOST_SKIPPED_DRAFT,
    DrafterPrices,
    ProblemFacts,
    SparedBlock,
    acceptance_key,
    first_guesses,
    refine,
    searched_blocks,
    searches_blocks,
)

PROMPTS = 4
"""Prompts of the search."""
POSITIONS = 64
"""Tokens of each prompt's output in the search."""
TRIALS = 16
"""Sets tried beyond those of the integer programme."""
HOPELESS = 1.5
"""No more sets are tried if the best guess takes this many times as long as plain decoding."""
NEAR = 1.1
"""Sets are measured on further prompts if they take at most this many times as long."""
MOST_SETS = 2
"""Sets that the problem's search chooses from."""
Known = dict[str, dict[str, list[list[int]]]]


def search_blocks(
    bench: Workbench, facts: ProblemFacts, *, progress: Progress = silent
) -> dict[Drafter, AcceptanceProfile]:
    """Search for sets of blocks to skip, if the problem asks for that.

    Args:
        bench: the problem's models and prompts.
        facts: with the device that prices passes.
        progress: called for every set.

    Returns:
        Profiles of the best sets by drafter; empty without a search, or if the device, an older
        measured table, has no price for passes without some blocks.
    """
    if not searches_blocks(bench.problem, facts.target):
        return {}
    search = _Search.open(bench, facts, progress)
    names = searched_blocks(facts.target.num_layers)
    try:
        whole = search.prices.pass_seconds()
        search.prices.pass_seconds(Skips.read(names[:1]))
    except UnpricedError:
        return {}
    blocks = [search.alone(name, whole) for name in names]
    guesses = first_guesses(blocks)
    if not guesses:
        return {}
    scores = {skips: search.score(skips) for skips in guesses}
    sets = tuple(sorted(guesses, key=lambda skips: scores[skips]))
    if scores[sets[0]] <= HOPELESS * search.prices.plain:
        sets = refine(sets, names, search.score, trials=TRIALS, seed=bench.problem.seed)
    progress("sets of blocks to leave out", 1, 1)
    return search.profiles(sets[:MOST_SETS])


@dataclass
class _Search:
    """The measurements of a search, and their file.

    Attributes:
        bench: the problem's models and prompts.
        facts: the problem.
        prices: of drafts on its device.
        prompts: to measure on.
        path: of the file.
        progress: called for every set.
        known: measured lengths by set and prompt: to depth one for single blocks, and to the
            longest draft for sets.
    """

    bench: Workbench
    facts: ProblemFacts
    prices: DrafterPrices
    prompts: list[TokenPrompt]
    path: Path
    progress: Progress
    known: Known
    texts: list[TeacherText] = field(default_factory=list)

    @classmethod
    def open(cls, bench: Workbench, facts: ProblemFacts, progress: Progress) -> _Search:
        """Continue from the file of an earlier run."""
        prompts = bench.prompts(PROFILE)[:PROMPTS]
        key = acceptance_key(bench.problem, facts.shapes, _without(Skips.of([1])))
        about = (key.temperature, key.top_k, key.top_p, bench.problem.seed, bench.output_tokens)
        name = bench.fingerprint("blocks", about, [prompt.tokens for prompt in prompts])
        path = bench.problem.profiles / "blocks" / f"{name}.json"
        return cls(bench, facts, DrafterPrices(facts), prompts, path, progress, _read(path))

    def alone(self, name: str, whole: float) -> SparedBlock:
        """The effect of skipping one block; half a token more counts as lost, half as accepted."""
        skips = Skips.read([name])
        rows = self._lengths("alone", skips, 1)
        accepted, every = sum(map(sum, rows)), sum(map(len, rows))
        seconds = whole - self.prices.pass_seconds(skips)
        return SparedBlock(name, seconds, -log((accepted + 0.5) / (every + 1.0)))

    def score(self, skips: Skips) -> float:
        """Seconds per token of the best chain drafted without these blocks."""
        return self.prices.best(self._profile(skips))

    def profiles(self, sets: tuple[Skips, ...]) -> dict[Drafter, AcceptanceProfile]:
        """Profiles of sets: of many prompts if a set may pay, else of those of the search."""
        near = [s for s in sets if self.score(s) <= NEAR * self.prices.plain]
        wanted: list[Drafter] = [_without(skips) for skips in near]
        measured: dict[Drafter, AcceptanceProfile] = {
            _without(skips): self._profile(skips) for skips in sets
        }
        return measured | measure_acceptance(
            self.bench, self.facts, progress=self.progress, wanted=wanted
        )

    def _key(self, skips: Skips) -> AcceptanceKey:
        return acceptance_key(self.bench.problem, self.facts.shapes, _without(skips))

    def _profile(self, skips: Skips) -> AcceptanceProfile:
        rows = self._lengths("sets", skips, MOST_SKIPPED_DRAFT)
        provenance = {
            "how": "teacher forcing on the target's own continuations, in a search for blocks",
            "prompts": [prompt.id for prompt in self.prompts],
            "seed": self.bench.problem.seed,
            "backend": self.bench.runs_by,
            "versions": versions(),
            "date": date.today().isoformat(),
        }
        return AcceptanceProfile(
            self._key(skips), Lengths(tuple(map(tuple, rows))), provenance=provenance
        )

    def _lengths(self, kind: str, skips: Skips, most: int) -> list[list[int]]:
        known = self.known[kind]
        if skips.short not in known:
            total = 2 * (self.facts.target.num_layers - 2) + TRIALS
            done = len(self.known["alone"]) + len(self.known["sets"])
            self.progress("sets of blocks to leave out", min(done, total), total)
            known[skips.short] = [text.lengths(skips, most) for text in self._texts()]
            write_json_atomic(self.path, {"schema_version": 1, "lengths": self.known})
        return known[skips.short]

    def _texts(self) -> list[TeacherText]:
        """The prompts with the target's own continuations, opened at first use."""
        if not self.texts:
            outputs = continue_prompts(self.bench, self.prompts, self.progress)
            model = self.bench.models["target"]
            self.texts = [
                TeacherText(
                    model,
                    request_of(self.bench, prompt, index),
                    output[:POSITIONS],
                    MOST_SKIPPED_DRAFT,
                )
                for index, (prompt, output) in enumerate(zip(self.prompts, outputs, strict=True))
                if output
            ]
        return self.texts


def _read(path: Path) -> Known:
    """The measurements of an earlier run, if any.

    Raises:
        UsageError: the file has another content.
    """
    known: Known = {"alone": {}, "sets": {}}
    if path.is_file():
        document = read_json(path, "stored search of blocks")
        try:
            for kind, sets in known.items():
                sets.update(document["lengths"][kind])
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(
                "not a search of blocks",
                where=str(path),
                remedy="Remove the file and search again.",
            ) from error
    return known


def _without(skips: Skips) -> SkipBlocks:
    return SkipBlocks("target", skips)
