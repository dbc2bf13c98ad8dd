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
from specplan.planner.templates.plan_text import Pass, cache_of, draft_and_verify
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
    differs = "Chains longer than the modules run them again on their own hidden states."
    acceptance = "given"
    engine_drafter = "modules"
    sources = ("mtp",)
    source_drafter = Model("mtp")
    runnable = False

    def choices(self, facts: ProblemFacts) -> Sequence[Family[MtpOptions] | Refusal]:
        """Chains of 1 to 8 tokens."""
        name, reason = "chain by the target's modules", self.missing_source(facts)
        if set(self.sources) <= set(facts.problem.sources) and not facts.modules:
            reason = "the target has no multi-token-prediction modules (num_nextn_predict_layers)"
        if reason is not None:
            return [Refusal(name, reason)]
        return [Family.of(name, map(MtpOptions, range(1, 9)))]

    def plan(self, facts: ProblemFacts, options: MtpOptions) -> Plan:
        """Level i is drafted by module i, from the hidden states of the level before."""
        length = options.length
        modules = list(facts.modules)[:length]
        states = {module: f"@{module}_states" for module in modules}
        read = ["@states", *(states[modules[i % len(modules)]] for i in range(length))]
        passes = []
        for level in range(max(length, 2)):
            module, first = modules[level % len(modules)], level < len(modules)
            pending, scratch = (f"pending={length + 1}", "") if first else ("", "write=scratch")
            passes.append(
                Pass(
                    module,
                    f"cache={cache_of(module)} {pending} features={read[level]} shift=1 "
                    f"keep={states[module]} {scratch}",
                )
            )
        alone = len(modules) == 1
        drafted = (
            layers_text(length, passes) if alone else tree_text(chain(length), passes, drawn=False)
        )
        tracks = (f"{states[module]} = track {module} layer=last" for module in modules)
        return draft_and_verify(
            facts,
            self,
            drafted,
            length,
            models=modules,
            verify="keep=@states",
            commits=("@states", *(x for one in modules for x in (cache_of(one), states[one]))),
            states=("@states = track target layer=last", *tracks),
        )


METHOD = Mtp()
