"""From a problem or a bundle to an engine's files, and the price of what it cannot express."""

from __future__ import annotations

import copy
import json
import os
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from specplan import optimize
from specplan.backends.engines.registry import open_table, project
from specplan.cost_models.acceptance.drafters import Model
from specplan.cost_models.acceptance.key import file_name
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.emitting.projecting import emit
from specplan.ir.errors import InfeasibleError, UsageError
from specplan.planner.answer.names import problem_name
from specplan.planner.facts import ProblemFacts
from specplan.planner.problem.loading import problem_from_dict
from specplan.planner.search.comparing import score
from specplan.planner.search.search import search
from specplan.problems import capabilities_of, table_for
from tests.backends.engines.examples import PATHS, job, plans
from tests.planner.big_models import write_70b
from tests.planner.example_facts import example_facts
from tests.planner.rich_facts import rich_facts

WIDE = [[0.45, 0.25, 0.15]]
"""A drafter whose second choices are worth a tree."""


@cache
def _home() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory()


@cache
def _written(dense: bool) -> tuple[ProblemFacts, dict[str, Any]]:
    """The facts of a problem, and the problem; its models and profiles are written once."""
    folder = Path(_home().name) / ("dense" if dense else "rich")
    facts = example_facts(folder) if dense else rich_facts(folder)
    value = facts.problem.model_dump(mode="json")
    if not dense:
        value["workload"]["batch_sizes"] = [1]
    value["acceptance"] = {}
    for name, profile in facts.profiles.items():
        value["acceptance"][str(name)] = str(folder / f"{file_name(name)}.json")
        profile.save(folder / f"{file_name(name)}.json")
    return facts, value


def problem(folder: Path, hazards: Any = None, *, dense: bool = False) -> dict[str, Any]:
    """A problem with ready profiles; those of the draft and head, changed, are in `folder`.

    The target is a mixture of experts with something of every kind that drafts, or a dense model
    with a draft model and more than one batch size.
    """
    facts, value = _written(dense)
    value = copy.deepcopy(value)
    for name in (Model("draft"), Model("head")):
        if hazards is not None and name in facts.profiles:
            key, path = facts.profiles[name].key, folder / f"{file_name(name)}.json"
            AcceptanceProfile.from_hazards(hazards, key=key, trials=1000).save(path)
            value["acceptance"][str(name)] = str(path)
    return value


def of_methods(value: dict[str, Any], *methods: str) -> dict[str, Any]:
    """A problem with some methods alone, without the profiles that these do not read."""
    stated = value["acceptance"].items()
    others = ("rounds(", "fallback(")
    named = {name: path for name, path in stated if not name.startswith(others)}
    return value | {"methods": [*methods], "acceptance": named}


def facts_of(value: dict[str, Any]) -> ProblemFacts:
    from specplan.gathering import gather
    from specplan.progress import silent

    return gather(problem_from_dict(value | {"backend": "none"}), silent)


def test_a_problem_for_an_engine_chooses_what_it_can_express(tmp_path: Path) -> None:
    value = problem(tmp_path, WIDE)
    table = open_table("vllm")
    bound = optimize(value | {"backend": "vllm"}).search
    own = capabilities_of(problem_from_dict(value | {"backend": "vllm@0.33"}))
    forms = {
        "draft": "model",
        "head": "eagle",
        "flash": "dflash",
        "heads": "model",
        "beside": "layers",
        "adapter": "model",
        "steps": "model",
        "slots": "model",
        "neighbours": "model",
    }
    assert own == replace(table, forms=forms)
    refused = [c for c in bound.candidates if c.unsupported is not None]
    assert any("trees were removed" in str(c.refusal) for c in refused)
    assert any("first layers" in str(c.refusal) for c in refused)
    assert all(c.priced and not c.admissible for c in refused)
    expressible = [c for c in bound.candidates if c.plan and not table.refusals(c.plan)]
    assert {c.method for c in expressible} >= {"draft_model", "eagle3", "mtp", "prompt_lookup"}
    best = min(score(c, "latency") for c in expressible if c.priced)
    assert score(bound.chosen, "latency") <= best * 1.01
    with pytest.raises(UsageError, match="specplan emit"):
        optimize(value | {"backend": "vllm"}, out=tmp_path / "bundle")


def test_unknown_engines_and_versions_are_refused(tmp_path: Path) -> None:
    value = problem(tmp_path)
    with pytest.raises(UsageError, match='unknown backend "vlm"'):
        optimize(value | {"backend": "vlm"})
    with pytest.raises(UsageError, match="has not been verified"):
        optimize(value | {"backend": "vllm@0.1"})
    with pytest.raises(UsageError, match="no backend to run them"):
        optimize(value | {"backend": "vllm", "device": "measured"})


def test_the_projection_loss_is_the_ratio_of_the_two_prices(tmp_path: Path) -> None:
    value = problem(tmp_path, WIDE, dense=True)
    out = tmp_path / "vllm"
    projection = emit(value, "vllm", out=out)
    facts = facts_of(value)
    free = search(facts)
    own = search(replace(facts, capabilities=open_table("vllm")))
    assert open_table("vllm").refusals(free.chosen.plan)  # type: ignore[arg-type]
    assert projection.chosen.plan == free.chosen.plan and projection.emitted.plan == own.chosen.plan
    assert projection.ratio is not None
    expected = score(free.chosen, "latency") / score(own.chosen, "latency")
    assert projection.ratio.mean == pytest.approx(expected)
    assert projection.ratio.low <= projection.ratio.mean <= projection.ratio.high
    assert projection.ratio.mean < 1.0
    document = json.loads((out / "projection.json").read_text(encoding="utf-8"))
    assert document["expressible"] is False and document["refusals"] == list(projection.refusals)
    assert document["speed_of_emitted_over_chosen"]["mean"] == projection.ratio.mean
    assert document["chosen"]["speedup"]["mean"] > document["emitted"]["speedup"]["mean"] > 0
    readme = (out / "README.md").read_text(encoding="utf-8")
    assert "cannot be expressed" in readme and "loses" in readme
    assert "vllm bench serve" in readme and "--config forced.yaml" in readme
    settings = yaml.safe_load((out / "vllm.yaml").read_text(encoding="utf-8"))
    assert settings["speculative-config"]["num_speculative_tokens"] >= 1
    starts_from_elsewhere(out, "vllm")


def starts_from_elsewhere(out: Path, program: str) -> None:
    """Its script is a program, which runs the engine in the folder of the configuration."""
    stand_in = out.parent / "bin" / program
    stand_in.parent.mkdir(exist_ok=True)
    stand_in.write_text("#!/bin/sh\npwd\n")
    stand_in.chmod(0o755)
    path = f"{stand_in.parent}:{os.environ['PATH']}"
    script, env = f"./{out.name}/serve.sh", os.environ | {"PATH": path}
    done = subprocess.run([script], cwd=out.parent, env=env, capture_output=True, text=True)
    assert done.stdout.strip() == str(out.resolve()), done.stderr


def test_a_plan_that_is_expressed_loses_nothing(tmp_path: Path) -> None:
    value = of_methods(problem(tmp_path), "eagle3", "mtp")
    value["workload"] |= {"batch_sizes": [1]}
    out = tmp_path / "out"
    for engine in ("vllm", "tensorrt_llm", "sglang"):
        projection = emit(value | {"backend": engine}, engine, out=out)
        own = optimize(value | {"backend": engine})
        assert projection.emitted.plan == own.plan
        document = json.loads((out / "projection.json").read_text(encoding="utf-8"))
        assert document["engine"]["name"] == engine
        names = {path.name for path in out.iterdir()}
        assert names >= {"README.md", "projection.json", "serve.sh", f"{engine}.yaml"}
        assert os.access(out / "serve.sh", os.X_OK)
        others = {"vllm", "tensorrt_llm", "sglang"} - {engine}
        assert not names & {f"{other}.yaml" for other in others}, "the folder is replaced whole"


def test_other_folders_are_left_alone(tmp_path: Path) -> None:
    value = problem(tmp_path)
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="holds no projection"):
        emit(value, "vllm", out=full)
    assert [path.name for path in full.iterdir()] == ["mine.txt"]


def test_a_number_type_that_an_engine_lacks(tmp_path: Path) -> None:
    value = problem(tmp_path)
    value["models"]["target"]["dtype"] = "float64"
    value |= {"acceptance": {}, "sources": [], "methods": ["autoregressive"]}
    value |= {"device": "cpu-generic"}
    with pytest.raises(UsageError, match="does not serve a model in float64"):
        emit(value, "vllm", out=tmp_path / "out")
    with pytest.raises(UsageError, match="does not serve a model in float64"):
        optimize(value | {"backend": "vllm"})
    assert emit(value, "transformers", out=tmp_path / "out").emission.documents


def test_number_formats_and_the_servers_limits_reach_the_engine(tmp_path: Path) -> None:
    value = of_methods(problem(tmp_path, dense=True), "draft_model")
    value["acceptance"] = {"draft": 0.8}
    formats = {"weight_format": "fp8", "kv_format": "fp8"}
    value["models"]["target"] |= formats
    value["models"]["drafts"] = [
        one | formats for one in value["models"]["drafts"] if one["name"] == "draft"
    ]
    value["serving"] = {"running": 2, "step_tokens": 4096, "prefill": "first"}
    value["workload"]["batch_sizes"] = [1, 4]
    made = {engine: emit(value, engine, out=tmp_path / engine) for engine in ("vllm", "sglang")}
    vllm = made["vllm"].emission.documents["vllm.yaml"]
    assert (vllm["max-num-seqs"], vllm["max-num-batched-tokens"]) == (2, 4096)
    assert (vllm["quantization"], vllm["kv-cache-dtype"]) == ("fp8", "fp8")
    drafter = vllm["speculative-config"]
    assert (drafter["quantization"], drafter["kv_cache_dtype"]) == ("fp8", "fp8")
    ranges = drafter.get("num_speculative_tokens_per_batch_size", [[1, 2, 0]])
    assert ranges[-1][1] == 2, "no range goes beyond the server's requests"
    sglang = made["sglang"].emission.documents["sglang.yaml"]
    assert (sglang["max-running-requests"], sglang["chunked-prefill-size"]) == (2, 4096)
    assert (sglang["quantization"], sglang["kv-cache-dtype"]) == ("fp8", "fp8_e4m3")
    assert sglang["speculative-draft-model-quantization"] == "fp8"
    assert "whole, before the next decoding step" in made["vllm"].emission.notes[-1]
    answer = optimize(value | {"backend": "vllm"}).answer
    assert ", weights in fp8, caches in fp8 |" in problem_name(answer)

    value["models"]["target"]["weight_format"] = "int4"
    del value["serving"]
    tensorrt = emit(value, "tensorrt_llm", out=tmp_path / "tensorrt_llm").emission
    assert tensorrt.documents["tensorrt_llm.yaml"]["kv_cache_config"] == {"dtype": "fp8"}
    assert sum("serve a checkpoint in it" in note for note in tensorrt.notes) == 2, "and the draft"
    readme = (tmp_path / "tensorrt_llm/README.md").read_text(encoding="utf-8")
    assert "Predicted with the weights of" in readme and "in int4" in readme
    value["models"]["target"]["kv_format"] = "int8"
    with pytest.raises(UsageError, match="no setting of vLLM is known here for a KV cache in int8"):
        emit(value, "vllm", out=tmp_path / "int8")
    assert not (tmp_path / "int8").exists()


def test_any_version_is_marked(tmp_path: Path) -> None:
    value = of_methods(problem(tmp_path), "eagle3")
    with pytest.raises(UsageError, match="--any-version"):
        emit(value, "sglang@9", out=tmp_path / "out")
    emit(value, "sglang@9", out=tmp_path / "out", any_version=True)
    readme = (tmp_path / "out/README.md").read_text(encoding="utf-8")
    assert "Not verified for 9" in readme


@pytest.mark.parametrize("device", ["h200", "8xh100-sxm"])
def test_devices_that_share_layers_are_reported(tmp_path: Path, device: str) -> None:
    value = of_methods(problem(tmp_path), "eagle3") | {"device": device}
    emit(value, "vllm", out=tmp_path / "out")
    settings = yaml.safe_load((tmp_path / "out/vllm.yaml").read_text(encoding="utf-8"))
    assert settings.get("tensor-parallel-size", 1) == (8 if device.startswith("8x") else 1)


def test_an_engine_of_one_device_is_predicted_for_one_device(tmp_path: Path) -> None:
    """llama-server, as it is written, holds the model on one device."""
    value = of_methods(problem(tmp_path), "eagle3") | {"device": "8xh100-sxm"}
    projection = emit(value, "llama_cpp", out=tmp_path / "out")
    alone = emit(value | {"device": "h100-sxm"}, "llama_cpp", out=tmp_path / "alone")
    assert projection.emitted.loads == alone.emitted.loads
    assert projection.ratio is not None and projection.ratio.mean < 1.0
    assert not any("one device" in reason for reason in alone.refusals)
    assert "one device, and the plan shares it among 8" in projection.refusals[0]
    assert "--split-mode none" in projection.emission.command


@pytest.mark.parametrize(
    ("engine", "device", "runs"),
    [
        ("openvino_genai", "8xh100-sxm", False),
        ("openvino_genai", "cpu-generic", True),
        ("tensorrt_llm", "8xmi300x", False),
        ("tensorrt_llm", "cpu-generic", False),
        ("tensorrt_llm", "8xh100-sxm@tensorrt_llm", True),
        ("tensorrt_edge_llm", "tpu-v4", False),
        ("llama_cpp", "tpu-v4", False),
        ("llama_cpp", "mi300x", True),
        ("llama_cpp", "cpu-generic", True),
        ("onnxruntime_genai", "tpu-v4", False),
        ("vllm", "tpu-v4", True),
        ("vllm", "8xmi300x", True),
        ("sglang", "cpu-generic", True),
    ],
)
def test_an_engine_is_refused_on_hardware_that_it_does_not_run_on(
    tmp_path: Path, engine: str, device: str, runs: bool
) -> None:
    checked = problem_from_dict(of_methods(problem(tmp_path), "eagle3") | {"device": device})
    if runs:
        assert table_for(checked, engine).engine == engine
        return
    with pytest.raises(UsageError, match=r"does not run on .* or another engine"):
        table_for(checked, engine)


@pytest.mark.parametrize("backend", ["vllm", "llama_cpp"])
def test_fewer_requests_fit_on_one_device(tmp_path: Path, backend: str) -> None:
    """A model of 70B leaves less room on one GPU than on eight."""
    folder = write_70b(tmp_path / "models")
    target: dict[str, str] = {"path": str(folder / "target"), "weight_format": "int8"}
    value = {
        "schema_version": 1,
        "models": {
            "target": target,
            "drafts": [{"name": "eagle", "path": str(folder / "eagle")}],
        },
        "device": "8xh100-sxm",
        "backend": backend,
        "acceptance": {"eagle": 0.7},
        "workload": {"batch_sizes": [1, 16, 64], "prompt_tokens": 1024, "output_tokens": 512},
    }
    projection = emit(value, "llama_cpp", out=tmp_path / "out")
    if backend == "vllm":
        assert projection.ratio is not None and projection.ratio.mean < 1.0
    assert "1 of the 8 is assumed" in projection.emission.notes[-1]
    assert projection.emission.documents["llama_cpp.json"]["parallel"] == 16, "64 do not fit"
    one = optimize(value | {"backend": "llama_cpp"})
    assert backend == "vllm" or projection.emitted.plan == one.plan
    assert one.search.facts.problem.device == "h100-sxm" and one.search.left_out == ((64, 1024),)
    assert "1 of the 8 is assumed" in str(one.explanation()["basis"])
    target.pop("weight_format")
    with pytest.raises(InfeasibleError, match="1 of the 8 is assumed") as caught:
        emit(value, "llama_cpp", out=tmp_path / "out")
    assert "these devices" not in caught.value.remedy


def test_a_head_in_a_layout_that_the_engine_does_not_load(tmp_path: Path) -> None:
    value = of_methods(problem(tmp_path), "eagle3") | {"device": "h200"}
    head = next(m for m in value["models"]["drafts"] if m["name"] == "head")
    path = Path(shutil.copytree(head["path"], tmp_path / "head"))
    head["path"] = str(path)
    config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    inner = {key: config.pop(key) for key in list(config) if key not in ("draft_vocab_size",)}
    config |= {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "transformer_layer_config": inner | {"architectures": ["LlamaForCausalLM"]},
    }
    (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert emit(value, "vllm", out=tmp_path / "vllm").emitted.method == "eagle3"
    projection = emit(value, "sglang", out=tmp_path / "sglang")
    assert "layout of speculators (convert it" in str(projection.refusals)
    assert projection.emitted.method == "autoregressive"


def test_sampling_is_written_where_the_engine_has_it_and_stated_everywhere(tmp_path: Path) -> None:
    value = problem(tmp_path) | {"methods": ["draft_model"], "acceptance": {"draft": 0.8}}
    value["workload"] |= {"temperature": 0.7, "top_k": 20, "top_p": 0.9, "batch_sizes": [1]}
    places = {
        "vllm": ("vllm.yaml", "override-generation-config"),
        "llama_cpp": ("llama_cpp.json", "top-k"),
        "onnxruntime_genai": ("genai_config.overlay.json", "search"),
        "sglang": ("sglang.yaml", ""),
    }
    for engine, (name, key) in places.items():
        emit(value, engine, out=tmp_path / engine)
        readme = (tmp_path / engine / "README.md").read_text(encoding="utf-8")
        assert "temperature 0.7, top_k 20, top_p 0.9" in readme
        settings = yaml.safe_load((tmp_path / engine / name).read_text(encoding="utf-8"))
        assert not key or "20" in str(settings[key])


@pytest.mark.parametrize("engine", ["vllm", "tensorrt_llm"])
def test_commands_name_models_whose_paths_have_spaces_and_braces(engine: str) -> None:
    path = "/models/My {small} models/it's"
    table = open_table(engine)
    emission = project(table, replace(job(table, plans()["model"]), paths=PATHS | {"target": path}))
    assert emission.forced is not None
    given = job(table, plans()["model"])
    for command in (emission.command, *emission.forced.at(given.loads[0])):
        assert path in shlex.split(command.replace("\\\n", " "))
