"""The target's first layers and a small adapter on them draft a chain, the other layers verify it.

Kangaroo (Liu et al. 2024, arXiv 2404.18911): a token runs the first layers and an adapter, which
is one attention and a norm, and the target's own head gives its logits. Verification goes on from
the states that drafting recorded, so that no layer runs a token twice. The adapter reads true
states of drafted tokens too; the last drafted token enters it in the next round.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from specplan.cost_models.acceptance.drafters import Drawn, Model
from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family, Refusal
from specplan.planner.templates.chains import grown_token
from specplan.planner.templates.head_drafts import ByHeads, HeadChainOptions
from specplan.planner.templates.per_drafter import family_by
from specplan.planner.templates.plan_text import FEATURES, cache_of, draft_and_verify

LONGEST = 8
"""Drafted tokens."""


class ExitAdapter(ByHeads[HeadChainOptions]):
    """Needs little memory, and nothing of what drafting computes in the target is lost."""

    summary = "the target's first layers and an adapter on them draft a chain, the others verify it"
    paper = (
        "Kangaroo: Liu et al. 2024, arXiv 2404.18911; a whole layer: EESD, Liu et al. 2024, arXiv "
        "2406.03853"
    )
    differs = "Chains have one length, where the paper ends them at a token of low confidence."
    none = "models.drafts names no adapter on the target's first layers"

    def heads(self, facts: ProblemFacts) -> Mapping[str, int]:
        """Adapters on the target's first layers."""
        adapters = (name for name, one in facts.drafters.items() if one.kind == "exit")
        return dict.fromkeys(adapters, LONGEST)

    def families(
        self, facts: ProblemFacts, drafter: Model | Drawn, most: int
    ) -> Iterator[Family[HeadChainOptions] | Refusal]:
        """Chains of every length."""
        draft, drawn = drafter.name, isinstance(drafter, Drawn)
        settings = [HeadChainOptions(draft, length, drawn) for length in range(1, most + 1)]
        yield family_by(facts, f"chain by {draft}{settings[0].how}", drafter, lambda _: settings)

    def plan(self, facts: ProblemFacts, options: HeadChainOptions) -> Plan:
        """First layers and adapter token by token, then the other layers for all of them."""
        draft = options.draft
        (layer,) = facts.drafters[draft].feature_layers
        lower = f"cache=@kv pending=1 layers=[0:{layer}] keep={FEATURES} gives=[]"
        drafted = f"""%t0 = root
%c = repeat {options.length} (%t = %t0) {{
  %f = pick %t of=newest
  forward target %f {lower}
  %q = forward {draft} %f cache={cache_of(draft)} pending=2 features={FEATURES}
  {grown_token(drawn=options.drawn)}
  yield %n
}}
%last = pick %c of=newest
forward target %last {lower}"""
        above = f"layers=[{layer}:{facts.target.num_layers}] features={FEATURES}"
        return draft_and_verify(
            facts, self, drafted, options.length, models=(draft,), rule=options.rule, verify=above,
            states=(f"{FEATURES} = track target layer={layer}",), after=f"commit {FEATURES} %e",
        )  # fmt: skip


METHOD = ExitAdapter()
