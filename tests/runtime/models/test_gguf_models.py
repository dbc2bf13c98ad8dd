"""Models from GGUF files compute what `transformers` computes, and what our own blocks do."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("gguf")

from specplan.backends.bundle import load_bundle, write_bundle  # noqa: E402
from specplan.backends.bundle_executable import load_models  # noqa: E402
from specplan.backends.eager.backend import EagerBackend  # noqa: E402
from specplan.cost_models.models.model_shape import ModelShape  # noqa: E402
from specplan.cost_models.models.number_formats import number_format  # noqa: E402
from specplan.ir.errors import MissingCapabilityError, UsageError  # noqa: E402
from specplan.ir.files import model_digest  # noqa: E402
from specplan.planner.problem.loading import problem_from_dict  # noqa: E402
from specplan.runtime.generate import generate  # noqa: E402
from specplan.runtime.models.gguf.model import stock_model  # noqa: E402
from specplan.runtime.models.loading import load_model  # noqa: E402
from specplan.runtime.requests import Request  # noqa: E402
from specplan.runtime.tokenizer import load_tokenizer  # noqa: E402
from tests.backends.pairs import plain  # noqa: E402
from tests.runtime.models.gguf_models import SIZES, save_source, write_gguf  # noqa: E402

REFERENCE = Path(__file__).parents[3] / "examples/reference_models"


def logits_of(model: Any, count: int = 12) -> Any:
    """Of a fixed text, `[count, V]`."""
    tokens = (torch.arange(count)[None] * 37) % SIZES["vocab_size"]
    places = torch.arange(count)[None]
    mask = torch.ones(1, count, count, dtype=torch.bool).tril()
    return model.forward(tokens, places, places, mask, model.new_cache(1, count))[0]


def logits_of_stock(model: Any, count: int = 12) -> Any:
    """The same by `transformers`."""
    tokens = (torch.arange(count)[None] * 37) % SIZES["vocab_size"]
    with torch.no_grad():
        return model.eval()(tokens).logits[0].float()


def by_transformers(path: Path) -> Any:
    """The file as the reader of `transformers` has it; `from_pretrained` asks for accelerate."""
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint as read

    config = read(path)["config"]
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(**config), dtype=torch.float32
    )
    missing, unexpected = model.load_state_dict(
        read(path, return_tensors=True, model_to_load=model)["tensors"], strict=False
    )
    tied = {"lm_head.weight"} if config["tie_word_embeddings"] else set()
    assert not unexpected and {*missing} <= tied
    model.tie_weights()
    return model


@pytest.mark.parametrize(
    ("family", "kind", "tied"),
    [("llama", "F32", False), ("llama", "F16", True), ("qwen2", "BF16", False)],
)
def test_logits_are_those_of_transformers(
    family: str, kind: str, tied: bool, tmp_path: Path
) -> None:
    source = save_source(tmp_path / "source", family, tie_word_embeddings=tied)
    path = write_gguf(source, tmp_path / "a.gguf", lambda _: kind, architecture=family)
    model = load_model(path, dtype="float32")
    theirs = by_transformers(path)
    assert (logits_of(model) - logits_of_stock(theirs)).abs().max() < 1e-4
    assert logits_of_stock(stock_model(path, torch.float32)).equal(logits_of_stock(theirs))
    stored = load_model(path)
    wanted = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}[kind]
    assert stored.dtype == wanted and not stored.quantized
    shape = ModelShape.from_path(path)
    assert shape.dtype == str(wanted).removeprefix("torch.")
    assert shape.digest == model.digest == model_digest(path)
    assert ModelShape.from_path(path, "float32").weight_bytes == 4 * shape.parameters
    request = Request(prompt_tokens=(3, 5, 7, 11), max_new_tokens=8)
    made = generate(EagerBackend().compile(plain(), {"target": model}), [request])
    text = torch.tensor([request.prompt_tokens])
    with torch.no_grad():
        for _ in range(8):
            text = torch.cat([text, theirs(text).logits[:, -1:].argmax(-1)], 1)
    assert list(made.completions[0].tokens) == text[0, 4:].tolist()


@pytest.mark.parametrize("form", ["Q8_0", "Q4_0"])
@pytest.mark.parametrize(("family", "tied"), [("llama", True), ("qwen3", False)])
def test_blocks_are_taken_over_as_they_are(
    form: str, family: str, tied: bool, tmp_path: Path
) -> None:
    """The model is, bit by bit, what the checkpoint rounds to in these formats."""
    source = save_source(tmp_path / "source", family, tie_word_embeddings=tied)

    def kinds(name: str) -> str:
        return form if name.startswith("blk") else "Q8_0"

    path = write_gguf(source, tmp_path / "a.gguf", kinds, architecture=family)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = load_model(path)
    ours = load_model(source, dtype=form)
    assert model.quantized and model.dtype == torch.float32
    assert logits_of(model).equal(logits_of(ours))
    for mine, theirs in zip(model.family.layers, ours.family.layers, strict=True):
        for part in ("qkv", "output", "gate_up", "down"):
            pairs = zip(getattr(mine, part), getattr(theirs, part), strict=True)
            assert all(one.equal(other) for one, other in pairs)
    shape = ModelShape.from_path(path, "float32")
    assert shape.formats.mlp == number_format(form) and shape.digest == model.digest
    assert shape.formats.head == number_format("Q8_0")
    assert shape.formats.embedding == number_format("float32")
    if family == "llama":
        read = logits_of_stock(by_transformers(path))
        assert (logits_of_stock(stock_model(path, torch.float32)) - read).abs().max() < 1e-6


def test_other_blocks_run_as_numbers_and_a_sentence_says_so(tmp_path: Path) -> None:
    source = save_source(tmp_path / "source")

    def kinds(name: str) -> str:
        return {"blk.0.attn_v.weight": "Q5_0", "blk.1.ffn_down.weight": "Q4_1"}.get(name, "Q8_0")

    path = write_gguf(source, tmp_path / "a.gguf", kinds)
    with pytest.warns(UserWarning, match="weights in Q4_1, Q5_0, Q8_0 run as the float32 numbers"):
        model = load_model(path)
    first, second = model.family.layers
    assert isinstance(first.qkv, torch.Tensor) and isinstance(second.down, torch.Tensor)
    assert model.quantized and not isinstance(second.qkv, torch.Tensor)
    stock = by_transformers(path).model.layers
    joined = torch.cat([getattr(stock[0].self_attn, f"{name}_proj").weight for name in "qkv"])
    assert first.qkv.equal(joined) and second.down.equal(stock[1].mlp.down_proj.weight)


def test_rotary_factors_of_llama_3_are_kept(tmp_path: Path) -> None:
    scaled = {
        "rope_type": "llama3", "rope_theta": 10_000.0, "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 32,
    }  # fmt: skip
    source = save_source(tmp_path / "source", rope_parameters=scaled)
    made = transformers.AutoModelForCausalLM.from_pretrained(source)
    plain = 10_000.0 ** (-torch.arange(0, 16, 2) / 16)
    factors = {"rope_freqs.weight": plain / made.model.rotary_emb.inv_freq}
    path = write_gguf(source, tmp_path / "a.gguf", lambda _: "F32", factors)
    difference = logits_of(load_model(path), 64) - logits_of_stock(made, 64)
    assert difference.abs().max() < 1e-5
    assert (logits_of(load_model(path), 64) - logits_of_stock(made, 64)).abs().max() < 1e-5


def test_a_model_in_several_files_is_one_model(tmp_path: Path) -> None:
    source = save_source(tmp_path / "source")
    whole = write_gguf(source, tmp_path / "whole.gguf", lambda _: "F32")
    first = write_gguf(source, tmp_path / "part.gguf", lambda _: "F32", largest=9)
    assert first.name.startswith("part-00001-of-0000")
    model = load_model(first)
    assert logits_of(model).equal(logits_of(load_model(whole)))
    assert ModelShape.from_path(first).digest == model.digest == model_digest(first)
    next(tmp_path.glob("part-00002*")).unlink()
    with pytest.raises(UsageError, match="part-00002"):
        model_digest(first)


def test_tokenizers_come_from_the_file_or_from_beside_it(tmp_path: Path) -> None:
    folder = REFERENCE / "target"
    size = json.loads((folder / "config.json").read_text("utf-8"))["vocab_size"]
    source = save_source(tmp_path / "source", vocab_size=size)
    path = write_gguf(source, tmp_path / "a.gguf", lambda _: "F32", tokenizer=folder)
    text = "def mean(values):\n    return sum(values) / len(values)  # café"
    theirs = load_tokenizer(folder)
    inside = load_tokenizer(path)
    assert inside.encode(text) == theirs.encode(text)
    assert inside.decode(inside.encode(text)) == text and inside.stop_tokens == (0,)
    bare = write_gguf(source, tmp_path / "bare.gguf", lambda _: "F32")
    with pytest.raises(UsageError, match=r"bare\.gguf: cannot load a tokenizer"):
        load_tokenizer(bare)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(folder / name, tmp_path)
    assert load_tokenizer(bare).encode(text) == theirs.encode(text)


def test_problems_and_bundles_name_the_file(tmp_path: Path) -> None:
    """On this machine its plan is priced in the numbers that it runs in."""
    source = save_source(tmp_path / "source")
    blocks = write_gguf(source, tmp_path / "blocks.gguf", lambda _: "Q8_0")
    value = {
        "schema_version": 1,
        "models": {"target": {"path": "blocks.gguf"}},
        "device": "measured",
        "backend": "eager",
        "workload": {
            "batch_sizes": [1], "prompt_tokens": 20, "output_tokens": 10, "temperature": 0.0
        },
    }  # fmt: skip
    with pytest.raises(UsageError, match="holds no tokenizer"):
        problem_from_dict(value, tmp_path)
    shutil.copy(REFERENCE / "target/tokenizer.json", tmp_path)
    assert problem_from_dict(value, tmp_path).models.target.dtype == "float32"
    elsewhere = problem_from_dict(value | {"device": "h100-sxm"}, tmp_path)
    assert elsewhere.models.target.dtype == "auto"
    expected = logits_of(load_model(blocks))
    for copied in (False, True):
        bundle = write_bundle(
            tmp_path / f"bundle-{copied}",
            plan=plain(),
            problem=value,
            report={},
            models={"target": (blocks, "auto")},
            backend="eager",
            versions={},
            copy_weights=copied,
        )
        loaded = load_bundle(bundle.folder)
        loaded.check_models()
        assert loaded.model_folder("target").is_relative_to(bundle.folder) is copied
        assert logits_of(load_models(loaded)["target"]).equal(expected)
    assert (bundle.folder / "models/target/tokenizer.json").is_file()


def test_what_does_not_run_is_refused_by_name(tmp_path: Path) -> None:
    source = save_source(tmp_path / "source")
    blocks = write_gguf(source, tmp_path / "blocks.gguf", lambda _: "Q8_0")
    for options, reason in (
        ({"dtype": "bfloat16"}, "runs in float32, not in bfloat16"),
        ({"streamed": 1}, "cannot be read in every pass"),
    ):
        with pytest.raises(MissingCapabilityError, match=reason):
            load_model(blocks, **options)
    with pytest.raises(UsageError, match="states the format"):
        load_model(blocks, dtype="Q8_0")
    other = write_gguf(source, tmp_path / "gemma.gguf", lambda _: "F32", architecture="gemma")
    with pytest.raises(MissingCapabilityError, match="architecture 'gemma' do not run"):
        load_model(other)
    unknown = write_gguf(source, tmp_path / "rwkv.gguf", lambda _: "F32", architecture="rwkv6")
    with pytest.raises(MissingCapabilityError, match="'rwkv6'"):
        load_model(unknown)
    scaled = write_gguf(source, tmp_path / "scaled.gguf", lambda _: "F32", scaling="yarn")
    with pytest.raises(MissingCapabilityError, match="scaling 'yarn'"):
        load_model(scaled)
    more = {"blk.0.attn_sinks.weight": torch.zeros(4)}
    unread = write_gguf(source, tmp_path / "more.gguf", lambda _: "F32", more)
    with pytest.raises(UsageError, match=r"no tensor blk\.0\.attn_sinks"):
        load_model(unread)
