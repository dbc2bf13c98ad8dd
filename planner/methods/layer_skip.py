"""The target drafts for itself with some of its blocks left out, and verifies with all of them.

Self-speculative decoding by skipping (Draft & Verify, arXiv 2309.08168; SWIFT, arXiv 2410.06916):
a pass without some attentions and MLPs drafts a token at a time. It attends to the target's own
cache of the text, and what it writes itself is scratch that the verifying pass writes over. It
needs no draft model, no training and no memory. Which blocks can be spared is searched for where
acceptance is measured (`specplan.planner.drafters.skip_search`), or named by a given acceptance
profile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from specplan.cost_models.acceptance.drafters import Drafter, SkipBlocks
from specplan.ir.blocks import Skips
from specplan.ir.plan import Plan
from specplan.planner.drafters.candidates import MOST_SKIPPED_DRAFT, leaves_blocks_out
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Domain, Family, Method, Options, Refusal
from specplan.planner.templates.chains import chain_plan

LENGTHS = tuple(range(1, MOST_SKIPPED_DRAFT + 1))


@dataclass(frozen=True)
class LayerSkipOptions(Options):
    """Which blocks are left out, and how far is drafted.

    Attributes:
        skip: names of the blocks, in the order of the stack.
        length: drafted tokens.
    """

    skip: tuple[str, ...]
    length: int

    @property
    def words(self) -> str:
        """`chain of 4 without a3m4`."""
        return f"chain of {self.length} without {Skips.read(self.skip).short}"


class LayerSkip(Method[LayerSkipOptions]):
    """The target drafts for itself."""

    name: ClassVar[str] = "layer_skip"
    summary: ClassVar[str] = "the target without some of its blocks drafts a chain"
    paper: ClassVar[str] = (
        "Zhang et al. 2023, arXiv 2309.08168; sets of blocks: Xia et al. 2024, arXiv 2410.06916"
    )
    acceptance: ClassVar[str] = "length of a draft begun there"
    leaves_blocks_out: ClassVar[bool] = True

    def choices(self, facts: ProblemFacts) -> Sequence[Family[LayerSkipOptions] | Refusal]:
        """Per set of blocks whose acceptance is known, chains of 1 to 8 tokens."""
        families = [_family(skips) for skips in _known_sets(facts)]
        return families or [Refusal("any", _reason(facts))]

    def plan(self, facts: ProblemFacts, options: LayerSkipOptions) -> Plan:
        """Draft one token at a time into scratch, then run the whole stack over all of them."""
        return chain_plan(facts, self.name, _drafter(options), options.length)

    def drafter(self, facts: ProblemFacts, options: LayerSkipOptions) -> Drafter | None:
        """The target without these blocks."""
        return _drafter(options)


def _drafter(options: LayerSkipOptions) -> SkipBlocks:
    return SkipBlocks("target", Skips.read(options.skip))


def _known_sets(facts: ProblemFacts) -> Iterator[Skips]:
    for drafter in facts.profiles:
        if isinstance(drafter, SkipBlocks) and drafter.model == "target":
            yield drafter.skips


def _family(skips: Skips) -> Family[LayerSkipOptions]:
    domains = {
        "skip": Domain((skips.words,), "blocks of the target left out while drafting"),
        "length": Domain(LENGTHS, "drafted tokens"),
    }
    settings = tuple(LayerSkipOptions(skips.words, length) for length in LENGTHS)
    return Family(f"chain without {skips.short}", domains, settings)


def _reason(facts: ProblemFacts) -> str:
    if facts.target.num_layers < 3:
        return "the target has no layer between its first and its last, which are both kept"
    ready = (
        "a ready profile as acceptance.skip_blocks(target, [attn.1, mlp.1]) (the target without "
        "the attention and the MLP of layer 1)"
    )
    if not leaves_blocks_out(facts.problem):
        return (
            "which blocks the target can spare is not searched for beside draft models, since it "
            f"takes minutes: name the method in methods, or give {ready}"
        )
    return (
        f"no set of blocks is known that the target can spare: give {ready}, or let sets be "
        "searched for where models run: device: measured, and workload.prompts"
    )


METHOD = LayerSkip()
