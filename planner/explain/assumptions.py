"""What an explanation takes for granted."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from specplan.cost_models.acceptance.drafters import Drawn, Model
from specplan.cost_models.devices.device import UnpricedError
from specplan.planner.drafters.sharing import sharing_words
from specplan.planner.search.candidates import judged
from specplan.planner.search.search import SearchResult
from specplan.planner.serving.pools import pool_of, pool_words
from specplan.planner.trees.candidates import DEPTH, NODES, left_by_trees

_WORTH_TELLING = 5e-5
"""Trees that would save less than this fraction of the time are not mentioned."""


def assumptions(result: SearchResult) -> list[str]:
    """Where times and acceptance come from, and what was left out of the search and the prices."""
    facts = result.facts
    texts = [f"time on {facts.device.name} {facts.device.basis(facts.shapes.values())}"]
    if facts.capabilities is not None and facts.capabilities.device_words:
        texts.append(facts.capabilities.device_words)
    for name, shape in facts.shapes.items():
        if not shape.states_dtype:
            texts.append(f'"{name}" is {shape.dtype}: its config.json states no dtype')
    if facts.measured.plans:
        plans = len({plan.plan for plan in facts.measured.plans})
        turns = sum(plan.turns for plan in facts.measured.plans)
        kinds = "1 plan" if plans == 1 else f"{plans} plans"
        texts.append(f"prices were set right by {turns} runs of {kinds}")
    for drafter, profile in facts.profiles.items():
        texts.append(f'the acceptance of "{drafter}" {profile.source}')
    run = result.chosen.plan.models_run if result.chosen.plan is not None else ()
    texts += [words for name, words in sharing_words(facts).items() if name in run]
    if (pool := pool_of(facts.problem, facts.target, 0)) is not None:
        texts.append(pool_words(pool))
    texts += _untried(result)
    for place in result.chosen.alone:
        point = result.chosen.estimates[place]
        texts.append(
            f"at batch {point.batch}, prompts of {point.prompt_tokens}, no drafting model is loaded"
        )
    for estimate in result.chosen.estimates:
        texts += [words for words in estimate.assumptions if words not in texts]
        if estimate.extrapolated:
            texts.append(f"batch {estimate.batch} lies outside of what was measured")
    return texts


def _untried(result: SearchResult) -> Iterator[str]:
    """What trees that were not tried might save, of each model whose static tree is judged."""
    facts, loads = result.facts, _loads(result)
    ran: dict[Model | Drawn, list[int]] = {}
    for part, cells in result.chosen.parts:
        tree, draft = judged(part), part.drafter
        if not isinstance(draft, Model | Drawn) or draft.name not in facts.shapes or tree is None:
            continue
        if tree.parents is not None and not tree.is_chain:
            ran.setdefault(draft, []).extend(loads[cell] for cell in cells)
    for draft, places in ran.items():
        try:
            left = left_by_trees(facts, draft, places)
        except UnpricedError:  # every size and depth was tried
            continue
        if left >= _WORTH_TELLING:
            yield (
                f'of the static trees by "{draft}", of up to {max(NODES)} nodes and {DEPTH} '
                f"levels, those that were not tried might save at most {left:.2%} of the time"
            )


def _loads(result: SearchResult) -> list[int]:
    """The place of every cell among all loads of the problem, those left out counted."""
    lengths = result.facts.problem.workload.lengths or [0]
    loads = product(result.facts.batch_sizes, lengths)
    return [place for place, load in enumerate(loads) if load not in result.left_out]
