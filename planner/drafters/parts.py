"""What parts of a problem's models may draft, and how small caches are kept."""

from __future__ import annotations

from collections.abc import Mapping

from specplan.cost_models.acceptance.drafters import Drafter, model_of
from specplan.cost_models.models.drafter_shapes import DrafterShape
from specplan.cost_models.models.model_shape import ModelShape
from specplan.ir.plan import MODULE_PREFIX
from specplan.ir.tables.builtin import BUILTIN


def _default(policy: str, parameter: str) -> int:
    """The default of a cache policy's parameter, as the plan language declares it."""
    declared = BUILTIN.find("policy", policy)
    assert declared is not None, policy
    default = dict(declared.parameters)[parameter]
    assert isinstance(default, int)
    return default


SINKS = _default("sink_recent", "sink")
"""First tokens that a cache with a budget keeps: MagicDec's 16 (arXiv 2408.11049)."""
CHUNK = _default("retrieved", "chunk")
"""Tokens of a chunk that is retrieved: TriForce's 8 (arXiv 2404.11912, its code)."""
WINDOW, POOL = _default("observed", "window"), _default("observed", "pool")
"""Last tokens of a prompt that vote for what is kept of it, and over how many neighbours votes are
smoothed: SnapKV's 32 and 5 (arXiv 2404.14469, its code)."""
NO_HEADS_AHEAD = "models.drafts names no heads for several tokens ahead"
"""Why a method does not draft where `heads_ahead` is empty."""
EXITS = (1 / 16, 1 / 8, 1 / 4)
"""Parts of the stack after which a target drafts; those of LayerSkip (arXiv 2404.16710) are 1/8
(70B), 1/4 (7B) and 3/8 (13B)."""


def heads_by_token(drafters: Mapping[str, DrafterShape]) -> tuple[str, ...]:
    """Roles of the heads that draft one token at a time, from hidden states."""
    kinds = ("recurrent", "regressive")
    return tuple(name for name, drafter in drafters.items() if drafter.kind in kinds)


def heads_ahead(drafters: Mapping[str, DrafterShape]) -> dict[str, int]:
    """Roles of the heads that draft several tokens from one state, and how many."""
    return {name: one.block for name, one in drafters.items() if one.kind == "parallel"}


def streams_ahead(drafters: Mapping[str, DrafterShape]) -> dict[str, int]:
    """Roles of the slots of the target that enter in the middle of its stack, and how many."""
    return {n: one.block for n, one in drafters.items() if one.kind == "slots" and one.enters}


def stores_of(drafters: Mapping[str, DrafterShape]) -> tuple[str, ...]:
    """Roles of the stores of the target's states over a corpus."""
    return tuple(name for name, drafter in drafters.items() if drafter.kind == "neighbours")


def head_family(drafters: Mapping[str, DrafterShape], drafter: Drafter | None) -> str:
    """The family of the head that drafts; "" for other drafters, and for modules of the target."""
    role = model_of(drafter)
    return drafters[role].family if role is not None and role in drafters else ""


def models_alone(shapes: Mapping[str, ModelShape]) -> tuple[str, ...]:
    """Roles of the draft models that read no hidden states of the target.

    Args:
        shapes: by role, `target` among them.
    """
    return tuple(
        role
        for role, shape in shapes.items()
        if role != "target" and not role.startswith(MODULE_PREFIX) and shape.feature_width is None
    )


def exit_layers(target: ModelShape) -> tuple[int, ...]:
    """The layers after which a target drafts, in rising order; none where it has one layer."""
    layers = {max(1, round(part * target.num_layers)) for part in EXITS}
    return tuple(sorted(layer for layer in layers if layer < target.num_layers))


def retrieves(target: ModelShape) -> bool:
    """Whether chunks of its cache can be retrieved: every layer reads the whole text."""
    kinds = target.kinds(0, target.num_layers).attentions
    return all(attention.reach is None for attention, _ in kinds)
