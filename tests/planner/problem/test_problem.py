"""Problem files: what a good one means, and what is said about broken ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from specplan.cost_models.models.model_shape import ModelShape
from specplan.cost_models.models.number_formats import number_format
from specplan.ir.errors import SpecplanError, UsageError
from specplan.planner.facts import ProblemFacts, gather_facts
from specplan.planner.problem.loading import load_problem, problem_from_dict
from specplan.planner.problem.schema import Problem, problem_json_schema
from tests.cost_models.models.gguf_files import (
    dense_mlp,
    ends,
    grouped_layer,
    llama_metadata,
    write_gguf,
)
from tests.planner.checkpoints import CONFIG, good_problem, write_checkpoint, write_good
from tests.planner.problem.broken_problems import CASES, Broken


def write_yaml(folder: Path, value: Any) -> Path:
    path = folder / "problem.yaml"
    path.write_text(yaml.safe_dump(value, sort_keys=False), encoding="utf-8")
    return path


def test_a_good_problem_is_read_with_absolute_paths(tmp_path: Path) -> None:
    problem = load_problem(write_good(tmp_path))
    assert problem.models.target.path == (tmp_path / "target").resolve()
    assert problem.models.by_role["draft"].path == (tmp_path / "draft").resolve()
    assert list(problem.models.by_role) == ["target", "draft"]
    assert problem.workload.prompts == (tmp_path / "prompts.jsonl").resolve()
    assert problem.profiles == (tmp_path / "measured").resolve()
    assert problem.acceptance == {"draft": (tmp_path / "draft-acceptance.json").resolve()}
    assert problem.workload.batch_sizes == (1, 4)
    assert problem.limits.memory == 2e9


def test_a_short_problem_takes_defaults(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "target")
    value = {
        "schema_version": 1,
        "models": {"target": {"path": "target"}},
        "workload": {"batch_sizes": [1], "prompt_tokens": 8, "output_tokens": 8},
    }
    problem = load_problem(write_yaml(tmp_path, value))
    assert problem.objective == "latency" and problem.device == "measured"
    assert problem.sources == ("prompt_lookup",) and problem.methods is None
    assert problem.profiles == (tmp_path / ".specplan").resolve()
    assert problem == problem_from_dict(value, tmp_path)


def test_a_problem_survives_json(tmp_path: Path) -> None:
    problem = load_problem(write_good(tmp_path))
    assert Problem.model_validate_json(problem.model_dump_json()) == problem


def test_config_alone_is_enough_for_a_named_device(tmp_path: Path) -> None:
    write_good(tmp_path)
    for name in ("target", "draft"):
        (tmp_path / name / "model.safetensors").unlink()
        (tmp_path / name / "tokenizer.json").unlink()
    value = good_problem() | {"device": "h200"}
    del value["workload"]["prompts"], value["workload"]["task"]
    assert load_problem(write_yaml(tmp_path, value)).device == "h200"


def planned_only(folder: Path, **target: str) -> ProblemFacts:
    """Facts of a problem that is planned for a device with the formats of its target changed."""
    write_good(folder)
    value = good_problem() | {"device": "h200"}
    value["models"] = {"target": {"path": "target"} | target}
    value["methods"], value["acceptance"] = ["autoregressive"], {}
    del value["workload"]["prompts"], value["workload"]["task"]
    return gather_facts(load_problem(write_yaml(folder, value)))


def test_number_formats_that_nobody_has_stored_are_planned_for(tmp_path: Path) -> None:
    stored = planned_only(tmp_path / "stored").target
    four = planned_only(tmp_path / "four", weight_format="int4", kv_format="fp8").target
    assert four.formats.mlp == number_format("int4-g128") and four.kv_format.name == "fp8"
    assert four.weight_bytes < stored.weight_bytes
    assert four.kv_bytes_per_token < stored.kv_bytes_per_token
    with pytest.raises(UsageError, match=r"models.target.weight_format.*int3"):
        planned_only(tmp_path / "three", weight_format="int3")


def test_a_gguf_file_is_planned_for(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    tensors = ends(CONFIG, "F16", None) | grouped_layer(
        CONFIG, 0, 4, {"attn": "F16", "attn_v": "F16"}
    )
    write_gguf(path, llama_metadata(CONFIG, "llama"), tensors | dense_mlp(8, 12, 0, "F16", "F16"))
    assert planned_only(tmp_path, path=str(path)).target == ModelShape.from_gguf(
        path, name="target"
    )
    with pytest.raises(UsageError, match="states the format of every tensor"):
        planned_only(tmp_path, path=str(path), weight_format="int8")


def test_what_is_planned_for_only_is_not_measured(tmp_path: Path) -> None:
    write_good(tmp_path)
    value = good_problem()
    value["models"]["target"]["weight_format"] = "int8"
    with pytest.raises(UsageError, match=r"models.target.path: .*planning only"):
        load_problem(write_yaml(tmp_path, value))


@pytest.mark.parametrize("text", ["2e9", "2.0e9", "2000000000", "2_000_000_000", "+2.0E+9"])
def test_numbers_may_be_written_with_exponents(tmp_path: Path, text: str) -> None:
    path = write_good(tmp_path)
    path.write_text(path.read_text().replace("2000000000.0", text))
    assert load_problem(path).limits.memory == 2e9


def test_greedy_decoding_ignores_top_k_and_top_p(tmp_path: Path) -> None:
    """Only the temperature has to be set to make a sampled workload greedy."""
    write_good(tmp_path)
    value = good_problem()
    value["workload"] |= {"temperature": 0.7, "top_k": 20, "top_p": 0.9}
    sampled = load_problem(write_yaml(tmp_path, value)).workload
    assert (sampled.top_k, sampled.top_p) == (20, 0.9)
    value["workload"]["temperature"] = 0
    greedy = load_problem(write_yaml(tmp_path, value)).workload
    assert (greedy.top_k, greedy.top_p) == (0, 1.0)


def test_the_schema_validates_the_good_example() -> None:
    schema = problem_json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(good_problem(), schema, jsonschema.Draft202012Validator)
    for broken in ({"limit": {}}, {"objective": "speed"}, {"schema_version": "1"}, {"seed": -1}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(good_problem() | broken, schema)


def test_the_schema_describes_every_key() -> None:
    schema = problem_json_schema()
    for owner in (schema, *schema["$defs"].values()):
        for name, field in owner["properties"].items():
            assert field.get("description"), name
        assert owner["additionalProperties"] is False


def test_the_cases_are_many_and_differ() -> None:
    assert len(CASES) >= 45
    assert len({broken.name for broken in CASES}) == len(CASES)


@pytest.mark.parametrize("broken", CASES, ids=lambda broken: broken.name)
def test_a_broken_problem_is_refused_in_one_clear_message(broken: Broken, tmp_path: Path) -> None:
    write_good(tmp_path)
    value = good_problem()
    broken.edit(value, tmp_path)
    path = write_yaml(tmp_path, value)
    with pytest.raises(SpecplanError) as caught:
        load_problem(path)
    error = caught.value
    assert error.exit_code == broken.exit_code, error
    assert error.where.startswith(str(path)), error
    assert broken.key in error.where.replace(str(path), "").replace(" -> ", ": ").split(": ")
    assert broken.says in str(error), error
    assert error.remedy.endswith((".", "?", ".)")), error
    assert "\n" not in str(error) and "pydantic" not in str(error)


TEXTS = {
    "duplicate key": ("seed: 1\nseed: 2\n", ":2: seed", "twice"),
    "nested duplicate": ("limits:\n  tpot: 1\n  ttft: 1\n  tpot: 2\n", ":4: limits.tpot", "twice"),
    "bad syntax": ("models: [1, 2\nseed: 3\n", ":2:", "not valid YAML"),
    "a tab": ("models:\n\ttarget: x\n", ":2:1", "not valid YAML"),
    "a Python object": ("seed: !!python/object/apply:os.getcwd []\n", ":1:", "not valid YAML"),
    "two documents": ("seed: 1\n---\nseed: 2\n", ":2:", "not valid YAML"),
    "a number as key": ("1: 2\n", ":1", "keys must be texts"),
    "a list as key": ("? [a]\n: 2\n", ":1", "keys must be texts"),
    "an alias to itself": ("models: &m\n  target: *m\n", "models.target", "alias"),
    "an impossible date": ("seed: 2026-99-99\n", "", "not valid YAML"),
    "empty": ("", "", "is empty"),
    "a comment only": ("# nothing\n", "", "is empty"),
    "a list": ("- models\n", "", "holds a list"),
    "a word": ("hello\n", "", "holds a str"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_broken_text_is_refused(name: str, tmp_path: Path) -> None:
    text, where, says = TEXTS[name]
    path = tmp_path / "problem.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        load_problem(path)
    assert caught.value.where.startswith(str(path)) and where in caught.value.where
    assert says in caught.value.what and caught.value.remedy


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes("seed: 1 # für".encode("latin-1"))
    for path, says in (
        (tmp_path / "none.yaml", "No such file"),
        (tmp_path, "a folder"),
        (tmp_path / "latin.yaml", "not UTF-8"),
    ):
        with pytest.raises(UsageError) as caught:
            load_problem(path)
        assert says in caught.value.what and caught.value.where == str(path)
        assert caught.value.remedy


def test_messages_name_the_line(tmp_path: Path) -> None:
    path = write_good(tmp_path)
    path.write_text(path.read_text().replace("top_p: 0.9", "top_p: 1.9"))
    line = path.read_text().split("\n").index("  top_p: 1.9") + 1
    with pytest.raises(UsageError) as caught:
        load_problem(path)
    assert caught.value.where == f"{path}:{line}: workload.top_p"


def test_all_errors_of_a_file_come_at_once_in_its_order(tmp_path: Path) -> None:
    write_good(tmp_path)
    value = good_problem() | {"seed": -1, "sed": 2, "objective": "x", "device": "h100"}
    value["workload"]["batch_size"] = value["workload"].pop("batch_sizes")
    value["methods"] = ["autoregressive", "draft_modle"]
    path = write_yaml(tmp_path, value)
    with pytest.raises(UsageError) as caught:
        load_problem(path)
    assert str(caught.value).startswith(f"{path}: 6 errors\n  {path}:")
    lines = [line.strip() for line in str(caught.value).split("\n")[1:]]
    keys = [line.removeprefix(f"{path}:").split(":")[1].strip() for line in lines]
    assert sorted(keys) == sorted(
        ["seed", "sed", "objective", "device", "workload.batch_size", "methods.1"]
    )
    numbers = [int(line.removeprefix(f"{path}:").split(":")[0]) for line in lines]
    assert numbers == sorted(numbers)
    assert [str(error) for error in caught.value.errors] == lines
    by_key = dict(zip(keys, lines, strict=True))
    assert 'Did you mean "batch_sizes"?' in by_key["workload.batch_size"]
    assert '"h100-pcie" or "h100-sxm"?' in by_key["device"]
    assert 'Did you mean "draft_model"?' in by_key["methods.1"]


def test_errors_of_models_and_words_come_together(tmp_path: Path) -> None:
    write_good(tmp_path)
    value = good_problem() | {"backend": "eagre"}
    value["models"]["target"]["path"] = "targt"
    value["models"]["drafts"][0]["path"] = "drft"
    with pytest.raises(UsageError, match="3 errors") as caught:
        load_problem(write_yaml(tmp_path, value))
    assert len(caught.value.errors) == 3


@pytest.mark.parametrize(
    ("word", "key"),
    [
        ("target", "models.target.path"),
        ("batch", "workload.batch_sizes"),
        ("prompt", "workload.prompt_tokens"),
        ("tpot", "limits.tpot"),
        ("temperature", "workload.temperature"),
    ],
)
def test_a_key_at_the_wrong_place_is_shown_the_right_one(
    word: str, key: str, tmp_path: Path
) -> None:
    write_good(tmp_path)
    with pytest.raises(UsageError, match=f'{word}: unknown key. Did you mean "{key}"'):
        load_problem(write_yaml(tmp_path, good_problem() | {word: 1}))


def test_a_problem_made_in_python_is_checked_too(tmp_path: Path) -> None:
    write_good(tmp_path)
    with pytest.raises(UsageError) as caught:
        problem_from_dict(good_problem() | {"backend": "reference2"}, tmp_path)
    assert caught.value.where == "backend"


@pytest.mark.parametrize(
    ("key", "text", "number"),
    [
        ("tpot", "20ms", 0.02),
        ("tpot", "0.5 s", 0.5),
        ("tpot", "2s", 2.0),
        ("tpot", 0.02, 0.02),
        ("tpot", "0.02", 0.02),
        ("ttft", "500MS", 0.5),
        ("ttft", "800us", 0.0008),
        ("ttft", "2min", 120.0),
        ("request_latency", 90, 90.0),
        ("memory", "80GB", 80e9),
        ("memory", "80 GiB", 80 * 1024**3),
        ("memory", "1.5TB", 1.5e12),
        ("memory", "80gb", 80e9),
        ("memory", "2e9", 2e9),
    ],
)
def test_quantities_may_have_units(key: str, text: object, number: float, tmp_path: Path) -> None:
    write_good(tmp_path)
    value = good_problem() | {"limits": {key: text}}
    jsonschema.validate(value, problem_json_schema(), jsonschema.Draft202012Validator)
    problem = load_problem(write_yaml(tmp_path, value))
    assert getattr(problem.limits, key) == pytest.approx(number, rel=1e-12)
    assert Problem.model_validate_json(problem.model_dump_json()) == problem


def test_paths_may_have_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_good(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    value = good_problem()
    value["models"]["target"]["path"] = "$HOME/target"
    value["models"]["drafts"][0]["path"] = "~/draft"
    value["acceptance"] = {"draft": "${HOME}/draft-acceptance.json"}
    (tmp_path / "elsewhere").mkdir()
    value["workload"]["prompts"] = "~/prompts.jsonl"
    problem = load_problem(write_yaml(tmp_path / "elsewhere", value))
    assert problem.models.target.path == (tmp_path / "target").resolve()
    assert problem.models.drafts[0].path == (tmp_path / "draft").resolve()


def test_a_model_may_be_an_id_in_the_local_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    write_good(tmp_path)
    value = good_problem()
    value["models"]["target"]["path"] = "owner/model"
    with pytest.raises(UsageError, match="nor a model of that id in the Hugging Face cache"):
        load_problem(write_yaml(tmp_path, value))
    repository = tmp_path / "hub" / "models--owner--model"
    snapshot = repository / "snapshots" / ("0" * 40)
    snapshot.parent.mkdir(parents=True)
    (tmp_path / "target").rename(snapshot)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    assert load_problem(write_yaml(tmp_path, value)).models.target.path == snapshot.resolve()
