"""Queries that a cache keeps, and the chunks that they retrieve, against their definitions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from specplan.runtime.models.cache_parts.retrieval import retrieve
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.kv_cache import KVCache
from specplan.runtime.models.loading import load_model
from tests.runtime.tiny_models import VOCABULARY

Folder = Callable[..., Path]
LAYERS, HEADS, WIDTH = 2, 3, 4


def cache_of(batch: int, slots: int, seed: int) -> KVCache:
    """Random keys, values and queries."""
    generator = torch.Generator().manual_seed(seed)

    def numbers(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    def stored() -> list[torch.Tensor]:
        return [numbers(batch, HEADS, slots, WIDTH) for _ in range(LAYERS)]

    made = KVCache(stored(), stored(), torch.zeros(batch, slots, dtype=torch.int64))
    made.queries = [numbers(batch, HEADS, WIDTH) for _ in range(LAYERS)]
    return made


def retained_by_definition(
    keys: list[list[float]], query: list[float], budget: int, chunk: int
) -> list[int]:
    """Tokens that one head keeps of a text, written out slowly."""
    length = len(keys)
    if length <= budget:
        return list(range(length))
    chunks = [list(range(at, min(at + chunk, length))) for at in range(0, length, chunk)]
    places = budget // chunk
    always = [0, len(chunks) - 1]
    if places > 2 and len(chunks) - 2 not in always:
        always.append(len(chunks) - 2)

    def score(number: int) -> float:
        tokens = chunks[number]
        mean = [sum(keys[token][i] for token in tokens) / len(tokens) for i in range(len(query))]
        return sum(m * q for m, q in zip(mean, query, strict=True))

    others = sorted(set(range(len(chunks))) - set(always), key=lambda number: -score(number))
    best = sorted([*always, *others[: places - len(always)]])
    return [token for number in best for token in chunks[number]]


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=4),
    chunk=st.integers(1, 6),
    extra=st.integers(0, 20),
    one_text=st.booleans(),
    seed=st.integers(0, 9),
)
def test_what_is_kept_is_what_the_definition_says(
    lengths: list[int], chunk: int, extra: int, one_text: bool, seed: int
) -> None:
    budget = 2 * chunk + extra
    whole = cache_of(len(lengths), max(lengths) + 1, seed)
    if one_text:  # the same cache for all rows, each with a query of its own
        whole.keys = [cached[:1] for cached in whole.keys]
        whole.values = [cached[:1] for cached in whole.values]
    small = cache_of(len(lengths), budget + 3, seed + 100)
    gone = retrieve(small, whole, lengths, budget, chunk)
    assert whole.queries is not None
    for row, length in enumerate(lengths):
        source = 0 if one_text else row
        for layer in range(LAYERS):
            for head in range(HEADS):
                keys, values = (
                    cached[layer][source, head] for cached in (whole.keys, whole.values)
                )
                query = whole.queries[layer][row, head].tolist()
                retained = retained_by_definition(keys[:length].tolist(), query, budget, chunk)
                assert len(retained) == length - gone[row] <= budget
                assert torch.equal(small.keys[layer][row, head, : len(retained)], keys[retained])
                assert torch.equal(
                    small.values[layer][row, head, : len(retained)], values[retained]
                )


def test_a_planted_chunk_is_found_by_the_head_that_asks_for_it() -> None:
    whole = cache_of(1, 65, 0)
    assert whole.queries is not None
    whole.keys[1][0, 2, 24:28] = 5.0 * whole.queries[1][0, 2]
    small = cache_of(1, 20, 1)
    assert retrieve(small, whole, [64], 16, 4) == [48]
    planted = whole.keys[1][0, 2, 24:28]
    assert torch.equal(small.keys[1][0, 2, 4:8], planted)
    assert not (small.keys[1][0, 1, :16, None] == whole.keys[1][0, 1, 24:28]).all(-1).any(0).all()


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", ["llama", "qwen3", "gpt2", "opt", "opt_post_norm"])
def test_queries_are_those_of_stock_attention(name: str, tiny: Folder) -> None:
    """Keys times what is kept rank as the product of a stock model's weights over a head's group.

    Two texts of different lengths in one batch, in two passes, of which the shorter text takes part
    in the first only.
    """
    folder = tiny(name)
    stock = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float64, attn_implementation="eager"
    ).eval()
    model = load_model(folder, dtype="float64")
    texts = [[(7 * i + 3) % VOCABULARY for i in range(n)] for n in (9, 14)]
    cache = model.new_cache(2, 20, queries=True)
    written(model, cache, texts, 0, 9)
    written(model, cache, texts, 9, 14)
    assert cache.queries is not None
    for row, text in enumerate(texts):
        weights = stock(torch.tensor([text]), output_attentions=True).attentions
        for layer, seen in enumerate(weights):
            asked, keys = cache.queries[layer][row], cache.keys[layer][row, :, : len(text)]
            ours = (keys * asked[:, None]).sum(-1)
            theirs = seen[0, :, -1].log().unflatten(0, (len(asked), -1)).sum(1)
            ours, theirs = (x - x.mean(-1, keepdim=True) for x in (ours, theirs))
            match = torch.nn.functional.cosine_similarity(ours, theirs, dim=-1)
            assert match.min() > 1 - 1e-9


def written(
    model: CausalModel, cache: KVCache, texts: list[list[int]], start: int, stop: int
) -> None:
    """Read tokens `start` to `stop` of texts; those that end earlier have dead lanes."""
    places = torch.arange(start, stop).expand(len(texts), -1)
    live = places < torch.tensor([[len(text)] for text in texts])
    tokens = torch.tensor(
        [[text[i] if i < len(text) else 0 for i in range(start, stop)] for text in texts]
    )
    slots = places.where(live, cache.trash)
    mask = torch.arange(stop) <= places[:, :, None]
    model.hidden(tokens, places, slots, mask, cache, latest=live.sum(1) - 1)
