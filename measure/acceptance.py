"""`specplan profile acceptance`: what the target accepts from every proposer of a problem.

Each profile is one file that grows prompt by prompt; a run that was killed goes on where it was.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from specplan.cost_models.acceptance import AcceptanceKey, AcceptanceProfile
from specplan.ir.errors import UsageError
from specplan.measure.continuations import continue_prompts
from specplan.measure.machine import versions
from specplan.measure.progress import Progress, silent
from specplan.measure.teacher import greedy_ranks, lookup_lengths, sampled_ranks, text_logits
from specplan.measure.workbench import PROFILE, TokenPrompt, Workbench
from specplan.planner import ProblemFacts, acceptance_key, proposers
from specplan.runtime.requests import Request

MOST_RANKS = 16
"""Ranks that are told apart; a child beyond is never worth its node."""
MOST_LOOKED_UP = 32
"""Tokens of a looked-up continuation that are compared."""


def measure_acceptance(
    bench: Workbench,
    facts: ProblemFacts,
    *,
    progress: Progress = silent,
    limit: int | None = None,
) -> dict[str, AcceptanceProfile]:
    """Profiles of all proposers that the problem names no file for.

    Args:
        bench: the problem's models and prompts.
        facts: the problem's shapes; profiles in it are not read.
        progress: told of every prompt.
        limit: use only so many prompts of the profile split.

    Returns:
        By proposer; stored under the problem's `profiles` folder with their provenance.

    Raises:
        UsageError: there are no prompts to measure on.
    """
    wanted = [name for name in proposers(bench.problem) if name not in bench.problem.acceptance]
    if not wanted:
        return {}
    prompts = bench.prompts(PROFILE)[:limit]
    continuations = continue_prompts(bench, prompts, progress)
    found = {}
    for proposer in wanted:
        key = acceptance_key(bench.problem, facts.shapes, proposer)
        path = _path(bench, key)
        found[proposer] = _measure_one(bench, key, path, prompts, continuations, progress)
    return found


def _path(bench: Workbench, key: AcceptanceKey) -> Path:
    name = bench.fingerprint(repr(key), bench.output_tokens, bench.problem.seed)
    return bench.problem.profiles / "acceptance" / f"{key.proposer}-{name}.json"


def _measure_one(
    bench: Workbench,
    key: AcceptanceKey,
    path: Path,
    prompts: list[TokenPrompt],
    continuations: list[tuple[int, ...]],
    progress: Progress,
) -> AcceptanceProfile:
    known = _read(path, key)
    title = f"acceptance of {key.proposer}"
    for index, (prompt, output) in enumerate(zip(prompts, continuations, strict=True)):
        progress(title, index, len(prompts))
        if prompt.id not in known and output:
            known[prompt.id] = _trace(bench, key, prompt, output, index)
            _profile(bench, key, known, prompts).save(path)
    progress(title, len(prompts), len(prompts))
    return _profile(bench, key, known, prompts)


def _read(path: Path, key: AcceptanceKey) -> dict[str, tuple[int, ...]]:
    """Traces of an earlier run by prompt; none when it was about something else."""
    if not path.is_file():
        return {}
    stored = AcceptanceProfile.load(path)
    if stored.key != key:
        raise UsageError(
            "the stored profile is about something else",
            where=str(path),
            remedy="Remove the file and measure again.",
        )
    rows = stored.ranks if stored.ranks is not None else stored.lengths
    return dict(zip(stored.provenance["prompts"], rows or (), strict=True))


def _profile(
    bench: Workbench,
    key: AcceptanceKey,
    known: dict[str, tuple[int, ...]],
    prompts: list[TokenPrompt],
) -> AcceptanceProfile:
    """The profile of the prompts asked for, or while it grows of those known so far."""
    names = [prompt.id for prompt in prompts if prompt.id in known]
    names += [name for name in known if name not in set(names)]
    rows = tuple(known[name] for name in names)
    provenance = {
        "how": "teacher forcing on the target's own continuations",
        "prompts": names,
        "prompts_file": os.path.basename(bench.problem.workload.prompts or ""),
        "output_tokens": bench.output_tokens,
        "seed": bench.problem.seed,
        "backend": bench.problem.backend,
        "versions": versions(),
    }
    lookup = key.how == "given"
    blank = AcceptanceProfile(key, ranks=None if lookup else rows, lengths=rows if lookup else None)
    return replace(blank, provenance=provenance)


def _trace(
    bench: Workbench, key: AcceptanceKey, prompt: TokenPrompt, output: tuple[int, ...], index: int
) -> tuple[int, ...]:
    """Accepted rank, or accepted length for a source, at every position of one output."""
    text, start = [*prompt.tokens, *output], len(prompt.tokens)
    if key.match is not None:
        return tuple(lookup_lengths(text, start, key.match, MOST_LOOKED_UP))
    draft = text_logits(bench.models[key.proposer], text, start)
    if key.temperature == 0.0:
        return tuple(greedy_ranks(draft, list(output), MOST_RANKS))
    request = Request(
        prompt_tokens=prompt.tokens,
        temperature=key.temperature,
        top_k=key.top_k,
        top_p=key.top_p,
        seed=bench.problem.seed + index,
    )
    target = text_logits(bench.models["target"], text, start)
    return tuple(sampled_ranks(target, draft, request, MOST_RANKS))
