"""Rounds as ONNX graphs decode as the interpreter does; each combination of ops once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
onnx = pytest.importorskip("onnx")

import torch  # noqa: E402

from specplan.backends.eager.backend import EagerBackend  # noqa: E402
from specplan.backends.onnxruntime.backend import OnnxRuntimeBackend  # noqa: E402
from specplan.backends.onnxruntime.package import CODE, NAMES  # noqa: E402
from specplan.backends.onnxruntime.packed_sessions import PackedSession, can_share  # noqa: E402
from specplan.backends.onnxruntime.providers import PROVIDERS, choose_provider  # noqa: E402
from specplan.backends.static.executable import StaticExecutable  # noqa: E402
from specplan.backends.static.functional import FunctionalRound  # noqa: E402
from specplan.backends.static.graph import RoundGraph  # noqa: E402
from specplan.ir.errors import MissingCapabilityError, SpecplanError, UsageError  # noqa: E402
from specplan.ir.plan import Plan  # noqa: E402
from specplan.ir.text.parser import parse_plan  # noqa: E402
from specplan.runtime.executable import Executable  # noqa: E402
from specplan.runtime.generate import generate  # noqa: E402
from specplan.runtime.models.causal import CausalModel  # noqa: E402
from specplan.runtime.requests import Request  # noqa: E402
from tests.backends.compiled_plans import FEWER, LOOKED_UP, PLANS, requests_of  # noqa: E402
from tests.backends.eager.generated_case import (  # noqa: E402
    COLD,
    WARM,
    decoded,
    load_models,
    save_models,
)
from tests.backends.pairs import in_batches, load_pair, plain, run, save_pair  # noqa: E402
from tests.ir.generated import generated_plan  # noqa: E402
from tests.ir.plans_on_disk import plan_of  # noqa: E402
from tests.plan_texts import BEHIND, drafted  # noqa: E402


@pytest.fixture(scope="module")
def models(pair_folder: Path) -> dict[str, CausalModel]:
    return load_pair(pair_folder)


@pytest.fixture(scope="module")
def compiled(models: dict[str, CausalModel], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the one round of looked up trees, compiled for batch 1."""
    folder = tmp_path_factory.mktemp("onnx")
    plan, settings = PLANS[LOOKED_UP]
    requests = requests_of(**settings)[:1]
    generate(OnnxRuntimeBackend().compile(plan, models, folder), requests)
    (home,) = folder.iterdir()
    return home


@pytest.fixture(scope="module")
def shallow_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pair of two layers and one: exporting takes time by the op."""
    folder = tmp_path_factory.mktemp("shallow")
    save_pair(folder, layers=2)
    return folder


@pytest.mark.slow
def test_both_forms_of_a_lookup_write_in_place(tmp_path: Path) -> None:
    """The form without a match is made behind a round that has left drafts in the cache.

    Heads of 16 are attended to by one op of the runtime, which leaves those drafts out.
    """
    save_pair(tmp_path / "pair", layers=2, head_dim=16)
    plan, models = parse_plan(drafted(BEHIND)), load_pair(tmp_path / "pair", "float32")
    requests = [Request(prompt_tokens=(5, 9, 2, 33, 5, 9), max_new_tokens=24, temperature=0.0)]
    executable = OnnxRuntimeBackend().compile(plan, models, tmp_path / "rounds")
    (completion,) = generate(executable, requests).completions
    assert [completion.tokens] == run(plan, models, requests)
    assert completion.rounds < 24, "nothing was accepted"
    homes = (tmp_path / "rounds").iterdir()
    written = {home.name: json.loads((home / NAMES).read_text()) for home in homes}
    forms = ["decode-matched-greedy-b1-t256", "decode-unmatched-greedy-b1-t256"]
    assert sorted(written) == forms, "the whole round never runs"
    assert all(names["in_place"] for names in written.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.long) if "loops" in name else name  # Inductor's
        for name in sorted(set(FEWER) - {LOOKED_UP})
    ],
)
def test_tokens_are_those_of_the_interpreter(
    name: str, shallow_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a round is one call into the runtime, whatever is drafted in it."""
    plan, settings = FEWER[name]
    models, requests = load_pair(shallow_folder), requests_of(**settings)
    expected = run(plan, models, requests)
    executable = OnnxRuntimeBackend().compile(plan, models, tmp_path)
    generation = generate(executable, requests)
    assert [item.tokens for item in generation.completions] == expected
    # the package alone, with weights of models that are loaded anew
    again = OnnxRuntimeBackend().compile(plan, load_pair(shallow_folder), tmp_path, frozen=True)
    written = sorted(tmp_path.rglob("*"))
    calls: list[int] = []
    kind = PackedSession if can_share() else onnxruntime.InferenceSession
    into = kind.run_with_iobinding

    def counted(*given: Any) -> Any:
        calls.append(1)
        return into(*given)

    monkeypatch.setattr(kind, "run_with_iobinding", counted)
    result = generate(again, requests)
    assert [item.tokens for item in result.completions] == expected
    assert len(calls) == result.rounds > 3
    assert sorted(tmp_path.rglob("*")) == written


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(0, marks=pytest.mark.long),  # a cache that one round leaves alone
        pytest.param(2, marks=pytest.mark.long),  # draws alike of a greedy draft
        pytest.param(46, marks=pytest.mark.long),  # beams, whose nodes are put in order
        pytest.param(32, marks=pytest.mark.long),  # one pass over two trees
        pytest.param(54, marks=pytest.mark.long),  # heads, and a region that may not be entered
        pytest.param(23, marks=pytest.mark.long),  # no round runs the target
        pytest.param(98, marks=pytest.mark.long),  # weights that nothing reads in the end
    ],
)
def test_generated_plans_decode_as_the_interpreter_does(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What no method writes."""
    save_models(tmp_path)
    monkeypatch.chdir(tmp_path)
    plan, models = generated_plan(number), load_models(tmp_path)
    temperatures = COLD if plan.greedy_only else WARM
    expected = decoded(EagerBackend().compile, plan, models, temperatures)

    def compiled(plan: Plan, models: dict[str, Any]) -> Executable:
        return OnnxRuntimeBackend().compile(plan, models, tmp_path / "rounds")

    assert decoded(compiled, plan, models, temperatures) == expected


def test_batches_of_one_and_what_a_package_holds(
    compiled: Path, models: dict[str, CausalModel]
) -> None:
    plan, settings = PLANS[LOOKED_UP]
    requests = requests_of(**settings)
    executable = OnnxRuntimeBackend().compile(plan, models, compiled.parent, frozen=True)
    alone = [generate(executable, [item]).completions[0].tokens for item in requests]
    assert alone == in_batches(plan, models, requests, 1)
    graph = onnx.load(compiled / CODE, load_external_data=False).graph
    external = {item.name for item in graph.initializer if item.data_location}
    names = json.loads((compiled / NAMES).read_text())
    assert external == set(names["weights"]) >= {"target.family.layers.0.qkv"}
    # weights alone are 200 kB
    assert sum(len(item.raw_data) for item in graph.initializer) < 20_000
    # three layers of keys and values, positions, the text and its keys: written by one op each
    written = {item.name.rpartition(".after")[0] for item in graph.output[1:]}
    small = {"guess.tokens", "guess.live"}  # made anew, and copied back
    assert set(names["in_place"]) == written - small and len(written) == 10
    kinds = [node.op_type for node in graph.node]
    assert kinds.count("Attention") == 3 and kinds.count("ScatterND") >= 6
    assert {"RMSNormalization", "Gemm"} <= set(kinds)


def test_the_functional_round_writes_nothing_and_gives_what_would_be_written(
    models: dict[str, CausalModel],
) -> None:
    plan, _ = PLANS["layer spans and tracks"]

    def compile_round(graph: RoundGraph, _: object, tensors: list[torch.Tensor]) -> object:
        functional = FunctionalRound(graph)
        places = [graph.interface.names().index(name) for name in graph.interface.written()]

        def both(*given: torch.Tensor) -> torch.Tensor:
            before = [tensor.clone() for tensor in given]
            tokens, *written = functional(*given)
            assert all(map(torch.equal, before, given))
            assert torch.equal(tokens, graph(*given))
            for place, tensor in zip(places, written, strict=True):
                usable = slice(0, -1)  # the last slot is that of dead lanes
                where = (..., usable, slice(None)) if tensor.dim() > 2 else (..., usable)
                assert torch.equal(tensor[where], given[place][where])
            return tokens

        return both

    executable = StaticExecutable(plan, models, compile_round)  # type: ignore[arg-type]
    assert generate(executable, requests_of()).rounds > 3


def test_what_cannot_run_is_refused_by_name(
    models: dict[str, CausalModel], pair_folder: Path
) -> None:
    plan = plan_of("self_draft_view")
    with pytest.raises(MissingCapabilityError, match="onnxruntime cannot run `state @part"):
        OnnxRuntimeBackend().compile(plan, models)
    halves = load_pair(pair_folder, dtype="bfloat16")
    with pytest.raises(MissingCapabilityError, match=r"CPU.* no kernels of op MatMul for bfloat16"):
        OnnxRuntimeBackend().compile(plain(), halves)
    with pytest.raises(MissingCapabilityError, match=r"CUDA.* runs on cuda, the models are on cpu"):
        OnnxRuntimeBackend("CUDAExecutionProvider").compile(plain(), models)
    with pytest.raises(MissingCapabilityError, match=r"compiles nothing that a context could keep"):
        OnnxRuntimeBackend(context=True).compile(plain(), models)


def test_providers_are_chosen_by_what_they_can() -> None:
    every = [provider.name for provider in PROVIDERS]
    assert choose_provider("cpu", ["float32"], every).name == "CPUExecutionProvider"
    assert choose_provider("cuda", ["bfloat16"], every).name == "CUDAExecutionProvider"
    chosen = choose_provider("cuda", ["float16"], every, "TensorrtExecutionProvider")
    assert chosen.context and chosen.fallback[0] == "CUDAExecutionProvider"
    with pytest.raises(MissingCapabilityError, match="not in this build of ONNX Runtime"):
        choose_provider("cuda", ["float32"], ["CPUExecutionProvider"])


def test_damaged_packages_are_refused(
    compiled: Path, models: dict[str, CausalModel], tmp_path: Path
) -> None:
    backend = OnnxRuntimeBackend()
    code, names = (compiled / CODE).read_bytes(), (compiled / NAMES).read_bytes()
    broken = [
        (code[: len(code) // 2], names),
        (b"", names),
        (code.replace(b"Attention", b"Intention"), names),
        (code, b"[]"),
        (code, b'{"weights": [1], "in_place": []}'),
        (code, names.replace(b"qkv", b"kvq")),
        (code, b'{"weights": [], "in_place": []}'),
    ]
    for changed, listed in broken:
        (tmp_path / CODE).write_bytes(changed)
        (tmp_path / NAMES).write_bytes(listed)
        with pytest.raises(SpecplanError) as error:
            backend.load(tmp_path, models)
        assert isinstance(error.value, UsageError) and str(tmp_path) in str(error.value)
