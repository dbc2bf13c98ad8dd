"""The target's own multi-token-prediction modules draft a chain.

DeepSeek-V3 (arXiv 2412.19437 section 2.2): a module joins the last hidden state with the embedding
of the next token, runs one layer and the target's own head. A target with one module is drafted
with by running it again on its own hidden states, with several each level has its own module, in
turn, as vLLM, SGLang and TensorRT-LLM do. Children are the modules' best ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from specplan.cost_models.acceptance.drafters import Drafter, Model, Source
from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Domain, Family, Method, Options, Refusal
from specplan.planner.templates.plan_text import cache_of, judge, single_round_plan
from specplan.planner.templates.static_trees import chain_text, tree_text
from specplan.planner.trees import chain

LENGTHS = tuple(range(1, 9))
MODULES = Model("mtp")


@dataclass(frozen=True)
class MtpOptions(Options):
    """How much is drafted.

    Attributes:
        length: drafted tokens.
    """

    length: int

    @property
    def words(self) -> str:
        """`chain of 3 by the target's modules`."""
        return f"chain of {self.length} by the target's modules"


class Mtp(Method[MtpOptions]):
    """Needs no other checkpoint: the modules come with the target."""

    name: ClassVar[str] = "mtp"
    engine_drafter: ClassVar[str] = "modules"
    summary: ClassVar[str] = "the target's own multi-token-prediction modules draft a chain"
    paper: ClassVar[str] = "DeepSeek-AI 2024, arXiv 2412.19437 section 2.2"
    acceptance: ClassVar[str] = "given"
    sources: ClassVar[tuple[str, ...]] = ("mtp",)
    source_drafters: ClassVar[tuple[Model | Source, ...]] = (MODULES,)
    runnable: ClassVar[bool] = False

    def choices(self, facts: ProblemFacts) -> Sequence[Family[MtpOptions] | Refusal]:
        """Chains of 1 to 8 tokens."""
        name = "chain by the target's modules"
        if not set(self.sources) <= set(facts.problem.sources):
            return [Refusal(name, f'the problem\'s sources leave out "{self.sources[0]}"')]
        if not facts.modules:
            reason = "the target has no multi-token-prediction modules (num_nextn_predict_layers)"
            return [Refusal(name, reason)]
        if MODULES not in facts.profiles:
            return [Refusal(name, facts.missing_profile(MODULES))]
        domains = {"length": Domain(LENGTHS, "drafted tokens")}
        return [Family(name, domains, tuple(MtpOptions(length) for length in LENGTHS))]

    def plan(self, facts: ProblemFacts, options: MtpOptions) -> Plan:
        """Level i is drafted by module i, from the hidden states of the level before."""
        length = options.length
        modules = list(facts.modules)[:length]

        def forward(level: int, nodes: str) -> str:
            module = modules[level % len(modules)]
            read = f"@{modules[(level - 1) % len(modules)]}_states" if level else "@states"
            first = level < len(modules)
            pending, scratch = (f" pending={length + 1}", "") if first else ("", " write=scratch")
            return (
                f"forward {module} {nodes} cache={cache_of(module)}{pending} features={read} "
                f"shift=1 keep=@{module}_states{scratch}"
            )

        drafted = tree_text(chain(length), forward, drawn=False)
        if len(modules) == 1:
            drafted = chain_text(length, forward)
        rule = None if facts.greedy else "recursive"
        commits = "\n".join(
            f"commit {cache_of(module)} %e\ncommit @{module}_states %e" for module in modules
        )
        judged = judge("%c", length, rule=rule, forward="keep=@states")
        body = f"{drafted}\n{judged}\ncommit @states %e\n{commits}"
        states = [f"@{module}_states = track {module} layer=last" for module in modules]
        states.insert(0, "@states = track target layer=last")
        return single_round_plan(facts, self.name, modules, body, states=states)

    def drafter(self, facts: ProblemFacts, options: MtpOptions) -> Drafter | None:
        """The modules, whatever their number."""
        return MODULES


METHOD = Mtp()
