"""Sources of TensorRT engines: legal, complete, and the same rounds as the interpreter's."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ort = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
onnx_ir = pytest.importorskip("onnx_ir")

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from specplan.backends.static.buckets import Bucket, bucket_for  # noqa: E402
from specplan.backends.static.executable import StaticExecutable  # noqa: E402
from specplan.backends.static.graph import RoundGraph  # noqa: E402
from specplan.backends.static.packages import package_name  # noqa: E402
from specplan.backends.tensorrt.legalise import legalise  # noqa: E402
from specplan.backends.tensorrt.operators import illegal_nodes  # noqa: E402
from specplan.backends.tensorrt.sources import (  # noqa: E402
    RoundSource,
    build_engines,
    build_script,
    write_sources,
)
from specplan.ir.errors import MissingCapabilityError  # noqa: E402
from specplan.ir.files import sha256_file  # noqa: E402
from specplan.runtime.generate import generate  # noqa: E402
from specplan.runtime.models.causal import CausalModel  # noqa: E402
from tests.backends.compiled_plans import LOOKED_UP, PLANS, drawn_tree, requests_of  # noqa: E402
from tests.backends.pairs import load_pair, plain, run, save_pair  # noqa: E402

DRAWN = "trees drawn without replacement"


@pytest.fixture(scope="module")
def models(pair_folder: Path) -> dict[str, CausalModel]:
    return load_pair(pair_folder, dtype="float32")


@pytest.fixture(scope="module")
def shallow(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CausalModel]:
    """Two layers and one: exporting takes time by the op."""
    folder = tmp_path_factory.mktemp("shallow")
    save_pair(folder, layers=2)
    return load_pair(folder, dtype="float32")


class Session:
    """A round of the folder, run by ONNX Runtime's CPU provider, which knows nothing of ours."""

    def __init__(self, path: Path) -> None:
        self.session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        self.inputs = [item.name for item in self.session.get_inputs()]
        self.outputs = [item.name for item in self.session.get_outputs()]
        self.floats = {i.name for i in self.session.get_inputs() if i.type == "tensor(float)"}

    def __call__(self, *tensors: Tensor) -> Tensor:
        given = {
            name: tensor.float().numpy() if name in self.floats else tensor.numpy()
            for name, tensor in zip(self.inputs, tensors, strict=True)
        }
        tokens, *written = self.session.run(None, given)
        for name, after in zip(self.outputs[1:], written, strict=True):
            tensors[self.inputs.index(name.removesuffix(".after"))].copy_(torch.from_numpy(after))
        return torch.from_numpy(tokens)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        name if name == LOOKED_UP else pytest.param(name, marks=pytest.mark.long)
        for name in PLANS
        if name != DRAWN
    ],
)
def test_tokens_are_those_of_the_interpreter(
    name: str, models: dict[str, CausalModel], shallow: dict[str, CausalModel], tmp_path: Path
) -> None:
    plan, settings = PLANS[name]
    models = models if "spans" in name else shallow
    requests = requests_of(**settings)
    bucket = bucket_for(requests)
    (source,) = write_sources(plan, models, {bucket: requests}, tmp_path)

    def load(graph: RoundGraph, shape_bucket: Bucket, _: Sequence[Tensor]) -> Session:
        assert package_name(graph, shape_bucket) == source.name
        return Session(tmp_path / f"{source.name}.onnx")

    executable = StaticExecutable(plan, models, load, [bucket])
    shape_bucket = [item.tokens for item in generate(executable, requests).completions]
    assert shape_bucket == run(plan, models, requests)
    assert not illegal_nodes(onnx_ir.load(tmp_path / f"{source.name}.onnx"))


TENSORRT = """class Any:
    WARNING, STRONGLY_TYPED, num_errors = 1, 3, 1
    def __init__(self, *given):
        self.told = [given]
    def __getattr__(self, name):
        def call(*given):
            self.told.append((name, given))
            return Any()
        return call
class Engine(Any):
    def build_serialized_network(self, network, config):
        return repr((network.told, config.told, Any.shapes)).encode()
    def create_network(self, flags):
        network = Any()
        network.told = flags
        return network
    def create_optimization_profile(self):
        return Profile()
class Profile:
    def set_shape(self, *given):
        Any.shapes = given
class Parser(Any):
    def parse_from_file(self, path):
        return bool(open(path, "rb").read(4)) and "broken" not in path
    def get_error(self, place):
        return f"error {place}: no such op"
Logger = NetworkDefinitionCreationFlag = Any
Builder, OnnxParser = Engine, Parser
"""
"""Stands for the package `tensorrt`: its calls as far as the script makes them."""


def without_trtexec(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's package only."""
    (folder / "tensorrt.py").write_text(TENSORRT)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")


def test_what_the_folder_holds(
    shallow: dict[str, CausalModel],
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requests, bucket = requests_of()[:2], Bucket(2, 64)
    (source,) = write_sources(plain(), shallow, {bucket: requests}, tmp_path)
    index = json.loads((tmp_path / "sources.json").read_text())
    names = {f"{source.name}.onnx", "weights.safetensors", "build.sh", "build_engines.py"}
    assert {path.name for path in tmp_path.iterdir()} == {*names, "sources.json"}
    assert index["files"] == {name: sha256_file(tmp_path / name) for name in names}
    (entry,) = index["rounds"]
    inputs = {name: (kind, shape) for name, kind, shape in entry["inputs"]}
    assert inputs["slots"] == ("int64", ["slots"]) and inputs["text"][1][0] == 2
    assert {kind for kind, _ in inputs.values()} <= {"int64", "int32", "float", "bool"}
    assert entry["slots"][0] < entry["slots"][1] < entry["slots"][2] < inputs["text"][1][1]
    assert (tmp_path / "build.sh").stat().st_mode & 0o100
    if shutil.which("trtexec") is None and find_spec("tensorrt") is None:
        assert not build_engines(tmp_path)
    without_trtexec(tmp_path_factory.mktemp("fake"), monkeypatch)
    assert build_engines(tmp_path)
    made = (tmp_path / f"{source.name}.engine").read_text()
    least, usual, most = source.slots
    # strongly typed is the fourth flag there
    assert made.startswith("(8, ") and f"'slots', ({least},), ({usual},), ({most},)" in made
    entry["name"] = "broken"
    (tmp_path / "sources.json").write_text(json.dumps(index))
    (tmp_path / "broken.onnx").write_bytes(b"none")
    with pytest.raises(MissingCapabilityError, match="does not take broken:\nerror 0: no such op"):
        build_engines(tmp_path)


def test_the_build_script() -> None:
    source = RoundSource("decode-greedy-b2", 2, 64, (), (), (2, 48, 64))
    assert build_script([source]).splitlines()[3:] == [
        "set -eu",
        'cd "$(dirname "$0")"',
        "if ! command -v trtexec >/dev/null; then",
        '  exec "${PYTHON:-python3}" build_engines.py',
        "fi",
        "trtexec --onnx=decode-greedy-b2.onnx --saveEngine=decode-greedy-b2.engine "
        "--stronglyTyped --minShapes=slots:2 --optShapes=slots:48 --maxShapes=slots:64 "
        "--skipInference",
    ]


def test_what_tensorrt_lacks_is_refused_by_op_and_source(
    shallow: dict[str, CausalModel], tmp_path: Path
) -> None:
    requests = requests_of(temperature=0.8)[:1]
    with pytest.raises(MissingCapabilityError) as refused:
        write_sources(drawn_tree(1), shallow, {Bucket(1, 64): requests}, tmp_path)
    words = str(refused.value)
    assert "ScatterElements: reduction add is not taken" in words
    assert "accept" in words and "rule=recursive" in words
    assert not list(tmp_path.iterdir())


def _model(op: str, inputs: Sequence[np.ndarray], **attributes: Any) -> Any:
    """A graph of one op, its first input open and the others constant."""
    values = [onnx_ir.val(f"x{i}", onnx_ir.DataType.from_numpy(array.dtype), array.shape)
              for i, array in enumerate(inputs)]  # fmt: skip
    for value, array in zip(values[1:], inputs[1:], strict=True):
        value.const_value = onnx_ir.tensor(array, name=value.name)
    node = onnx_ir.node(op, inputs=values, attributes=attributes)
    node.outputs[0].name, node.outputs[0].dtype = "y", values[0].dtype
    node.outputs[0].shape = values[0].shape
    graph = onnx_ir.Graph(
        values[:1], node.outputs, nodes=[node], initializers=values[1:], opset_imports={"": 23}
    )
    return onnx_ir.Model(graph, ir_version=10)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes"),
    [
        ("Clip", [np.arange(-3, 5), np.array(-1), np.array(2)], {}),
        ("CumSum", [np.array([[3, 1, 4], [1, 5, 9]]), np.array(1)], {}),
        (
            "ScatterElements",
            [np.zeros((2, 3), bool), np.array([[0, 2], [1, 1]]), np.array([[True] * 2] * 2)],
            {"axis": 1},
        ),
    ],
)
def test_rewrites_keep_the_result(
    op: str, inputs: list[np.ndarray], attributes: dict[str, Any], tmp_path: Path
) -> None:
    results = []
    for rewritten in (False, True):
        model = _model(op, inputs, **attributes)
        assert bool(illegal_nodes(model)) is True
        if rewritten:
            legalise(model)
            assert not illegal_nodes(model)
        onnx_ir.save(model, tmp_path / "one.onnx")
        session = ort.InferenceSession(str(tmp_path / "one.onnx"))
        results.append(session.run(None, {"x0": inputs[0]})[0])
    assert results[0].dtype == results[1].dtype and np.array_equal(*results)
