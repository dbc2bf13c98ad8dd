"""Quantized models decode without loss, and compiled rounds multiply by their blocks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from safetensors.torch import load_file, save_file  # noqa: E402

from specplan.backends.eager.backend import EagerBackend  # noqa: E402
from specplan.backends.onnxruntime import backend  # noqa: E402
from specplan.backends.onnxruntime.backend import OnnxRuntimeBackend  # noqa: E402
from specplan.backends.onnxruntime.package import CODE, NAMES  # noqa: E402
from specplan.backends.oracle.backend import OracleBackend  # noqa: E402
from specplan.ir.errors import MissingCapabilityError  # noqa: E402
from specplan.ir.text.parser import parse_plan  # noqa: E402
from specplan.measure.acceptance.teacher import text_logits  # noqa: E402
from specplan.measure.device.probes import plain_plan  # noqa: E402
from specplan.runtime.generate import generate  # noqa: E402
from specplan.runtime.models.causal import CausalModel  # noqa: E402
from specplan.runtime.models.heads.loading import load_head  # noqa: E402
from specplan.runtime.models.loading import load_model  # noqa: E402
from specplan.runtime.requests import Request  # noqa: E402
from specplan.runtime.tokenizer import load_tokenizer  # noqa: E402
from tests.backends.test_onnx_fusions import TREE  # noqa: E402
from tests.matrix import sized  # noqa: E402

BY_HEAD = """plan head
model target
model eagle
state @kv = cache target
state @ekv = cache eagle
state @states = track target layer=last
state @own = track eagle layer=last
round decode {
  %t0 = root
  %q0 = forward eagle %t0 cache=@ekv pending=3 features=@states shift=1 keep=@own
  %t1 = grow %t0 at=%t0 logits=%q0 children=1
  %n1 = pick %t1 of=newest
  %q1 = forward eagle %n1 cache=@ekv features=@own shift=1 keep=@own write=scratch
  %c = grow %t1 at=%n1 logits=%q1 children=1
  %l = forward target %c cache=@kv pending=1 keep=@states
  %a = accept %c target=%l
  %e = emit %a
  commit @kv %e
  commit @states %e
  commit @ekv %e
  commit @own %e
}
"""
ROOT = Path(__file__).parents[2]
MODELS = ROOT / "examples/reference_models"
TIE = 0.05
"""A code of an activation that rounds to the other side moves logits by up to this."""


LAYERS = 6
"""Of the target's 20, which learned to exit behind each: a round is exported layer by layer."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CausalModel]:
    """The target's first layers, which write code too, and its draft model."""
    folder = tmp_path_factory.mktemp("target")
    config = json.loads((MODELS / "target/config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": LAYERS}))
    stored = load_file(MODELS / "target/model.safetensors")
    beyond = tuple(f"model.layers.{n}." for n in range(LAYERS, config["num_hidden_layers"]))
    first = {name: tensor for name, tensor in stored.items() if not name.startswith(beyond)}
    save_file(first, folder / "model.safetensors", {"format": "pt"})
    return {
        "target": load_model(folder, dtype="Q8_0"),
        "draft": load_model(MODELS / "draft", dtype="Q4_0"),
    }


@pytest.fixture(scope="module")
def requests() -> list[Request]:
    lines = (ROOT / "examples/prompts/code.jsonl").read_text("utf-8").splitlines()[:2]
    encode = load_tokenizer(MODELS / "target").encode
    texts = [tuple(encode(json.loads(line)["text"]))[-40:] for line in lines]
    return [Request(prompt_tokens=text, max_new_tokens=16) for text in texts]


def compilable() -> None:
    """Skip where ONNX Runtime is not there, or refuses quantized models."""
    pytest.importorskip("onnxruntime")
    from specplan.backends.onnxruntime.cpu_kernels.definition import are_as_defined

    if not are_as_defined():
        pytest.skip("ONNX Runtime multiplies otherwise on this processor")


def same_but_for_ties(
    target: CausalModel, request: Request, one: tuple[int, ...], other: tuple[int, ...]
) -> bool:
    """Whether two outputs are alike up to where two tokens are as likely as makes no difference."""
    first = next(
        (i for i, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1]), None
    )
    if first is None:
        return True
    text = [*request.prompt_tokens, *one[: first + 1]]
    (logits,) = text_logits(target, text, len(text) - 1)
    return abs(float(logits[one[first]] - logits[other[first]])) < TIE


def test_plans_keep_the_output_of_the_quantized_target(
    models: dict[str, CausalModel], requests: list[Request], tmp_path: Path
) -> None:
    onnx = pytest.importorskip("onnx")
    compilable()
    target, tree = models["target"], parse_plan(TREE)
    plain = generate(EagerBackend().compile(plain_plan(True), models), requests).completions
    compiled = OnnxRuntimeBackend().compile(tree, models, folder=tmp_path)
    for executable in (EagerBackend().compile(tree, models), compiled):
        alone = [generate(executable, [one]).completions[0] for one in requests]
        for request, expected, own in zip(requests, plain, alone, strict=True):
            assert same_but_for_ties(target, request, expected.tokens, own.tokens)
    first = replace(requests[0], max_new_tokens=sized(4, 16))  # the definition takes its time
    (own,) = generate(OracleBackend().compile(tree, models), [first]).completions
    assert len(own.tokens) == first.max_new_tokens
    assert same_but_for_ties(target, first, plain[0].tokens[: len(own.tokens)], own.tokens)
    (home,) = tmp_path.iterdir()
    graph = onnx.load(home / CODE, load_external_data=False).graph
    products = [node for node in graph.node if node.op_type == "MatMulNBits"]
    names = json.loads((home / NAMES).read_text())["weights"]
    layers = target.num_layers + 2 * models["draft"].num_layers  # the draft model runs twice
    assert len(products) == 4 * layers + 3, "four of each layer, and the heads"
    assert not [name for name in names if ".qkv.0" in name or ".down.0" in name], "floats stay out"


def test_all_rounds_of_a_head_run_compiled_and_drafts_are_those_of_the_interpreter(
    models: dict[str, CausalModel],
    requests: list[Request],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """The head has the prompt's states from the second round on, as the language has it.

    Its passes are one attention op each, as the target's layers are.
    """
    onnx = pytest.importorskip("onnx")
    compilable()
    from specplan.backends.onnxruntime.prompts import PromptProgram
    from specplan.backends.static.session import StaticSession

    read: list[int] = []
    call = PromptProgram.__call__

    def counted(self: PromptProgram, tokens: Any, *rest: Any, **more: Any) -> None:
        call(self, tokens, *rest, **more)
        read.append(tokens.shape[1])

    monkeypatch.setattr(PromptProgram, "__call__", counted)
    monkeypatch.setattr(StaticSession, "_interpreted", None)
    target, plan = models["target"], parse_plan(BY_HEAD)
    head = load_head(MODELS / "heads/eagle", target)
    head.pack()
    with_head, request = {"target": target, "eagle": head}, requests[0]
    executables = [
        EagerBackend().compile(plan, with_head),
        OnnxRuntimeBackend().compile(plan, with_head, folder=tmp_path),
    ]
    expected, own = (generate(one, [request]) for one in executables)
    prompt = len(request.prompt_tokens)
    pending = 3
    assert read == [prompt - 1, 1, prompt - pending], "the target's, then the head's in two parts"
    (one,), (other,) = expected.completions, own.completions
    assert same_but_for_ties(target, request, one.tokens, other.tokens)
    assert own.rounds < len(other.tokens), "drafts are accepted"
    assert abs(own.rounds - expected.rounds) <= 1
    (home,) = tmp_path.iterdir()
    graph = onnx.load(home / CODE, load_external_data=False).graph
    attentions = [node.op_type for node in graph.node if "Attention" in node.op_type]
    assert attentions == ["GroupQueryAttention"] * (target.num_layers + 2)


def test_every_other_compiler_sees_what_the_product_is_made_of(
    models: dict[str, CausalModel], requests: list[Request]
) -> None:
    """As graphs that no compiler has seen; Inductor compiles the same graph."""
    from specplan.backends.static.executable import StaticExecutable

    expected = generate(EagerBackend().compile(parse_plan(TREE), models), requests).completions
    traced = generate(StaticExecutable(parse_plan(TREE), models), requests).completions
    for request, one, other in zip(requests, expected, traced, strict=True):
        assert same_but_for_ties(models["target"], request, one.tokens, other.tokens)


def test_a_processor_that_multiplies_otherwise_is_refused(
    models: dict[str, CausalModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(backend, "are_as_defined", lambda: False)
    with pytest.raises(MissingCapabilityError, match="in another way on this processor"):
        OnnxRuntimeBackend().compile(plain_plan(True), {"target": models["target"]})
    whole = load_model(MODELS / "draft", dtype="float32")
    OnnxRuntimeBackend().compile(plain_plan(True), {"target": whole})
