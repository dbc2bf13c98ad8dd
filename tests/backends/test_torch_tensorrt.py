"""The tensorrt backend without TensorRT: what its rounds are, what converts, how they are kept."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from specplan.backends.registry import backend_capabilities, round_backends
from specplan.backends.static.executable import StaticExecutable
from specplan.backends.static.export import exported
from specplan.backends.static.functional import FunctionalRound
from specplan.backends.static.graph import RoundGraph
from specplan.backends.tensorrt import backend as module
from specplan.backends.tensorrt.backend import TensorRtBackend, failing_node
from specplan.backends.tensorrt.conversion.conditions import CONDITIONS, fails
from specplan.backends.tensorrt.conversion.registry import registry_of, versions
from specplan.backends.tensorrt.conversion.settings import compile_settings
from specplan.backends.tensorrt.conversion.split import split_round
from specplan.backends.tensorrt.glue import Glue, Runner, Step
from specplan.backends.tensorrt.lowering import Profile
from specplan.backends.tensorrt.package import CODE, program_of, read_package
from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.ir.plan import Plan
from specplan.runtime.generate import generate
from specplan.runtime.models.causal import CausalModel
from tests.backends.compiled_plans import FEWER, requests_of
from tests.backends.engines_in_torch import InTorch
from tests.backends.pairs import load_pair, plain, run, save_pair
from tests.cli.test_program import specplan_here

DRAWN = "layer spans, tracks, drawn trees"
ABSENT = find_spec("torch_tensorrt") is None


@pytest.fixture(scope="module")
def shallow(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CausalModel]:
    folder = tmp_path_factory.mktemp("shallow")
    save_pair(folder, layers=2)
    return load_pair(folder, "float32")


def decoded(plan: Plan, models: dict[str, CausalModel], folder: Path, **settings: float) -> InTorch:
    """The rounds of a plan, of which the tokens were found to be the interpreter's."""
    compiled, requests = InTorch(models, folder), requests_of(**settings)
    run_by = {name: models[name] for name in ("target", *plan.models_run)}
    generation = generate(StaticExecutable(plan, run_by, compiled), requests)
    assert [one.tokens for one in generation.completions] == run(plan, models, requests)
    return compiled


@pytest.fixture(scope="module")
def greedy(shallow: dict[str, CausalModel], tmp_path_factory: pytest.TempPathFactory) -> InTorch:
    return decoded(plain(), shallow, tmp_path_factory.mktemp("greedy"))


def test_a_round_is_one_engine_of_what_it_reads(
    greedy: InTorch, shallow: dict[str, CausalModel]
) -> None:
    """Its tokens were compared with the interpreter's by the fixture."""
    (made,), (split,) = greedy.lowered, greedy.splits
    assert split.whole and split.version == "2.13.0" and split.engines[0] == len(split.placed)
    assert (
        split.words()
        == f"1 engine with {len(split.placed)} ops; 0 ops in torch (0 without a converter)"
    )
    attention = [one for one in split.placed if "scaled_dot_product_attention" in one.op]
    assert len(attention) == 2 and all("forward target" in one.source for one in attention)
    assert {"uniforms", "top_p", "temperature"}.isdisjoint(made.reads), "greedy rounds draw nothing"
    assert {"kv.keys.0", "kv.values.1", "kv.positions", "text"} <= set(made.writes)
    assert {name.partition(".")[0] for name in made.weights} == {"target"}
    size = sum(path.stat().st_size for path in greedy.folder.rglob("*") if path.is_file())
    assert size < sum(one.nbytes for one in shallow["target"].weights().values())


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("name", list(FEWER))
def test_what_has_no_converter_runs_between_engines(
    name: str, shallow: dict[str, CausalModel], tmp_path: Path
) -> None:
    plan, settings = FEWER[name]
    compiled = decoded(plan, shallow, tmp_path, **settings)
    splits = compiled.splits
    assert all(len(split.engines) > 1 for split in splits)
    if name == DRAWN:
        rows = {(op, reason): source for split in splits for op, reason, source, _ in split.rows()}
        assert "accept" in rows["aten.searchsorted.Tensor", "no converter"] or any(
            "searchsorted" in op for op, _ in rows
        )
        assert all(rows.values()), "each op names the op of the plan that it comes from"


def test_profiles_and_settings(greedy: InTorch) -> None:
    (made,) = greedy.lowered
    most = made.given[len(made.weights)].shape[1] - 1
    assert made.reads[0] == "text" and made.profile == Profile(2, 3 * most // 4, most)
    (stored,) = (read_package(home) for home in greedy.folder.iterdir())
    assert stored.slots == [2, 3 * most // 4, most]
    for version in versions():
        registry = registry_of(version)
        settings = compile_settings(registry)
        assert set(settings) <= set(registry.settings)
        assert settings["attn_bias_is_causal"] is False, "masks of trees are not causal"
        assert registry.settings["attn_bias_is_causal"] == "True", "which it would be by default"
        assert settings["decompose_attention"] is (version < "2.12")


def test_the_registry_of_each_torch() -> None:
    assert [name.rpartition(".")[0] for name in versions()] == ["2.11", "2.12", "2.13"]
    for name in versions():
        registry = registry_of(name)
        assert len(registry.converters) > 220 and len(registry.sha256) == 64
        for op in ("aten.linear.default", "aten.index_put.default", "aten.embedding.default"):
            assert any(row.dynamic for row in registry.converters[op]), op
        ops = ("cumsum.default", "topk.default", "bitwise_and.Tensor", "_to_copy.default")
        met = {row.condition for op in ops for row in registry.converters[f"aten.{op}"]}
        assert met <= set(CONDITIONS)
        assert not registry.decomposed_by_torch & registry.left_alone
    assert registry_of(torch.__version__).version.startswith(torch.__version__[:4])
    with pytest.raises(MissingCapabilityError, match=r"torch-tensorrt 3\.1\.0 converts"):
        registry_of("3.1.0")


def test_writes_by_places_of_several_axes_are_refused(
    greedy: InTorch, shallow: dict[str, CausalModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As caches are written for ONNX: its converter gives values the shape of the places."""

    class Met(Exception):
        pass

    def compile_round(graph: RoundGraph, _: object, tensors: list[torch.Tensor]) -> None:
        program = exported(FunctionalRound(graph), tensors)
        nodes = [node for node in program.graph.nodes if node.op == "call_function" and fails(node)]
        assert {str(node.target) for node in nodes} == {"aten.index_put.default"}
        wrong = greedy.lowered[0].__class__(**{**vars(greedy.lowered[0]), "program": program})
        with pytest.raises(MissingCapabilityError, match=r"aten.index_put.default by places of"):
            module.require_convertible(wrong)
        raise Met

    executable = StaticExecutable(plain(), {"target": shallow["target"]}, compile_round)  # type: ignore[arg-type]
    with pytest.raises(Met):
        generate(executable, requests_of()[:1])


def test_what_a_stored_round_must_be(greedy: InTorch, shallow: dict[str, CausalModel]) -> None:
    (home,) = greedy.folder.iterdir()
    good = json.loads((home / CODE).read_text())
    stored, here = read_package(home), torch.device("cpu")
    engines = [abs] * len(stored.engines)
    with pytest.raises(UsageError, match=r"round\.json: the models have no weight draft\."):
        program_of(replace(stored, weights=["draft.head"]), engines, home, shallow, here)
    for change, words in (
        ({"engines": [{"file": "../x", "inputs": [], "outputs": []}]}, "there is no engine ../x"),
        ({"reads": 3}, "this describes no compiled round"),
        ({"more": 1}, "this describes no compiled round"),
    ):
        (home / CODE).write_text(json.dumps(good | change))
        with pytest.raises(UsageError, match=words):
            read_package(home)
    (home / CODE).write_text(json.dumps(good))
    wrong = {"save is no dtype": Step("b", "aten.rand.default", [], {"dtype": {"dtype": "save"}})}
    for op in ("os.system", "aten.nothing.default", "engine.7", "operator.attrgetter", "aten.add"):
        wrong[f"one calls '{op}', which there is not"] = Step("b", op, [{"of": "a"}], {})
    for words, step in wrong.items():
        other = replace(stored, glue=Glue(["a"], [step], [{"of": "b"}]))
        with pytest.raises(UsageError, match=rf"round\.json: these are no steps .*\({words}\)"):
            program_of(other, engines, home, shallow, here)


def test_values_between_engines_come_back_as_they_were() -> None:
    class Mixed(torch.nn.Module):
        def forward(self, given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            filled = torch.full((2, given.shape[1]), float("-inf"), dtype=torch.float16)
            parts = torch.chunk(given, 2, -1)
            return torch.cat([parts[1], parts[0]], -1), filled.masked_fill(given > 0, 1.5)

    from specplan.backends.tensorrt.glue import glue_of

    given = torch.tensor([[1.0, -2.0], [-3.0, 4.0]])
    program = torch.export.export(Mixed(), (given,)).run_decompositions()
    glue, constants = glue_of(program.module(check_guards=False), [])
    again = Glue(
        **json.loads(json.dumps({"inputs": glue.inputs, "outputs": glue.outputs, "steps": []}))
    )
    steps = [Step(**json.loads(json.dumps(vars(step)))) for step in glue.steps]
    got = Runner(Glue(again.inputs, steps, again.outputs), [], constants, torch.device("cpu"))(
        given
    )
    for one, other in zip(got, Mixed()(given), strict=True):
        assert torch.equal(one, other) and one.dtype == other.dtype


def test_what_compiled_a_round_is_part_of_its_key(
    shallow: dict[str, CausalModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = TensorRtBackend()
    keys = [backend.made_by(shallow)["compiler"]]
    monkeypatch.setattr(module, "_settings", lambda: {"min_block_size": 1})
    keys.append(backend.made_by(shallow)["compiler"])
    monkeypatch.setattr(TensorRtBackend, "version", "2.13.0 11.0.0")
    keys.append(backend.made_by(shallow)["compiler"])
    assert len(set(keys)) == 3


def test_the_op_at_which_compiling_fails_is_named(greedy: InTorch) -> None:
    node = next(iter(greedy.lowered[0].program.graph.find_nodes(
        op="call_function", target=torch.ops.aten.embedding.default)))  # fmt: skip

    def run_node(n: object) -> None:
        raise AssertionError("no such layer")

    with pytest.raises(AssertionError) as caught:
        run_node(node)
    assert failing_node(caught.value) is node
    assert failing_node(ValueError("elsewhere")) is None


def test_it_is_searched_like_the_others() -> None:
    assert "tensorrt" in round_backends()
    static = backend_capabilities("inductor")
    mine = backend_capabilities("tensorrt")
    assert mine.ops == static.ops and mine.all_trips and mine.whole_rounds


@pytest.mark.skipif(not ABSENT, reason="torch-tensorrt is installed")
def test_without_the_extra_the_error_says_how_to_install_it(
    shallow: dict[str, CausalModel],
    repository: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(
        MissingCapabilityError, match=r"pip install 'specplan\[tensorrt\]'"
    ) as caught:
        TensorRtBackend().compile(plain(), shallow)
    assert caught.value.exit_code == 4
    target = repository / "examples/reference_models/target"
    (tmp_path / "problem.yaml").write_text(
        "schema_version: 1\n"
        f"models: {{target: {{path: {target}, dtype: float32}}}}\n"
        "device: measured\nbackend: tensorrt\n"
        "workload: {batch_sizes: [1], prompt_tokens: 8, output_tokens: 8}\n"
    )
    monkeypatch.chdir(tmp_path)
    done = specplan_here("profile", "device", "problem.yaml")
    assert done.returncode == 4, done.stderr
    assert "pip install 'specplan[tensorrt]'" in done.stderr


@pytest.mark.long
def test_older_attention_is_decomposed(greedy: InTorch) -> None:
    split = split_round(greedy.lowered[0].program, "2.11.0")
    assert split.whole and not any("attention" in one.op for one in split.placed)
