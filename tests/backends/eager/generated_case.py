"""Generated plans on both backends: small checkpoints, modules, requests, and what they decode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.oracle.backend import OracleBackend
from specplan.backends.static.executable import StaticExecutable
from specplan.backends.static.graph_capabilities import STATIC
from specplan.ir.capabilities import refusals
from specplan.ir.ops import Forward
from specplan.ir.plan import CacheState, Plan, TrackState, walk_plan
from specplan.ir.text.parser import parse_plan
from specplan.measure.device.probes import plain_plan
from specplan.runtime.executable import Executable
from specplan.runtime.generate import generate
from specplan.runtime.models.loading import load_model
from specplan.runtime.requests import Request
from specplan.runtime.sources.datastore_build import build_datastore
from specplan.runtime.sources.trees import build_trees
from tests.backends.eager.modules import Module, Probed
from tests.backends.pairs import save_pair, save_shorter
from tests.ir.generated import DATASTORE
from tests.matrix import LONG

VOCABULARY = 24
LIMITS = (6, 8, 4)
"""Tokens asked of each request."""
COLD, WARM, MIXED = (0.0, 0.0, 0.0), (0.8, 0.8, 0.8), (0.8, 0.0, 0.8)
"""Temperatures of requests that run together."""


Compiler = Callable[[Plan, dict[str, Any]], Executable]
"""A backend, or what it makes of a plan and its models."""


class Decoded(NamedTuple):
    """What each request got: tokens, and in how many rounds."""

    tokens: list[tuple[int, ...]]
    rounds: list[int]


def save_models(folder: Path) -> None:
    """Checkpoints of a target of 4 layers and of drafters of 2, and a datastore."""
    save_pair(folder, VOCABULARY, scale=0.2, layers=4, sureness=6.0)
    for name in ("draft", "small"):
        save_shorter(folder, name, 2)
    save_text(folder / DATASTORE)


def save_text(folder: Path) -> None:
    """A datastore of a random text."""
    text = np.random.default_rng(0).integers(0, VOCABULARY, 4000).astype(np.uint8)
    build_datastore(folder, [lambda: [text]], VOCABULARY, "a text", lambda *_: None)
    build_trees(folder, 100)


def load_models(folder: Path) -> dict[str, Any]:
    """The models of generated plans by the names that these give them."""
    models: dict[str, Any] = {
        name: load_model(folder / name, dtype="float64") for name in ("target", "draft", "small")
    }
    target = models["target"]
    modules = {"head": Module(target, layers=1), "heads": Module(target), "judge": Module(target)}
    return models | modules


def looks_ahead(plan: Plan) -> bool:
    """Whether the target itself looks several tokens ahead."""
    forwards = (op for op in walk_plan(plan) if isinstance(op, Forward))
    return any(op.model == "target" and op.most_levels > 1 for op in forwards)


def decoded(
    compiled: Compiler,
    plan: Plan,
    models: dict[str, Any],
    temperatures: Sequence[float],
    rows: Sequence[int] = (0, 1, 2),
) -> Decoded:
    """Requests of unlike lengths in one batch, with prompts that repeat themselves.

    Args:
        compiled: makes an executable.
        plan: what decodes.
        models: those of the plan, and more.
        temperatures: of three requests.
        rows: which of them run.
    """
    prompts = [np.random.default_rng(n).integers(0, VOCABULARY, n).tolist() for n in (4, 6, 3)]
    requests = [
        Request(
            prompt_tokens=(*prompts[row], *prompts[row]),
            max_new_tokens=LIMITS[row],
            temperature=temperatures[row],
            seed=row,
        )
        for row in rows
    ]
    given = {name: models[name] for name in {"target", *plan.models_run}}
    if looks_ahead(plan) and not isinstance(given["target"], Probed):
        given["target"] = Probed(given["target"])
    items = generate(compiled(plan, given), requests).completions
    return Decoded([item.tokens for item in items], [item.rounds for item in items])


def alone(plan: Plan) -> Plan:
    """Plain decoding by the same target, which may read what its encoder gives."""
    sources = [s for s in plan.states if isinstance(s, TrackState) and s.layer == "encoder"]
    reads = {s.reads for s in plan.states if isinstance(s, CacheState) and s.model == "target"}
    if not reads & {source.name for source in sources}:
        return plain_plan(True)
    (source,) = sources
    return parse_plan(f"""plan alone
model target
state @{source.name} = track target layer=encoder
state @kv = cache target reads=@{source.name}
round r {{
  %t = root
  %l = forward target %t cache=@kv pending=1
  %a = accept %t target=%l
  %e = emit %a
  commit @kv %e
}}
""")


def decode_alike(plan: Plan, models: dict[str, Any], drafts: bool = False) -> None:
    """Op by op, as the oracle and as a graph; some of its `drafts` are kept.

    Where it promises the target's distribution, greedy tokens are those of plain decoding. Greedy
    and sampled requests share a batch; in the long matrix each also have one of their own.
    """
    ways = [COLD] if plan.greedy_only else [COLD, WARM, MIXED] if LONG else [MIXED]
    for temperatures in ways:
        decodes = decoded(EagerBackend().compile, plan, models, temperatures)
        assert sum(decodes.rounds) < sum(map(len, decodes.tokens)) or not drafts
        if (LONG or not plan.greedy_only) and not refusals(plan, STATIC):
            assert decoded(StaticExecutable, plan, models, temperatures) == decodes
        cold = [row for row, temperature in enumerate(temperatures) if not temperature]
        if cold and plan.assumptions.lossless:
            plainly = decoded(EagerBackend().compile, alone(plan), models, COLD, cold)
            assert [decodes.tokens[row] for row in cold] == plainly.tokens
        assert decoded(OracleBackend().compile, plan, models, temperatures) == decodes
