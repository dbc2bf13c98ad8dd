"""The matrix of backends on a tiny pair, with compilers that do their work well, badly or not."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from torch import Tensor  # noqa: E402

from specplan.backends.static.session import Program  # noqa: E402
from specplan.ir.errors import MissingCapabilityError  # noqa: E402
from specplan.ir.text.parser import parse_plan  # noqa: E402
from specplan.runtime.models.causal import CausalModel  # noqa: E402
from tests.backends.compiled_plans import COPIED, requests_of  # noqa: E402
from tests.backends.pairs import load_pair, plain, save_pair  # noqa: E402
from tests.benchmarks.fake_backend import Fake  # noqa: E402


class WrongTokens(Fake):
    def load(self, folder: Path, models: Mapping[str, CausalModel]) -> Program:
        graph = super().load(folder, models)

        def wrong(*tensors: Tensor) -> Tensor:
            tensor = graph(*tensors)
            if tensor.dim() == 2:
                tensor[:, 0] = (tensor[:, 0] + 1) % 61
            return tensor

        return wrong


@pytest.fixture
def cells(repository: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(repository / "benchmarks"))
    return importlib.import_module("matrix_cells")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CausalModel]:
    folder = tmp_path_factory.mktemp("pair")
    save_pair(folder, layers=2)
    return load_pair(folder, "float32")


@pytest.fixture
def matrix(cells: ModuleType, models: dict[str, CausalModel], tmp_path: Path) -> Any:
    requests = {t: requests_of(temperature=t)[:2] for t in (0.0, 0.8)}
    requests = {t: [replace(r, max_new_tokens=8) for r in listed] for t, listed in requests.items()}
    return cells.Matrix(tmp_path, models, requests)


def cell_of(cells: ModuleType, matrix: Any, monkeypatch: pytest.MonkeyPatch, fake: Fake,
          temperature: float = 0.0) -> dict[str, Any]:  # fmt: skip
    monkeypatch.setattr(cells, "round_backend", lambda _: fake)
    plan = parse_plan(COPIED) if temperature else plain()
    cell = cells.Cell(f"kind {temperature}", plan, "onnxruntime", 2, temperature)
    again = {"kind", "backend", "batch", "temperature", "mark"}
    result: dict[str, Any] = matrix.find(cell)
    assert again < set(result) and matrix.find(cell) == result
    return result


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_right_tokens_break_nothing(
    cells: ModuleType, matrix: Any, monkeypatch: pytest.MonkeyPatch, temperature: float
) -> None:
    main = importlib.import_module("backend_matrix")
    one = cell_of(cells, matrix, monkeypatch, Fake(), temperature)
    assert one["different"] == [] and one["prompts"] == 2 and one["logits"]["relative"] == 0.0
    assert not main.complaints([one])


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_wrong_tokens_are_distinguished_from_ties(
    cells: ModuleType, matrix: Any, monkeypatch: pytest.MonkeyPatch, temperature: float
) -> None:
    main = importlib.import_module("backend_matrix")
    one = cell_of(cells, matrix, monkeypatch, WrongTokens(), temperature)
    assert [item["tie"] for item in one["different"]] == [False, False]
    assert main.summary([one])["onnxruntime"]["beyond_a_tie"] == 2
    assert main.complaints([one])
    for item in one["different"]:
        item["tie"] = True
    assert not main.complaints([one])


def test_a_bound_on_logits(cells: ModuleType, matrix: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    main, fake = importlib.import_module("backend_matrix"), Fake()
    fake.off = 1e-2
    one = cell_of(cells, matrix, monkeypatch, fake)
    assert one["logits"]["absolute"] == pytest.approx(1e-2, rel=1e-3)
    assert one["different"] == [] and main.complaints([one])


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (MissingCapabilityError("ONNX has no form for the op sort"), "refused"),
        (RuntimeError("g++ said no"), "failed"),
    ],
)
def test_what_compiling_says_fills_the_cell(
    cells: ModuleType, matrix: Any, monkeypatch: pytest.MonkeyPatch, error: Exception, word: str
) -> None:
    main, fake = importlib.import_module("backend_matrix"), Fake()
    fake.error = error
    one = cell_of(cells, matrix, monkeypatch, fake)
    assert str(error) in one[word] and str(error) in main.words_of(one)
    assert bool(main.complaints([one])) is (word == "failed")
    assert main.summary([one])["onnxruntime"][word] == 1


def test_shaken_weights_tell_a_tie(cells: ModuleType, matrix: Any) -> None:
    """Only where the interpreter's own token changes."""
    cell = cells.Cell("tie", plain(greedy=False), "eager", 1, 0.8)
    theirs = matrix.find(cell)["tokens"][0]
    assert not matrix._is_tie(cell, 0, theirs, 3)
    other = [*theirs[:3], (theirs[3] + 1) % 61, *theirs[4:]]
    assert matrix._is_tie(cell, 0, other, 3)


def test_cells_depend_on_sources_and_versions(cells: ModuleType) -> None:
    assert {"code", "onnxruntime", "torch"} <= set(cells.made_with())


def test_every_kind_comes_first_where_it_is_cheapest(cells: ModuleType) -> None:
    main = importlib.import_module("backend_matrix")
    kinds = {t: [("long", parse_plan(COPIED)), ("short", plain())] for t in (0.0, 0.8)}
    order = main.ordered(kinds, ["inductor", "onnxruntime"])
    assert len(order) == 16
    assert [cell.kind for cell in order[:2]] == ["short", "long"]
    assert {(c.backend, c.batch, c.temperature) for c in order[:2]} == {("onnxruntime", 1, 0.0)}
    assert {cell.backend for cell in order[:8]} == {"onnxruntime"}
