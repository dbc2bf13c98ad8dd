"""`specplan compile`: rounds compiled into a bundle, and taken by what opens it."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import specplan  # noqa: E402
from specplan.backends.bundle import (  # noqa: E402
    Bundle,
    load_bundle,
    write_bundle,
    write_executables,
)
from specplan.backends.inductor.backend import InductorBackend  # noqa: E402
from specplan.backends.machine import this_machine  # noqa: E402
from specplan.backends.manifest import FOLDER, Executables, Shape  # noqa: E402
from specplan.backends.registry import round_backend, round_backends  # noqa: E402
from specplan.backends.static.buckets import Bucket  # noqa: E402
from specplan.bundles.compiling import buckets_of, compile_bundle, made_for  # noqa: E402
from specplan.checks.speed import check_speed  # noqa: E402
from specplan.ir.errors import MissingCapabilityError, UsageError  # noqa: E402
from specplan.ir.plan import Assumptions  # noqa: E402
from specplan.measure.bench.lowering import Lowering  # noqa: E402
from specplan.measure.device.probes import plain_plan  # noqa: E402
from specplan.runtime.models import loading  # noqa: E402
from tests.measure.problems import write_problem  # noqa: E402

pytestmark = pytest.mark.skipif(
    InductorBackend().available() is not None, reason=str(InductorBackend().available())
)
RUNNING = [name for name in round_backends() if round_backend(name).available() is None]
PROMPTS = ["def mean(values):", "x"]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Plain decoding by the tiny target, as a bundle."""
    folder = tmp_path_factory.mktemp("lowering")
    path = write_problem(folder, prompts=2, output_tokens=8)
    return write_bundle(
        folder / "bundle",
        plan=plain_plan(greedy=True),
        problem=specplan.load_problem(path).model_dump(mode="json"),
        report={},
        models={"target": (folder / "target", "float64")},
        backend="eager",
        versions={},
    )


def test_shapes_are_those_that_pay_by_the_estimates_of_the_report(bundle: Bundle) -> None:
    """Of loads at 1, 2 and 16 requests; compiling takes 80 seconds of an hour, 2.2 % of it."""
    assert buckets_of(bundle).shapes == ((1, 48),)
    seconds = {1: 1.00, 2: 1.03, 16: 4.0}
    figures = [
        {"batch": batch, "prompt_tokens": 40, "seconds_per_round": {"mean": taken}}
        for batch, taken in seconds.items()
    ]
    reported = replace(bundle, report={"explanation": {"chosen": {"by_batch": figures}}})
    buckets = buckets_of(reported)
    assert buckets.shapes == ((2, 48), (16, 48))  # 3 % of a third of the time are not worth a shape
    assert buckets.padding == pytest.approx(0.03 / 3) and buckets.compile_seconds == 160.0


def test_compiled_rounds_of_another_plan_are_not_taken_for_these(bundle: Bundle) -> None:
    other = replace(bundle, plan=replace(bundle.plan, assumptions=Assumptions(temperature=0.5)))
    digests = {name: replace(one, digest="0" * 64) for name, one in bundle.models.items()}
    names = {made_for(each) for each in (bundle, other, replace(bundle, models=digests))}
    assert len(names) == 3 and made_for(bundle) in names


@pytest.mark.slow
def test_compiled_rounds_are_measured_kept_and_run(bundle: Bundle, tmp_path: Path) -> None:
    settings = specplan.Settings(max_new_tokens=8)
    before = specplan.Decoder(bundle).generate(PROMPTS[:1], settings).completions[0].tokens
    work = bundle.folder.parent / ".bundle.compiling"
    mine = work / made_for(bundle)
    executables = Lowering(bundle, mine, turns=1).executables([Bucket(1, 48)])
    (shape,) = executables.shapes
    for name in RUNNING:
        copy = shutil.copytree(bundle.folder, bundle.folder.parent / f"{name} alone")
        forced = replace(executables, shapes=(replace(shape, backend=name),))
        written = write_executables(load_bundle(copy), forced, mine / "packages" / name)
        decoded = specplan.Decoder(written).generate(PROMPTS[:1], settings)
        assert decoded.completions[0].tokens == before
    compiled = compile_bundle(bundle, turns=1)  # finds what is compiled already
    executables = compiled.executables
    assert executables is not None and executables.sampling == "greedy"
    noted = {note.partition(":")[0] for note in executables.notes}
    assert noted == {*round_backends()} - {*RUNNING}
    (shape,) = executables.shapes
    assert (shape.batch, shape.text) == (1, 48)
    assert set(shape.seconds) == {"eager", *RUNNING}
    assert shape.seconds[shape.backend] == min(shape.seconds.values())
    assert bool(executables.machine.onnxruntime) == (shape.backend == "onnxruntime")
    homes = [path.name for path in (compiled.folder / FOLDER).iterdir()]
    assert homes == (["decode-greedy-b1-t48"] if shape.backend != "eager" else [])
    assert not work.exists()
    decoder = specplan.Decoder(load_bundle(compiled.folder))
    assert decoder.generate(PROMPTS[:1], settings).completions[0].tokens == before
    assert len(decoder.generate(PROMPTS, settings).completions) == 2  # by the interpreter


def test_a_bundle_for_another_machine_is_refused_before_it_is_loaded(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    (work / "kept").mkdir(parents=True)
    lowering = Lowering(bundle, work)
    executables = lowering.executables([])
    written = write_executables(bundle, executables, lowering.fastest())
    manifest = json.loads((written.folder / "manifest.json").read_text())
    manifest["executables"]["machine"]["architecture"] = "pdp11"
    shape = {"batch": 1, "text": 48, "backend": "eager", "seconds": {"eager": 1.0}}
    manifest["executables"]["shapes"] = [shape]
    (written.folder / "manifest.json").write_text(json.dumps(manifest))
    specplan.Decoder(written.folder)  # the interpreter runs anywhere
    manifest["executables"]["shapes"] = [shape | {"backend": "onnxruntime"}]
    (written.folder / "manifest.json").write_text(json.dumps(manifest))
    loaded: list[object] = []
    monkeypatch.setattr(loading, "load_model", lambda *given, **_: loaded.append(given))
    with pytest.raises(MissingCapabilityError, match=r"processor pdp11 \(here .*specplan compile"):
        specplan.Decoder(written.folder)
    with pytest.raises(MissingCapabilityError, match="pdp11"):
        specplan.bench(written.folder)
    with pytest.raises(MissingCapabilityError, match="pdp11"):  # what is raced is what is served
        check_speed(written.folder, base=written.folder)
    assert not loaded


def test_backends_that_are_not_there_are_refused_by_name(bundle: Bundle, tmp_path: Path) -> None:
    shape = Shape(1, 48, "cuneiform", {"cuneiform": 0.01})
    executables = Executables(this_machine(), "greedy", (shape,))
    copy = load_bundle(shutil.copytree(bundle.folder, bundle.folder.parent / "named"))
    (tmp_path / "kept").mkdir()
    write_executables(copy, executables, tmp_path / "kept")
    with pytest.raises(UsageError, match=r"no backend is called 'cuneiform'.*There are: "):
        specplan.Decoder(copy.folder)


def test_what_cannot_run_here_is_noted_and_the_others_run(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    executables = Lowering(bundle, tmp_path, turns=1, backends=["inductor"]).executables(
        [Bucket(1, 40)]
    )
    assert executables.shapes[0].backend == "eager"
    assert executables.notes == ("inductor: there is no C++ compiler (g++ or clang++)",)


@pytest.mark.skipif("onnxruntime" not in RUNNING, reason="the extra onnx is not installed")
def test_what_does_not_compile_is_noted_and_runs_all_the_same(
    bundle: Bundle, tmp_path: Path
) -> None:
    halves = write_bundle(
        tmp_path / "bundle",
        plan=bundle.plan,
        problem=bundle.problem,
        report={},
        models={"target": (bundle.model_folder("target"), "bfloat16")},
        backend="eager",
        versions={},
    )
    executables = Lowering(halves, tmp_path / "work", 1, backends=["onnxruntime"]).executables(
        [Bucket(1, 40)]
    )
    assert executables.shapes[0].backend == "eager" and not executables.machine.onnxruntime
    (note,) = executables.notes
    assert note.startswith("onnxruntime, batch 1: MissingCapabilityError") and "bfloat16" in note
