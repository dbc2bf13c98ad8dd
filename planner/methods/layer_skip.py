"""The target drafts for itself with some of its blocks left out, and verifies with all of them.

Self-speculative decoding by skipping (Draft & Verify, arXiv 2309.08168; SWIFT, arXiv 2410.06916):
a pass without some attentions and MLPs drafts a token at a time. It attends to the target's own
cache of the text, and its own keys and values are scratch that the verifying pass overwrites. It
needs no draft model, no training and no memory. Which blocks can be spared is searched for where
acceptance is measured (`specplan.planner.drafters.skip_search`), or named by a given acceptance
profile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from specplan.cost_models.acceptance.drafters import SkipBlocks
from specplan.ir.blocks import Skips
from specplan.ir.plan import Plan
from specplan.planner.drafters.candidates import MOST_SKIPPED_DRAFT, leaves_blocks_out
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family, Method, Option, Options, Refusal
from specplan.planner.reasons import Cause, Reason
from specplan.planner.templates.chains import chain_plan

LENGTHS = tuple(range(1, MOST_SKIPPED_DRAFT + 1))


@dataclass(frozen=True)
class LayerSkipOptions(Options):
    """Which blocks are left out, and how far is drafted."""

    reads = "chain of {length} without {short}"

    skip: Annotated[
        tuple[str, ...], Option("blocks of the target left out while drafting", searched=True)
    ]
    length: Annotated[int, Option("drafted tokens")]

    @property
    def short(self) -> str:
        """The blocks in short, `a3m4`."""
        return Skips.read(self.skip).short


class LayerSkip(Method[LayerSkipOptions]):
    """The target drafts for itself."""

    summary = "the target without some of its blocks drafts a chain"
    paper = "Zhang et al. 2023, arXiv 2309.08168; sets of blocks: Xia et al. 2024, arXiv 2410.06916"
    differs = (
        "Chains have a fixed length (`adaptive_bar` ends them by confidence), and blocks are "
        "searched for before decoding, where SWIFT does so while it decodes."
    )
    acceptance = "length of a draft begun there"

    def choices(self, facts: ProblemFacts) -> Sequence[Family[LayerSkipOptions] | Refusal]:
        """Per set of blocks whose acceptance is known, chains of 1 to 8 tokens."""
        return [
            Family.of(
                f"chain without {drafter.skips.short}",
                (LayerSkipOptions(drafter.skips.words, length) for length in LENGTHS),
            )
            for drafter in facts.profiles
            if isinstance(drafter, SkipBlocks) and drafter.model == "target"
        ] or [Refusal("any", _reason(facts))]

    def plan(self, facts: ProblemFacts, options: LayerSkipOptions) -> Plan:
        """Draft one token at a time into scratch, then run the whole stack over all of them."""
        return chain_plan(facts, self, self.drafter(facts, options), options.length)

    def drafter(self, facts: ProblemFacts, options: LayerSkipOptions) -> SkipBlocks:
        """The target without these blocks."""
        return SkipBlocks("target", Skips.read(options.skip))


def _reason(facts: ProblemFacts) -> str:
    if facts.target.num_layers < 3:
        return "the target has no layer between its first and its last, which are both kept"
    ready = (
        "a ready profile as acceptance.skip_blocks(target, [attn.1, mlp.1]) (the target without "
        "the attention and the MLP of layer 1)"
    )
    if not leaves_blocks_out(facts.problem):
        words = (
            "which blocks the target can spare is not searched for beside draft models, since it "
            f"takes minutes: name the method in methods, or give {ready}"
        )
        return Reason(words, Cause.OPT_IN)
    return (
        f"no set of blocks is known that the target can spare: give {ready}, or let sets be "
        "searched for where models run: device: measured, and workload.prompts"
    )


METHOD = LayerSkip()
