"""The target's own multi-token-prediction modules draft a chain.

DeepSeek-V3 (arXiv 2412.19437 section 2.2): a module joins the last hidden state with the embedding
of the next token, runs one layer and the target's own head. Of several modules each level has its
own, in turn; one module alone runs again on its own hidden states, as in vLLM, SGLang and
TensorRT-LLM. Children are the modules' best ranks, or above temperature 0 draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from specplan.cost_models.acceptance.drafters import Drafter, Drawn, Model
from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family, Method, Option, Options, Refusal
from specplan.planner.templates.head_drafts import ACCEPTANCE, IsDrawn, in_words, rule_of, ways
from specplan.planner.templates.per_drafter import family_by
from specplan.planner.templates.plan_text import (
    FEATURES,
    Pass,
    cache_of,
    draft_and_verify,
    states_of,
)
from specplan.planner.templates.static_trees import layers_text, tree_text
from specplan.planner.trees import chain

MODULES = Model("mtp")
"""The target's own modules."""


@dataclass(frozen=True)
class MtpOptions(Options):
    """How much is drafted."""

    reads = "chain of {length} by the target's modules{how}"

    length: Annotated[int, Option("drafted tokens")]
    drawn: IsDrawn = False

    @property
    def how(self) -> str:
        """`, drawn`, or nothing."""
        return in_words(drawn=self.drawn)


class Mtp(Method[MtpOptions]):
    """Needs no other checkpoint: the modules come with the target."""

    summary = "the target's own multi-token-prediction modules draft a chain"
    paper = "DeepSeek-AI 2024, arXiv 2412.19437 section 2.2"
    differs = "Chains longer than one module run it again on its own hidden states."
    acceptance = ACCEPTANCE
    engine_drafter = "modules"
    sources = ("mtp",)
    source_drafter = MODULES

    def choices(self, facts: ProblemFacts) -> Sequence[Family[MtpOptions] | Refusal]:
        """Chains of 1 to 8 tokens; of several modules, as many as there are."""
        name, reason = "chain by the target's modules", self.missing_source(facts)
        if set(self.sources) <= set(facts.problem.sources) and not facts.modules:
            reason = "the target has no multi-token-prediction modules (num_nextn_predict_layers)"
        if reason is not None:
            return [Refusal(name, reason)]
        most = 8 if len(facts.modules) == 1 else len(facts.modules)
        return [_family(facts, drafter, most) for drafter in ways(facts, MODULES.name)]

    def drafter(self, facts: ProblemFacts, options: MtpOptions) -> Drafter | None:
        """The modules."""
        return Drawn(MODULES.name) if options.drawn else MODULES

    def drafters(self, facts: ProblemFacts) -> tuple[Drafter, ...]:
        """The modules whose tokens are drawn."""
        return ways(facts, MODULES.name)[1:] if facts.modules else ()

    def plan(self, facts: ProblemFacts, options: MtpOptions) -> Plan:
        """Level i is drafted by module i, from the hidden states of the level before."""
        length, drawn = options.length, options.drawn
        modules = list(facts.modules)[:length]
        passes = []
        for level in range(max(length, 2)):
            module, before = modules[level % len(modules)], modules[(level - 1) % len(modules)]
            read = states_of(before) if level else FEATURES
            cached = f"pending={length + 1}" if level < len(modules) else "write=scratch"
            attributes = f"features={read} shift=1 keep={states_of(module)} {cached}"
            passes.append(Pass(module, f"cache={cache_of(module)} {attributes}"))
        if len(modules) == 1:
            drafted = layers_text(length, passes, drawn=drawn)
        else:
            drafted = tree_text(chain(length), passes, drawn=drawn, distinct=False)
        return draft_and_verify(
            facts, self, drafted, length, models=modules, rule=rule_of(drawn_chain=drawn),
            features="last", recurrent=True,
        )  # fmt: skip


def _family(facts: ProblemFacts, drafter: Model | Drawn, most: int) -> Family[MtpOptions] | Refusal:
    settings = [MtpOptions(n, isinstance(drafter, Drawn)) for n in range(1, most + 1)]
    name = f"chain by the target's modules{settings[0].how}"
    return family_by(facts, name, drafter, lambda _: settings)


METHOD = Mtp()
