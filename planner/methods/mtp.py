"""The target's own multi-token-prediction modules draft a chain.

DeepSeek-V3 (arXiv 2412.19437 section 2.2): a module joins the last hidden state with the embedding
of the next token, runs one layer and the target's own head. Of several modules each level has its
own, in turn; one module alone runs again on its own hidden states, as in vLLM, SGLang and
TensorRT-LLM. Children are the modules' best ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from specplan.cost_models.acceptance.drafters import Model
from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family, Method, Option, Options, Refusal
from specplan.planner.templates.plan_text import (
    FEATURES,
    Pass,
    cache_of,
    draft_and_verify,
    states_of,
)
from specplan.planner.templates.static_trees import layers_text, tree_text
from specplan.planner.trees import chain


@dataclass(frozen=True)
class MtpOptions(Options):
    """How much is drafted."""

    reads = "chain of {length} by the target's modules"

    length: Annotated[int, Option("drafted tokens")]


class Mtp(Method[MtpOptions]):
    """Needs no other checkpoint: the modules come with the target."""

    summary = "the target's own multi-token-prediction modules draft a chain"
    paper = "DeepSeek-AI 2024, arXiv 2412.19437 section 2.2"
    differs = "Chains longer than one module run it again on its own hidden states."
    acceptance = "rank of the accepted child at each depth, along the target's own texts"
    engine_drafter = "modules"
    sources = ("mtp",)
    source_drafter = Model("mtp")

    def choices(self, facts: ProblemFacts) -> Sequence[Family[MtpOptions] | Refusal]:
        """Chains of 1 to 8 tokens; of several modules, as many as there are."""
        name, reason = "chain by the target's modules", self.missing_source(facts)
        if set(self.sources) <= set(facts.problem.sources) and not facts.modules:
            reason = "the target has no multi-token-prediction modules (num_nextn_predict_layers)"
        if reason is not None:
            return [Refusal(name, reason)]
        most = 8 if len(facts.modules) == 1 else len(facts.modules)
        return [Family.of(name, map(MtpOptions, range(1, most + 1)))]

    def plan(self, facts: ProblemFacts, options: MtpOptions) -> Plan:
        """Level i is drafted by module i, from the hidden states of the level before."""
        length = options.length
        modules = list(facts.modules)[:length]
        passes = []
        for level in range(max(length, 2)):
            module, before = modules[level % len(modules)], modules[(level - 1) % len(modules)]
            read = states_of(before) if level else FEATURES
            cached = f"pending={length + 1}" if level < len(modules) else "write=scratch"
            attributes = f"features={read} shift=1 keep={states_of(module)} {cached}"
            passes.append(Pass(module, f"cache={cache_of(module)} {attributes}"))
        if len(modules) == 1:
            drafted = layers_text(length, passes)
        else:
            drafted = tree_text(chain(length), passes, drawn=False)
        return draft_and_verify(
            facts, self, drafted, length, models=modules, features="last", recurrent=True
        )


METHOD = Mtp()
