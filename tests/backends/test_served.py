"""Bundles with compiled rounds as they are opened: damaged, of another version, of another machine.

What a changed graph means is up to whoever changed it: it may run to other tokens. All else is
refused, or gives the same tokens (`docs/bundles.md`).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

import torch

from specplan.backends.bundle import Bundle, load_bundle
from specplan.backends.bundle_executable import FittedExecutable, load_models, open_executable
from specplan.backends.manifest import FOLDER
from specplan.backends.onnxruntime.package import NAMES, OnnxRound
from specplan.backends.registry import get_backend
from specplan.backends.static.identity import MADE_FOR, MEANING
from specplan.backends.static.interface import Interface
from specplan.backends.static.packages import FallbackOnFailure
from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.runtime.generate import generate
from tests.backends.executable_fuzz import OTHER
from tests.backends.mutations import sum_anew
from tests.backends.served_bundle import BUCKET, REQUESTS, write_served
from tests.matrix import sized

KINDS = {"onnxruntime": ("run", "round.onnx"), "inductor": ("interpreted", "round.pt2")}
"""Bundles: what becomes of their compiled round, and the file of its code."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Bundle]:
    return {kind: write_served(tmp_path_factory.mktemp(kind), kind) for kind in KINDS}


def tokens_of(bundle: Bundle) -> tuple[FittedExecutable, tuple[int, ...]]:
    """What opens a bundle, and its tokens."""
    executable = open_executable(bundle, load_models(bundle))
    assert isinstance(executable, FittedExecutable)
    return executable, generate(executable, REQUESTS).completions[0].tokens


def interpreted(bundle: Bundle) -> tuple[int, ...]:
    plain = get_backend("eager").compile(bundle.plan, load_models(bundle))
    return generate(plain, REQUESTS).completions[0].tokens


def copied(bundle: Bundle, name: str) -> Path:
    """Another bundle like it; models are found beside it."""
    return Path(shutil.copytree(bundle.folder, bundle.folder.with_name(name), dirs_exist_ok=True))


@pytest.mark.slow
def test_damage_is_refused_or_does_no_harm(served: dict[str, Bundle], repository: Path) -> None:
    folders = [str(copied(served[kind], "fuzzed")) for kind in KINDS]
    count = sized(120, 1000)
    command = [sys.executable, "-m", "tests.backends.executable_fuzz", "3", str(count), *folders]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, f"{done.returncode} after {lines[-1:]}: {done.stderr[-2000:]}"
    for kind, answer in zip(KINDS, filter(lambda line: line.startswith("{"), lines), strict=True):
        outcomes: dict[str, int] = json.loads(answer)
        assert [
            word for word in outcomes if word.endswith(OTHER) and "round.onnx" not in word
        ] == []
        assert sum(number for word, number in outcomes.items() if not word.endswith(OTHER)) == count
        whole, code = KINDS[kind]
        assert outcomes[f"{code} refused"] and outcomes[f"{MADE_FOR} refused"]
        assert (
            outcomes[f".json {whole}"] and outcomes[".json refused"] and outcomes[f".cubin {whole}"]
        )


def test_compiled_rounds_give_the_tokens_of_the_interpreter(served: dict[str, Bundle]) -> None:
    executable, tokens = tokens_of(served["onnxruntime"])
    assert tokens == interpreted(served["onnxruntime"]) and not executable.failed
    # what sources learn of a batch, batches of other shapes know
    assert executable.compiled["onnxruntime"].shared is executable.plain.shared


def test_code_that_does_not_load_here_is_interpreted(served: dict[str, Bundle]) -> None:
    expected = interpreted(served["inductor"])
    with pytest.warns(RuntimeWarning, match=r"b1-t24: the compiled round does not run here \(Runt"):
        executable, tokens = tokens_of(served["inductor"])
    assert tokens == expected and executable.failed == {BUCKET}
    assert generate(executable, REQUESTS).completions[0].tokens == expected  # warns no more


def test_code_whose_first_run_fails_is_interpreted(
    served: dict[str, Bundle], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Halfway: the slots that the round writes are as it left them."""
    run = OnnxRound.__call__

    def fail(compiled: OnnxRound, *tensors: torch.Tensor) -> torch.Tensor:
        run(compiled, *tensors)
        raise RuntimeError("no memory is left")

    monkeypatch.setattr(OnnxRound, "__call__", fail)
    with pytest.warns(RuntimeWarning, match="no memory is left"):
        executable, tokens = tokens_of(served["onnxruntime"])
    assert tokens == interpreted(served["onnxruntime"]) and executable.failed == {BUCKET}


def test_numbers_are_put_back_where_a_first_run_fails() -> None:
    class Graph:
        class interface:
            values = (("bar", ("value",)),)

        def __call__(self, text: torch.Tensor, bar: torch.Tensor) -> torch.Tensor:
            return bar.add_(1)

    def program(text: torch.Tensor, bar: torch.Tensor) -> torch.Tensor:
        bar.add_(5)
        raise ValueError("after a write")

    errors: list[Exception] = []
    tried = FallbackOnFailure(program, Graph(), errors.append)  # type: ignore[arg-type]
    bar = torch.zeros(2)
    assert tried(torch.zeros(2, 3), bar).tolist() == [1, 1]
    assert tried(torch.zeros(2, 3), bar).tolist() == [2, 2] and len(errors) == 1


def _swapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if this version had two tensors of one shape the other way round."""
    names = Interface.names
    turned = {"lengths": "limits", "limits": "lengths"}
    monkeypatch.setattr(
        Interface, "names", lambda self: [turned.get(name, name) for name in names(self)]
    )


def _anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specplan.backends.static.identity.MEANING", MEANING + 1)


@pytest.mark.parametrize("change", [_swapped, _anew])
def test_rounds_of_another_version_are_refused(
    served: dict[str, Bundle],
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[pytest.MonkeyPatch], None],
) -> None:
    bundle = served["onnxruntime"]
    models = load_models(bundle)
    open_executable(bundle, models)
    change(monkeypatch)
    with pytest.raises(MissingCapabilityError, match=r"for other tensors than.*specplan compile"):
        open_executable(bundle, models)


def test_rounds_that_say_nothing_of_what_they_are_for_are_refused(
    served: dict[str, Bundle],
) -> None:
    folder = copied(served["onnxruntime"], "older")
    (home,) = (folder / FOLDER).iterdir()
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["files"][(home / MADE_FOR).relative_to(folder).as_posix()]
    (home / MADE_FOR).unlink()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    bundle = load_bundle(folder)
    with pytest.raises(MissingCapabilityError, match="other tensors, another round, other weights"):
        open_executable(bundle, load_models(bundle))


def test_shapes_without_a_round_are_refused(served: dict[str, Bundle]) -> None:
    folder = copied(served["onnxruntime"], "larger")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["executables"]["shapes"][0]["text"] = 10**15
    (folder / "manifest.json").write_text(json.dumps(manifest))
    bundle = load_bundle(folder)
    with pytest.raises(UsageError, match=r"no compiled round for b1-t1000000000000000"):
        open_executable(bundle, load_models(bundle))


def test_a_round_without_its_weights_is_refused(served: dict[str, Bundle]) -> None:
    folder = copied(served["onnxruntime"], "lacking")
    (home,) = (folder / FOLDER).iterdir()
    names = json.loads((home / NAMES).read_text())
    (home / NAMES).write_text(json.dumps({**names, "weights": ["target.gone"]}))
    sum_anew(folder, home / NAMES)
    with pytest.raises(UsageError, match=r"models have no weight target\.gone"):
        tokens_of(load_bundle(folder))
