"""Heads draft a large tree, the target's first layers cut it down, and the others verify the rest.

ProPD (Zhong et al. 2024, arXiv 2402.13485): most nodes of a tree of heads are wrong, and the
target's lower layers know many of them: behind some layers a head tells which branches are
unlikely, and only the others run the layers above. The states of what stays are those that it had,
so that no layer runs a node twice. Speculative Streaming (Bhendawade et al. 2024, arXiv 2402.11131)
prunes the tree of its streams so, which are the slots of the nodes that stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from specplan.ir.plan import Plan
from specplan.planner.drafters.parts import NO_HEADS_AHEAD, exit_layers, heads_ahead, streams_ahead
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import DraftName, Option, Options
from specplan.planner.templates.head_drafts import lattice_text
from specplan.planner.templates.plan_text import (
    draft_and_verify,
    features_of,
    uncached_of,
)
from specplan.planner.templates.profiled_by_running import ProfiledByRunning

STATES = "@lower"


@dataclass(frozen=True)
class PrunedOptions(Options):
    """Who drafts, how much, and what the first layers leave of it."""

    reads = "best {nodes} after layer {exit_layer} of {width} tokens at {depth} levels by {draft}"

    draft: DraftName
    exit_layer: Annotated[int, Option("layers that run all drafted nodes")]
    width: Annotated[int, Option("tokens of each head")]
    depth: Annotated[int, Option("heads")]
    nodes: Annotated[int, Option("nodes that the layers above run")]


class PrunedHeads(ProfiledByRunning[PrunedOptions]):
    """Pays where the lower layers predict, and a wide pass of the others costs more."""

    summary = "heads draft a tree that the target's first layers prune, the others verify the rest"
    paper = (
        "ProPD: Zhong et al. 2024, arXiv 2402.13485; Speculative Streaming: Bhendawade et al. "
        "2024, arXiv 2402.11131"
    )
    differs = (
        "The target's own norm and LM head judge behind the first layers, where ProPD trains a "
        "head there, and Speculative Streaming a map of low rank before the LM head; the size of "
        "the tree is planned, and not chosen anew while decoding."
    )
    memory = "the hidden states of one layer"
    shape = "dynamic tree"
    family = "pruned trees"
    shapes = ((2, 2, 3), (3, 2, 4), (2, 3, 4), (2, 3, 6), (3, 3, 6), (3, 3, 12))

    def run_settings(self, facts: ProblemFacts) -> Iterator[PrunedOptions]:
        """Of every set of heads, after the last of the layers that a target drafts after.

        Slots that enter before that layer ran it for all nodes.
        """
        drafters = facts.drafters
        for draft, most in {**heads_ahead(drafters), **streams_ahead(drafters)}.items():
            for layer in exit_layers(facts.target)[-1:]:
                if drafters[draft].kind == "slots" and drafters[draft].enters < layer:
                    continue
                for width, depth, nodes in self.shapes:
                    if depth <= most:
                        yield PrunedOptions(draft, layer, width, depth, nodes)

    def unavailable(self, facts: ProblemFacts) -> str | None:
        """There have to be heads, and layers above the first."""
        if not exit_layers(facts.target):
            return "the target has one layer, and nothing to leave out"
        drafters = facts.drafters
        return None if heads_ahead(drafters) or streams_ahead(drafters) else NO_HEADS_AHEAD

    def plan(self, facts: ProblemFacts, options: PrunedOptions) -> Plan:
        """The heads' tree, what the first layers make of it, and the others for the rest."""
        draft, layer = options.draft, options.exit_layer
        drafted = f"""{lattice_text(facts, draft, options.width, options.depth)}
%q = forward target %w cache=@kv pending=1 layers=[0:{layer}] keep={STATES}
%s = score %w logits=%q
%b = pick %s of=all best={options.nodes}
%c = prune %s to=%b"""
        drafter, verify = facts.drafters[draft], f"layers=[{layer}:{facts.target.num_layers}]"
        if drafter.kind == "slots":
            verify += f" levels={drafter.block + 1}"
        return draft_and_verify(
            facts, self, drafted, options.nodes, models=(draft,),
            verify=f"{verify} features={STATES}",
            features=features_of(drafter), uncached=uncached_of(facts, (draft,)),
            states=(f"{STATES} = track target layer={layer}",), after=f"commit {STATES} %e",
        )  # fmt: skip


METHOD = PrunedHeads()
