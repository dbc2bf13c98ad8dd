"""What it takes to fill a part of a cache from the whole: tokens that are copied or ranked, bytes.

Selected tokens are read and written. Chunks are ranked by the mean of their keys
(arXiv 2404.11912, section 4.1), so that all keys of a text are read where it exceeds the budget.
"""

from __future__ import annotations

from specplan.cost_models.cost import Quantity, minimum, where_less
from specplan.cost_models.models.model_shape import ModelShape
from specplan.ir.plan import CacheState
from specplan.ir.tables.builtin import BUILTIN


def refresh_width(view: CacheState, context: Quantity) -> Quantity:
    """The width by which a device knows a refresh: tokens kept at most, or chunks of the text.

    Args:
        view: a part of a cache, which says its budget.
        context: tokens of text.
    """
    if not view.retrieves:
        return view.budget or 1
    return -(-context // chunk_of(view))


def refresh_bytes(view: CacheState, shape: ModelShape, context: Quantity) -> Quantity:
    """Bytes of one request that a refresh reads and writes.

    Args:
        view: see `refresh_width`.
        shape: of its model.
        context: tokens of text.
    """
    token = cache_elements(shape) * shape.kv_format.bytes_per_element
    budget = context if view.budget is None else view.budget
    moved = 2 * minimum(context, budget) * token
    if view.retrieves:
        moved += where_less(budget, context, context, 0) * token / 2  # keys are half of it
    return moved


def choice_bytes(view: CacheState, shape: ModelShape) -> float:
    """Bytes of one request by which heads choose what a view holds; 0 where they do not.

    Chunks are retrieved by a query of each layer and key/value head, as large as a key; of a prompt
    that was observed each keeps the places of as many tokens as the budget has.
    """
    if view.observes:
        return 8 * sum(shape.kv_heads) * (view.budget or 0)
    queries = cache_elements(shape) * shape.kv_format.bytes_per_element / 2
    return queries if view.retrieves else 0


def chunk_of(view: CacheState) -> int:
    """Tokens of a chunk of a view that retrieves some."""
    declared = None if view.policy is None else BUILTIN.find("policy", view.policy.name)
    assert declared is not None and view.policy is not None
    return int(declared.arguments(view.policy)["chunk"])


def cache_elements(shape: ModelShape) -> int:
    """Cached numbers of a token in all layers."""
    kinds = shape.kinds(0, shape.num_layers).attentions
    return sum(layers * attention.cached_elements for attention, layers in kinds)
