"""Parts of a cache that a query retrieves: the chunks whose mean keys agree best with it.

TriForce (Sun et al. 2024, arXiv 2404.11912, section 4.1, and `RetrievalCache` of its code) ranks
chunks of consecutive tokens, per layer and head, by the product of the query and the mean of their
keys, rotated by their positions as in the cache, and always keeps the first chunk. Its models have
one query head per key head; if several share one, their queries are added here.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specplan.runtime.models.cache_parts.number_types import widened
from specplan.runtime.models.kv_cache import KVCache

LATEST_CHUNKS = 2
"""Chunks at the end of a text that are always kept; the last one may be incomplete."""


def retrieve(
    into: KVCache, whole: KVCache, lengths: Sequence[int], budget: int, chunk: int
) -> list[int]:
    """Fill a small cache with the chunks that the queries of the latest text tokens retrieve.

    Every layer and key/value head gets chunks of its own, in the order of the text, from slot 0 on:
    the first one, the latest two and the best ranked others, of equals the earlier. A text that is
    no longer than the budget is copied whole.

    Args:
        into: the small cache; the positions of its slots are invalid afterwards.
        whole: the cache with the text at its first slots, and with queries; of one row for all, or
            of as many as `into`.
        lengths: tokens of the text that each row sees.
        budget: most tokens that are kept, two chunks or more.
        chunk: tokens of a chunk.

    Returns:
        Omitted tokens of each row's text.
    """
    assert whole.queries is not None, "a cache to retrieve from stores queries"
    places = budget // chunk
    omitted = [
        max(-(-length // chunk) - places, 0) * chunk if length > budget else 0 for length in lengths
    ]
    size = max(length - left for length, left in zip(lengths, omitted, strict=True))
    if not size:
        return omitted
    ends = torch.tensor(lengths, device=whole.positions.device)
    shortened = torch.tensor(omitted, device=ends.device) > 0
    slot = torch.arange(size, device=ends.device)
    stores = zip(whole.keys, whole.values, into.keys, into.values, whole.queries, strict=True)
    for keys, values, new_keys, new_values, query in stores:
        source = slot.expand(len(omitted), keys.shape[1], -1)
        if any(omitted):
            best = best_chunks(keys, query, ends, chunk, places)
            rank = (slot // chunk).clamp(max=places - 1).expand_as(source)
            chosen = best.gather(2, rank) * chunk + slot % chunk
            source = torch.where(shortened[:, None, None], chosen, source)
        source = source.clamp(max=keys.shape[2] - 1)  # shorter texts end earlier
        wide = source[:, :, :, None].expand(-1, -1, -1, keys.shape[3])
        for old, new in ((keys, new_keys), (values, new_values)):
            new[:, :, :size] = old.expand(len(omitted), -1, -1, -1).gather(2, wide)
    return omitted


def best_chunks(keys: Tensor, query: Tensor, lengths: Tensor, chunk: int, places: int) -> Tensor:
    """Numbers of the chunks that are kept, rising, int64 `[B, H_kv, places]`.

    Args:
        keys: `[1 or B, H_kv, S, head_dim]`.
        query: `[B, H_kv, head_dim]`.
        lengths: int64 `[B]`, tokens of each text; rows of fewer than `places` chunks get numbers
            that mean nothing.
        chunk: tokens of a chunk.
        places: chunks that are kept, no more than the longest text has.
    """
    count = -(-int(lengths.max()) // chunk)
    whole = count - 1  # an incomplete last chunk is kept in any case
    exact = torch.promote_types(query.dtype, torch.float32)
    keys = widened(keys, query.dtype)
    means = keys[:, :, : whole * chunk].unflatten(2, (whole, chunk)).mean(3, dtype=exact)
    scores = (means * query[:, :, None].to(exact)).sum(3)
    scores = torch.nn.functional.pad(scores, (0, 1))
    number = torch.arange(count, device=keys.device)
    last = (lengths[:, None] - 1) // chunk
    latest = (number <= last) & (number > last - min(LATEST_CHUNKS, places - 1))
    scores = scores.masked_fill(((number == 0) | latest)[:, None], torch.inf)
    scores = scores.masked_fill((number > last)[:, None], -torch.inf)
    order = scores.sort(dim=2, descending=True, stable=True).indices
    return order[:, :, :places].sort(dim=2).values
