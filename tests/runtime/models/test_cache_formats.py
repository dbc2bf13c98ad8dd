"""Keys and values in another format than the model's are rounded once, and read as they were."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from torch import Tensor  # noqa: E402

from specplan.cost_models.models.model_shape import ModelShape  # noqa: E402
from specplan.cost_models.models.number_formats import CACHE_FORMATS  # noqa: E402
from specplan.ir.errors import UsageError  # noqa: E402
from specplan.runtime.models.attention import Packing  # noqa: E402
from specplan.runtime.models.cache_parts.number_types import (  # noqa: E402
    STORED,
    rounded,
    widened,
)
from specplan.runtime.models.causal import CausalModel  # noqa: E402
from specplan.runtime.models.kv_cache import CacheWriter, KVCache  # noqa: E402
from specplan.runtime.models.loading import load_model  # noqa: E402
from specplan.runtime.models.packed import PackedColumns, hidden_of_pack  # noqa: E402
from tests.runtime.tiny_models import save_tiny  # noqa: E402

BITS = {"float16": (5, 10), "bfloat16": (8, 7), "fp8": (4, 3)}
"""Of exponent and mantissa."""
LARGEST = {"float16": 65504.0, "fp8": 448.0}
TEXTS = [[3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1, 8, 2]]


def nearest(number: float, form: str) -> float:
    """A number with so many bits, halves to the even mantissa, no larger than the largest."""
    exponent, mantissa = BITS[form]
    lowest = 2 - 2 ** (exponent - 1)  # of normal numbers
    scale = 0 if number == 0 else torch.frexp(torch.tensor(abs(number))).exponent.item() - 1
    step = 2.0 ** (max(scale, lowest) - mantissa)
    most = LARGEST.get(form, float("inf"))
    return float(max(-most, min(most, round(number / step) * step)))


@pytest.mark.parametrize("form", CACHE_FORMATS)
def test_numbers_are_rounded_to_the_nearest_of_the_format(form: str) -> None:
    draws = torch.randn(400, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    sizes = 2.0 ** torch.linspace(-12, 8, 400)
    numbers = [*(draws * sizes).float().tolist(), 0.0, 448.0, 1.0625, 1.1875, 464.0, 1e6, -1e6]
    stored = rounded(torch.tensor(numbers), STORED[form])
    assert stored.dtype == STORED[form]
    assert widened(stored, torch.float32).tolist() == [nearest(one, form) for one in numbers]


class _Rounding(KVCache):
    """A cache of the model's own type that receives rounded keys and values."""

    form: str

    def writer(self, positions: Tensor, slots: Tensor, used: int) -> CacheWriter:
        made = CacheWriter(self, positions, slots, used)
        update = made.update

        def rounding(
            keys: Tensor, values: Tensor, layer: int, *_: object, **__: object
        ) -> tuple[Tensor, Tensor]:
            apply = [
                torch.tensor([nearest(x, self.form) for x in one.flatten().tolist()])
                for one in (keys, values)
            ]
            return update(apply[0].view_as(keys), apply[1].view_as(values), layer)

        made.update = rounding  # type: ignore[assignment,method-assign]
        return made


def read(model: CausalModel, cache: KVCache, packed: bool = False) -> Tensor:
    """Logits of the latest tokens of two texts of other lengths, read in one pass."""
    width = max(map(len, TEXTS))
    tokens = torch.zeros(2, width, dtype=torch.int64)
    slots = torch.full_like(tokens, cache.trash)
    mask = torch.zeros(2, width, width, dtype=torch.bool)
    for row, text in enumerate(TEXTS):
        tokens[row, : len(text)] = torch.tensor(text)
        slots[row, : len(text)] = torch.arange(len(text))
        mask[row, : len(text), : len(text)] = torch.ones(len(text), len(text)).tril().bool()
    positions = torch.where(slots < cache.trash, slots, 0)
    if packed:
        packing = Packing.of([range(len(text)) for text in TEXTS], width, tokens.device)
        columns = PackedColumns(tokens, positions, slots, mask, packing)
        states = hidden_of_pack(model, columns, cache)
    else:
        states = model.hidden(tokens, positions, slots, mask, cache)
    return model.logits(states, torch.tensor([[len(text) - 1] for text in TEXTS]))


@pytest.mark.parametrize("form", CACHE_FORMATS)
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_pass_attends_to_rounded_keys_and_values(form: str, family: str, tmp_path: Path) -> None:
    """Also to those that it stores itself; in one row, in several, and without padding."""
    folder = save_tiny(family, tmp_path / family)
    whole, model = load_model(folder), load_model(folder, cache=form)
    cache, plain = model.new_cache(2, 12, queries=True), whole.new_cache(2, 12)
    assert cache.queries is not None and cache.queries[0].dtype == torch.float32
    shrunk = sum(one.nbytes for one in (*plain.keys, *plain.values)) / sum(
        one.nbytes for one in (*cache.keys, *cache.values)
    )
    assert shrunk == (4 if form == "fp8" else 2)
    defined = _Rounding(plain.keys, plain.values, plain.positions)
    defined.form = form
    logits, expected = read(model, cache), read(whole, defined)
    assert logits.equal(expected)
    assert (logits - read(whole, whole.new_cache(2, 12))).abs().max() > 1e-5
    if model.packs:
        assert (read(model, model.new_cache(2, 12), packed=True) - logits).abs().max() < 1e-5
    one, places = model.new_cache(1, 12), torch.arange(len(TEXTS[0]))[None]
    mask = torch.ones(1, len(TEXTS[0]), len(TEXTS[0]), dtype=torch.bool).tril()
    whole_text = model.forward(torch.tensor(TEXTS[:1]), places, places, mask, one)[0, -1]
    assert (whole_text - logits[0, 0]).abs().max() < 1e-5
    for place in (6, 7):  # token by token, the last of them to other slots
        at = torch.tensor([[place]])
        again = model.forward(
            torch.tensor([[TEXTS[0][place]]]), at, at, mask[:, place : place + 1], one
        )
    assert (again[0, 0] - whole_text).abs().max() < 1e-5


def test_it_is_another_model_with_the_identity_that_the_planner_knows(tmp_path: Path) -> None:
    folder = save_tiny("llama", tmp_path / "llama")
    whole = load_model(folder)
    digests = {form: load_model(folder, cache=form).digest for form in CACHE_FORMATS}
    assert len({whole.digest, *digests.values()}) == 4
    for form, digest in digests.items():
        shape = ModelShape.from_folder(folder, "float32", kv_format=form)
        assert (shape.digest, shape.kv_format.name) == (digest, form)
    own, stated = (load_model(folder, dtype="bfloat16", cache=x) for x in (None, "bfloat16"))
    assert own.digest == stated.digest == whole.digest, "it stores them so anyway"
    assert ModelShape.from_folder(folder, "bfloat16", kv_format="bfloat16").digest == own.digest
    with pytest.raises(UsageError, match="are not stored in int8 here"):
        load_model(folder, cache="int8")
