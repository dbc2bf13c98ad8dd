"""The target's first layers and a small adapter on them draft a chain, the other layers verify it.

Kangaroo (Liu et al. 2024, arXiv 2404.18911): a token runs the first layers and an adapter, which
is one attention and a norm, and the target's own head gives its logits. Verification goes on from
the states that drafting recorded, so that no layer runs a token twice. The adapter reads true
states of drafted tokens too; the last drafted token enters it in the next round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from specplan.cost_models.acceptance.drafters import Drafter, Model
from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import DraftName, Family, Method, Option, Options, Refusal
from specplan.planner.templates.per_drafter import family_by
from specplan.planner.templates.plan_text import FEATURES, cache_of, draft_and_verify

LENGTHS = tuple(range(1, 9))


@dataclass(frozen=True)
class ExitAdapterOptions(Options):
    """Which adapter, and how far is drafted."""

    reads = "chain of {length} by {draft}"

    draft: DraftName
    length: Annotated[int, Option("drafted tokens")]


class ExitAdapter(Method[ExitAdapterOptions]):
    """Needs little memory, and nothing of what drafting computes in the target is lost."""

    summary = "the target's first layers and an adapter on them draft a chain, the others verify it"
    paper = (
        "Kangaroo: Liu et al. 2024, arXiv 2404.18911; a whole layer: EESD, Liu et al. 2024, arXiv "
        "2406.03853"
    )
    differs = "Chains have one length, where the paper ends them at a token of low confidence."
    acceptance = "rank of the accepted child at each depth, along the target's own texts"

    def choices(self, facts: ProblemFacts) -> Sequence[Family[ExitAdapterOptions] | Refusal]:
        """Per adapter: chains of 1 to 8 tokens."""
        adapters = [name for name, one in facts.drafters.items() if one.kind == "exit"]
        return [_family(facts, name) for name in adapters] or [
            Refusal("any", "models.drafts names no adapter on the target's first layers")
        ]

    def plan(self, facts: ProblemFacts, options: ExitAdapterOptions) -> Plan:
        """First layers and adapter token by token, then the other layers for all of them."""
        draft = options.draft
        (layer,) = facts.drafters[draft].feature_layers
        lower = f"cache=@kv pending=1 layers=[0:{layer}] keep={FEATURES} gives=[]"
        drafted = f"""%t0 = root
%c = repeat {options.length} (%t = %t0) {{
  %f = pick %t of=newest
  forward target %f {lower}
  %q = forward {draft} %f cache={cache_of(draft)} pending=2 features={FEATURES}
  %n = grow %t at=%f logits=%q
  yield %n
}}
%last = pick %c of=newest
forward target %last {lower}"""
        above = f"layers=[{layer}:{facts.target.num_layers}] features={FEATURES}"
        return draft_and_verify(
            facts, self, drafted, options.length, models=(draft,), verify=above,
            states=(f"{FEATURES} = track target layer={layer}",), after=f"commit {FEATURES} %e",
        )  # fmt: skip

    def drafter(self, facts: ProblemFacts, options: ExitAdapterOptions) -> Drafter | None:
        """The adapter."""
        return Model(options.draft)


def _family(facts: ProblemFacts, draft: str) -> Family[ExitAdapterOptions] | Refusal:
    settings = (ExitAdapterOptions(draft, length) for length in LENGTHS)
    return family_by(facts, f"chain by {draft}", Model(draft), lambda _: settings)


METHOD = ExitAdapter()
