"""Matrices in blocks are those of llama.cpp, and products with them those of ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from specplan.cost_models.models.model_shape import ModelShape  # noqa: E402
from specplan.cost_models.models.number_formats import RUN_FORMATS, number_format  # noqa: E402
from specplan.ir.errors import MissingCapabilityError, UsageError  # noqa: E402
from specplan.runtime.models.loading import load_model  # noqa: E402
from specplan.runtime.models.quantized import BLOCK, linear, quantize  # noqa: E402
from tests.runtime.tiny_models import save_tiny  # noqa: E402

REFERENCE = Path(__file__).parents[3] / "examples/reference_models"


def of_ggml(block: np.ndarray, form: str) -> tuple[np.ndarray, np.float16]:
    """Codes and scale of one block: ggml-quants.c, loop by loop."""
    if form == "Q8_0":
        scale = np.float32(max(abs(float(x)) for x in block)) / np.float32(127)
        inverse = np.float32(1) / scale if scale else np.float32(0)
        steps = [float(np.float32(x) * inverse) for x in block]
        codes = [int(np.sign(s) * np.floor(abs(s) + 0.5)) for s in steps]  # roundf
        return np.array(codes) + 128, np.float16(scale)
    largest = max(block, key=lambda x: abs(float(x)))
    scale = np.float32(largest) / np.float32(-8)
    inverse = np.float32(1) / scale if scale else np.float32(0)
    codes = [min(15, int(np.float32(x) * inverse + np.float32(8.5))) for x in block]
    return np.array(codes), np.float16(scale)


@pytest.mark.parametrize("form", RUN_FORMATS)
def test_codes_and_scales_are_those_of_ggml(form: str) -> None:
    weight = torch.randn(6, 96, generator=torch.Generator().manual_seed(1))
    weight[2, :32] = 0.0
    made = quantize(weight, form)
    codes = made.codes.numpy()
    if RUN_FORMATS[form] == 4:
        codes = np.stack([codes & 15, codes >> 4], -1).reshape(6, 3, BLOCK)
    for row in range(6):
        for number in range(3):
            block = weight[row, BLOCK * number :][:BLOCK].numpy()
            wanted, scale = of_ggml(block, form)
            assert codes[row, number].tolist() == wanted.tolist()
            assert made.scales[row, number].item() == scale
            values = (wanted - (128 if form == "Q8_0" else 8)) * np.float32(scale)
            assert made.values[row, BLOCK * number :][:BLOCK].tolist() == values.tolist()


@pytest.mark.parametrize("form", RUN_FORMATS)
@pytest.mark.parametrize("rows", [1, 5, 40])
def test_products_are_those_of_the_runtime(form: str, rows: int) -> None:
    """By its op on codes and scales; 1e-6 is what sums in another order differ by."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    from specplan.backends.onnxruntime.cpu_kernels.definition import are_as_defined, product_here

    draws = torch.Generator().manual_seed(2)
    matrix = quantize(torch.randn(48, 128, generator=draws), form)
    inputs = torch.randn(rows, 128, generator=draws)
    inputs[0, :32] = 0.0
    ours, exact = linear(inputs, matrix), inputs @ matrix.values.T
    assert (ours - exact).abs().max() > 1e-4 * exact.abs().max(), "activations are rounded too"
    if not are_as_defined():
        pytest.skip("ONNX Runtime multiplies otherwise on this processor")
    theirs = product_here(inputs, matrix)
    assert (ours - theirs).abs().max() < 1e-6 * ours.abs().max()


def test_a_checkpoint_loaded_in_blocks_is_another_model() -> None:
    path = REFERENCE / "draft"
    whole, rounded = (load_model(path, dtype=dtype) for dtype in ("float32", "Q8_0"))
    assert rounded.quantized and not whole.quantized
    assert rounded.digest != whole.digest
    for dtype, model in (("float32", whole), ("Q8_0", rounded)):
        assert ModelShape.from_folder(path, dtype).digest == model.digest
    shape = ModelShape.from_folder(path, "Q4_0")
    assert shape.dtype == "float32"
    assert (shape.formats.mlp, shape.formats.head) == (number_format("Q4_0"), number_format("Q8_0"))
    tokens = torch.arange(12)[None]
    mask = torch.ones(1, 12, 12, dtype=torch.bool).tril()
    logits = {}
    for name, model in (("whole", whole), ("rounded", rounded)):
        cache = model.new_cache(1, 12)
        logits[name] = model.forward(tokens, tokens, tokens, mask, cache).log_softmax(-1)
    difference = (logits["whole"] - logits["rounded"]).abs().mean()
    assert 1e-4 < difference < 0.05
    assert rounded.family.embedding.weight.equal(rounded.head.weight), "they are tied"


def test_what_cannot_be_in_blocks_is_refused(tmp_path: Path) -> None:
    for family, reason in (("gpt2", "do not run in Q8_0"), ("llama", "rows of 48")):
        folder = save_tiny(family, tmp_path / family)
        with pytest.raises(MissingCapabilityError, match=reason):
            load_model(folder, dtype="Q8_0")
    with pytest.raises(UsageError, match="GGUF file states"):
        ModelShape.from_path(tmp_path / "model.gguf", "Q8_0")
