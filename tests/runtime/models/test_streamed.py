"""Layers that are read in every pass compute what layers in memory compute, in bounded memory."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from specplan.ir.errors import MissingCapabilityError, UsageError  # noqa: E402
from specplan.runtime.models import streamed  # noqa: E402
from specplan.runtime.models.loading import load_model  # noqa: E402
from specplan.runtime.models.streamed import LayerFiles, streamed_of, without_reads  # noqa: E402

EVERY = 1 << 40
LAYERS = 5


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target with biases and windows in some layers, in two files of bfloat16."""
    folder = tmp_path_factory.mktemp("qwen")
    torch.manual_seed(3)
    config = transformers.Qwen2Config(
        vocab_size=61, hidden_size=64, intermediate_size=96, num_hidden_layers=LAYERS,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
        initializer_range=0.3, use_sliding_window=True, sliding_window=8, max_window_layers=2,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    model = transformers.Qwen2ForCausalLM(config)
    for layer in model.model.layers:
        torch.nn.init.normal_(layer.self_attn.q_proj.bias)
    model.to(torch.bfloat16).save_pretrained(folder, max_shard_size="150KB")
    assert len([*folder.glob("*.safetensors")]) > 1
    return folder


@contextmanager
def window_of(size: int) -> Iterator[None]:
    """Files read by windows of so many bytes."""
    before, streamed.WINDOW = streamed.WINDOW, size
    try:
        yield
    finally:
        streamed.WINDOW = before


def passes(model: Any) -> list[torch.Tensor]:
    """Logits of a prompt, of single tokens, and of layers in two spans."""
    cache, answers = model.new_cache(1, 40), []
    for first, last in ((0, 20), (20, 21), (21, 29)):
        tokens = torch.arange(first, last)[None] * 7 % 61
        place = torch.arange(first, last)[None]
        seen = torch.arange(last) <= place[..., None]
        answers.append(model.forward(tokens, place, place, seen, cache))
    place = torch.tensor([[29]])
    seen = (torch.arange(30) <= 29)[None, None]
    low = model.hidden(place, place, place, seen, cache, (0, 2))
    answers.append(model.hidden(place, place, place, seen, cache, (2, LAYERS), low))
    return answers


@pytest.mark.parametrize(("count", "dtype", "window"), [
    (EVERY, "bfloat16", 4 << 20), (3, "float32", 4096), (4, "float64", 8192),
])  # fmt: skip
def test_passes_are_those_in_memory(qwen: Path, count: int, dtype: str, window: int) -> None:
    whole = load_model(qwen, dtype=dtype)
    with window_of(window):
        read = load_model(qwen, dtype=dtype, streamed=count)
        for ours, theirs in zip(passes(read), passes(whole), strict=True):
            assert torch.equal(ours, theirs)
    assert (read.digest, read.num_layers) == (whole.digest, whole.num_layers) == (whole.digest, 5)


def test_memory_holds_two_layers_and_a_window(qwen: Path) -> None:
    whole, read = (load_model(qwen, dtype="float32", streamed=n) for n in (0, EVERY))

    def size(model: Any) -> int:
        tensors = {t.untyped_storage().data_ptr(): t for t in model.weights().values()}
        return sum(tensor.untyped_storage().nbytes() for tensor in tensors.values())

    layers = streamed_of(read)
    assert layers is not None and len(layers) == LAYERS
    layer = 2 * layers.files.size(0)  # in float32
    assert size(whole) - (size(read) - streamed.WINDOW) == pytest.approx(3 * layer, rel=0.01)
    passes(read)
    assert size(whole) - (size(read) - streamed.WINDOW) == pytest.approx(3 * layer, rel=0.01)


def test_layers_that_are_not_read_run_for_their_time_alone(qwen: Path) -> None:
    read = load_model(qwen, dtype="float32", streamed=EVERY)
    before = passes(read)
    with without_reads([read]):
        assert not torch.equal(passes(read)[0], before[0])
    assert all(map(torch.equal, passes(read), before))


def test_a_damaged_file_is_one_error(qwen: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(qwen, folder)
    read = load_model(folder, streamed=EVERY)
    last = sorted(folder.glob("*.safetensors"))[-1]
    raw = last.read_bytes()
    with last.open("r+b") as file:  # while it runs
        file.truncate(len(raw) // 4)
    with pytest.raises(UsageError, match=r"ends after .* bytes, and a layer needs") as error:
        passes(read)
    assert str(last) in str(error.value) and "save the checkpoint again" in str(error.value)
    with pytest.raises(UsageError, match="length does not match"):
        load_model(folder, streamed=EVERY)
    last.unlink()
    with pytest.raises(UsageError, match=f"{last.name}, which is missing"):
        LayerFiles(folder)


def test_models_whose_layers_cannot_be_read_are_refused(qwen: Path, tiny: Any) -> None:
    for folder, count, dtype in (
        (tiny("gpt2"), EVERY, "auto"),
        (qwen, 2, "auto"),
        (qwen, 4, "Q8_0"),
    ):
        with pytest.raises(MissingCapabilityError, match="cannot be read in every pass"):
            load_model(folder, dtype=dtype, streamed=count)
