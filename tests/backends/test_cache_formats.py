"""Models whose keys and values are rounded decode without loss on every backend."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from specplan.backends.bundle import write_bundle  # noqa: E402
from specplan.backends.bundle_executable import load_models, open_executable  # noqa: E402
from specplan.backends.machine import bundle_heads  # noqa: E402
from specplan.backends.oracle.backend import OracleBackend  # noqa: E402
from specplan.backends.static.executable import StaticExecutable  # noqa: E402
from specplan.backends.static.fusing import fused_for  # noqa: E402
from specplan.cost_models.models.number_formats import CACHE_FORMATS  # noqa: E402
from specplan.ir.errors import MissingCapabilityError  # noqa: E402
from specplan.ir.text.parser import parse_plan  # noqa: E402
from specplan.runtime.generate import generate  # noqa: E402
from specplan.runtime.models.cache_parts.number_types import STORED, store_caches  # noqa: E402
from specplan.runtime.models.causal import CausalModel  # noqa: E402
from specplan.runtime.models.loading import load_all  # noqa: E402
from specplan.runtime.requests import Request  # noqa: E402
from tests.backends.compiled_plans import TREE  # noqa: E402
from tests.backends.pairs import load_pair, plain, run  # noqa: E402

SMALL_TREE = parse_plan(TREE)
REQUESTS = [Request(prompt_tokens=tuple(range(row, row + 12)), max_new_tokens=24) for row in (3, 9)]


def loaded(folder: Path, target: str, draft: str) -> dict[str, CausalModel]:
    """The pair in float64: sums in another order do not change a token."""
    folders = {name: (folder / name, "float64") for name in ("target", "draft")}
    return load_all(folders, caches={"target": target, "draft": draft})


@pytest.mark.parametrize("form", CACHE_FORMATS)
def test_plans_keep_the_output_of_that_target(form: str, pair_folder: Path) -> None:
    models = loaded(pair_folder, form, "fp8")
    expected = run(plain(), models, REQUESTS)
    assert run(SMALL_TREE, models, REQUESTS) == expected
    for executable in (
        OracleBackend().compile(SMALL_TREE, models),
        StaticExecutable(SMALL_TREE, models),
    ):
        for request, tokens in zip(REQUESTS, expected, strict=True):
            assert generate(executable, [request]).completions[0].tokens == tokens


def test_coarse_caches_change_what_the_target_says(pair_folder: Path) -> None:
    whole = run(plain(), load_pair(pair_folder), REQUESTS)
    assert run(plain(), loaded(pair_folder, "fp8", "fp8"), REQUESTS) != whole


def test_kernels_are_for_caches_in_the_models_own_type(pair_folder: Path) -> None:
    models = load_pair(pair_folder, "float32")
    assert fused_for(models, {"cpu"}).moves == set(models)
    store_caches(models["draft"], "float16")
    assert fused_for(models, {"cpu"}).moves == {"target"}


def test_a_bundle_stores_keys_and_values_as_its_problem_says(
    pair_folder: Path, tmp_path: Path
) -> None:
    folder = pair_folder / "target"
    problem = {
        "schema_version": 1,
        "models": {"target": {"path": str(folder), "kv_format": "fp8"}},
        "workload": {"batch_sizes": [1], "prompt_tokens": 8, "output_tokens": 8},
    }
    bundle = write_bundle(
        tmp_path / "bundle", plan=plain(), problem=problem, report={"candidates": []},
        models={"target": (folder, "float64")}, backend="eager", versions={"specplan": "0"},
    )  # fmt: skip
    models = load_models(bundle)
    assert models["target"].cache_dtype == STORED["fp8"] and not bundle_heads(bundle)
    completions = generate(open_executable(bundle, models), REQUESTS).completions
    expected = run(plain(), loaded(pair_folder, "fp8", "fp8"), REQUESTS)
    assert [one.tokens for one in completions] == expected


def test_compiled_rounds_store_halves_in_place(pair_folder: Path, tmp_path: Path) -> None:
    """Keys and values go in and out as float16, in the same memory."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    from specplan.backends.onnxruntime.backend import OnnxRuntimeBackend
    from specplan.backends.onnxruntime.package import CODE

    models = loaded(pair_folder, "float16", "float16")
    executable = OnnxRuntimeBackend().compile(plain(), models, folder=tmp_path)
    ran = [generate(executable, [one]).completions[0].tokens for one in REQUESTS]
    assert ran == run(plain(), models, REQUESTS)
    (home,) = tmp_path.iterdir()
    graph = onnx.load(home / CODE, load_external_data=False).graph
    cached = {
        one.name: one.type.tensor_type.elem_type
        for one in (*graph.input, *graph.output)
        if ".keys." in one.name or ".values." in one.name
    }
    assert len(cached) == 4 * models["target"].num_layers
    assert set(cached.values()) == {onnx.TensorProto.FLOAT16}
    with pytest.raises(MissingCapabilityError, match=r"caches of target, which .* in fp8"):
        OnnxRuntimeBackend().compile(plain(), loaded(pair_folder, "fp8", "float16"))


@pytest.mark.long
def test_native_code_stores_every_format(pair_folder: Path, tmp_path: Path) -> None:
    from specplan.backends.inductor.backend import InductorBackend

    backend = InductorBackend()
    if backend.available() is not None:
        pytest.skip(str(backend.available()))
    for form in ("float16", "fp8"):
        models = loaded(pair_folder, form, form)
        executable = backend.compile(plain(), models, folder=tmp_path / form)
        ran = [generate(executable, [one]).completions[0].tokens for one in REQUESTS]
        assert ran == run(plain(), models, REQUESTS)
