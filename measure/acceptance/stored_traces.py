"""What earlier runs traced of a drafter: whose file it is, and which of it still holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specplan.cost_models.acceptance.draft_sources import DRAFT_SOURCES
from specplan.cost_models.acceptance.drafters import Drafter, Interleaved, file_name, source_of
from specplan.cost_models.acceptance.evidence.pools import Pools
from specplan.cost_models.acceptance.evidence.rounds import RoundsRun
from specplan.cost_models.acceptance.profile import AcceptanceKey, AcceptanceProfile
from specplan.ir.errors import UsageError
from specplan.ir.files import name_of, sha256_file
from specplan.measure.acceptance.tracers import POOL_LAYERS
from specplan.measure.workbench import TokenPrompt, Workbench
from specplan.planner import DATASTORE_FILE

Rows = dict[str, tuple[Any, ...]]
"""What was traced, one entry per position, by the name of the prompt."""


def text_digests(prompts: Sequence[TokenPrompt]) -> dict[str, str]:
    """A digest of each prompt's tokens, by its name."""
    return {prompt.id: name_of(repr(prompt.tokens)) for prompt in prompts}


def path_of(bench: Workbench, key: AcceptanceKey) -> Path:
    """Where the traces of a drafter are kept; other sampling and corpora have other files."""
    source, corpus = DRAFT_SOURCES.get(source_of(key.drafter) or ""), ""
    if source is not None and source.scope == "read_only" and bench.problem.datastore is not None:
        corpus = sha256_file(bench.problem.datastore / DATASTORE_FILE)
    name = bench.fingerprint(repr(key), bench.output_tokens, bench.problem.seed, corpus)
    return bench.problem.profiles / "acceptance" / f"{file_name(key.drafter)[:64]}-{name}.json"


def read_traces(path: Path, key: AcceptanceKey, texts: Mapping[str, str]) -> Rows:
    """Traces of an earlier run by prompt: of prompts that have the same tokens now.

    A source has learned the prompts before: all have to be the same then.
    """
    if not path.is_file():
        return {}
    stored = AcceptanceProfile.load(path)
    pools = stored.evidence
    deep = not isinstance(pools, Pools) or pools.layers == _layers_of(key.drafter)
    if stored.key != key or not deep:
        raise UsageError(
            "the stored profile is about something else",
            where=str(path),
            remedy="Remove the file and measure again.",
        )
    ran = stored.evidence
    rows = ran.places if isinstance(ran, RoundsRun) else ran.traces
    names = stored.provenance["prompts"]
    then = dict(zip(names, stored.provenance.get("texts", ()), strict=False))
    same = {name for name in names if name in then and then[name] == texts.get(name)}
    if len(same) < len(names) and _learns(key.drafter):
        return {}
    return {name: tuple(row) for name, row in zip(names, rows, strict=True) if name in same}


def _learns(drafter: Drafter) -> bool:
    """Whether what is traced of a text depends on the texts before it."""
    return source_of(drafter) in DRAFT_SOURCES or isinstance(drafter, Interleaved)


def _layers_of(drafter: Drafter) -> int:
    """Levels of the trees of which pools tell."""
    source = DRAFT_SOURCES.get(source_of(drafter) or "")
    return POOL_LAYERS if source is None else source.longest
