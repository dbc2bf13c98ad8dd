"""The commands that run models, on tiny random checkpoints: a problem goes in, text comes out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

import specplan as package
from specplan.ir.text.picture import to_dot, to_mermaid
from specplan.passes.pipeline import PASSES, run_passes
from tests.cli.test_program import no_torch, specplan, specplan_each, specplan_here
from tests.planner.checkpoints import VOCABULARY, write_checkpoint

__all__ = ["no_torch"]
LETTERS = VOCABULARY[:26]
PAIRS = [[first, second] for first in LETTERS[:8] for second in LETTERS[:8]]


def problem(**changes: Any) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "models": {
            "target": {"path": "target", "dtype": "float32"},
            "drafts": [{"name": "draft", "path": "draft", "dtype": "float32"}],
        },
        "device": "cpu-generic",
        "workload": {
            "batch_sizes": [1],
            "prompt_tokens": 12,
            "output_tokens": 16,
            "task": "code",
            "prompts": "prompts.jsonl",
        },
        "profiles": "profiles",
    } | changes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two checkpoints, prompts and a problem file."""
    folder = tmp_path_factory.mktemp("problem")
    vocabulary = [*LETTERS, *("".join(pair) for pair in PAIRS)]
    for name, seed in (("target", 0), ("draft", 1)):
        write_checkpoint(folder / name, vocabulary=vocabulary, merges=PAIRS, seed=seed)
    lines = [
        {"id": f"p{i}", "task": "code", "text": "abcdefg" * 3 + LETTERS[i] * 5} for i in range(8)
    ]
    (folder / "prompts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "problem.yaml").write_text(yaml.safe_dump(problem()))
    return folder


@pytest.fixture(scope="module")
def bundle(folder: Path) -> Path:
    """The bundle of the problem."""
    done = specplan_here("optimize", str(folder / "problem.yaml"), "--out", str(folder / "bundle"))
    assert done.returncode == 0, done.stderr
    assert "Use " in done.stdout and f"specplan run {folder / 'bundle'}" in done.stdout
    assert done.stderr == ""
    return folder / "bundle"


def test_optimize_json(folder: Path, bundle: Path) -> None:
    arguments = ("optimize", str(folder / "problem.yaml"), "--print-ir-after-all")
    done, shown = specplan_here(*arguments, "--json"), specplan_here(*arguments)
    assert done.returncode == 0 == shown.returncode, done.stderr
    answer = json.loads(done.stdout)
    plan = package.load_bundle(bundle).plan
    assert package.parse_plan(answer["plan"]) == plan
    assert answer["bundle"] is None
    # what each pass makes of the plan, in both forms
    assert [step["pass"] for step in answer["passes"]] == [item.__name__ for item in PASSES]
    changed = [step["plan"] for step in answer["passes"] if step["plan"]]
    assert package.parse_plan(changed[-1]) == run_passes(plan) != plan
    for step in answer["passes"]:
        assert f"# after {step['pass']}, " in shown.stdout
        assert (step["plan"] or "ms: as before") in shown.stdout
    assert "\nUse " in shown.stdout


def test_lower_writes_what_engines_are_built_from(bundle: Path, tmp_path: Path) -> None:
    for module in ("onnxruntime", "onnxscript", "onnx_ir"):
        pytest.importorskip(module)
    out = tmp_path / "engines"
    done = specplan_here("lower", str(bundle), "--to", "tensorrt", "--out", str(out), "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    (item,) = answer["rounds"]
    assert item["batch"] == 1 and item["text"] >= 12 + 16
    written = {path.name for path in out.iterdir()} - {f"{item['name']}.engine"}
    beside = {"weights.safetensors", "build.sh", "build_engines.py", "sources.json"}
    assert written == beside | {f"{item['name']}.onnx"}
    assert answer["built"] is (out / f"{item['name']}.engine").is_file()
    wrong = specplan_here("lower", str(bundle), "--to", "coreml", "--out", str(tmp_path / "b"))
    assert wrong.returncode == 2 and "unknown engine builder 'coreml'" in wrong.stderr
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "notes.txt").write_text("mine")
    taken = specplan_here("lower", str(bundle), "--out", str(tmp_path / "taken"))
    assert taken.returncode == 2 and "taken" in taken.stderr


def test_api_says_the_same(folder: Path, bundle: Path) -> None:
    result = package.optimize(folder / "problem.yaml")
    assert package.load_bundle(bundle).plan == result.plan
    assert package.explain(bundle) == result.explain()
    assert result.candidates and result.estimates and result.speedup.mean >= 1.0


def test_bundle_moves_with_its_models(folder: Path, bundle: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "moved")
    moved = package.load_bundle(tmp_path / "moved" / bundle.name)
    moved.check_models()
    text = "".join(path.read_text() for path in moved.folder.iterdir())
    assert str(folder) not in text
    done = specplan_here("run", str(moved.folder), "--prompt", "abc", "--max-new-tokens", "2")
    assert done.returncode == 0, done.stderr


def test_a_bundle_with_its_weights_needs_nothing_else(
    folder: Path, bundle: Path, tmp_path: Path
) -> None:
    problem, out = str(folder / "problem.yaml"), tmp_path / "whole"
    refused = specplan_here("optimize", problem, "--copy-weights")
    assert refused.returncode == 2 and "Give --out DIR too" in refused.stderr
    done = specplan_here("optimize", problem, "--out", str(out), "--copy-weights")
    assert done.returncode == 0, done.stderr
    moved = package.load_bundle(shutil.move(out, tmp_path / "moved"))
    by_reference = package.load_bundle(bundle)
    assert moved.plan == by_reference.plan
    for name, reference in moved.models.items():
        assert reference.path == f"models/{name}"
        assert reference.digest == by_reference.models[name].digest
        assert (moved.folder / reference.path / "tokenizer.json").is_file()
        assert reference.path in json.dumps(moved.problem)
    inside = ("optimize", str(moved.folder / "problem.json"), "--out", str(moved.folder))
    replaced = specplan_here(*inside)
    assert replaced.returncode == 2 and "would replace the checkpoint of target" in replaced.stderr
    text = ("run", "--prompt", "abcabc", "--max-new-tokens", "4", "--json")
    outputs = [
        json.loads(specplan_here(text[0], str(home), *text[1:]).stdout)["completions"][0]["tokens"]
        for home in (moved.folder, bundle)
    ]
    assert outputs[0] == outputs[1]
    weights = moved.model_folder("target") / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    changed = specplan_here("run", str(moved.folder), "--prompt", "a")
    assert changed.returncode == 2 and "model.safetensors: the file's bytes" in changed.stderr


def test_explain(bundle: Path, no_torch: str) -> None:
    done = specplan("explain", str(bundle), PYTHONPATH=no_torch)
    assert done.returncode == 0, done.stderr
    assert "Use " in done.stdout and "Based on" in done.stdout
    whole = specplan_here("explain", str(bundle), "--show", "all").stdout
    if "Use no speculation" not in whole:
        assert whole.index("Drafted by") < whole.index("Use ")
    flow = specplan_here("explain", str(bundle), "--mermaid").stdout
    graph = specplan_here("explain", str(bundle), "--dot").stdout
    plan = package.load_bundle(bundle).plan
    assert flow == to_mermaid(plan) and graph == to_dot(plan)
    assert specplan_here("explain", str(bundle), "--dot", "--json").returncode == 2
    short = json.loads(specplan_here("explain", str(bundle), "--json").stdout)
    assert short["verdict"]
    whole = json.loads(specplan_here("explain", str(bundle), "--json", "--candidates").stdout)
    assert len(whole["candidates"]) > 10


def test_a_law_has_no_graph() -> None:
    done = specplan_here("explain", "--law", "leviathan", "--dot")
    assert done.returncode == 2 and "a published formula has no graph" in done.stderr


def test_run_prints_text_streams_it_and_gives_json(bundle: Path) -> None:
    arguments = ("run", str(bundle), "--prompt", "abcabc", "--max-new-tokens", "6")
    plain, streamed = specplan_here(*arguments), specplan_here(*arguments, "--stream")
    assert plain.returncode == streamed.returncode == 0, plain.stderr + streamed.stderr
    answer = json.loads(specplan_here(*arguments, "--json").stdout)
    (completion,) = answer["completions"]
    assert plain.stdout == streamed.stdout == completion["text"] + "\n"
    assert len(completion["tokens"]) == 6 and completion["finish_reason"] == "length"


def test_run_continues_a_batch_and_files(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text("abcabc")
    arguments = ("run", str(bundle), "--max-new-tokens", "5", "--json", "--prompt", "abcabc")
    done = specplan_here(*arguments, "--prompt-file", str(tmp_path / "prompt.txt"))
    first, second = json.loads(done.stdout)["completions"]
    assert first["text"] == second["text"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "no prompt"),
        (("--prompt", "abc", "--prompt", "abc", "--stream"), "--stream"),
        (("--prompt", "abc", "--top-p", "2"), "top_p"),
        (("--prompt", "abc", "--chat"), "chat template"),
        (("--prompt-file", "/no/such/file"), "/no/such/file"),
        (("--prompt", ""), "the prompt is empty"),
    ],
)
def test_run_refuses(bundle: Path, arguments: tuple[str, ...], message: str) -> None:
    done = specplan_here("run", str(bundle), *arguments)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr and done.stdout == ""


def test_a_changed_bundle_is_refused_by_the_file(bundle: Path, tmp_path: Path) -> None:
    shutil.copytree(bundle, tmp_path / "bundle")
    plan = tmp_path / "bundle" / "plan.txt"
    plan.write_text(plan.read_text() + "# more\n")
    done = specplan_here("run", str(tmp_path / "bundle"), "--prompt", "abc")
    assert done.returncode == 2
    assert "plan.txt" in done.stderr


def test_a_changed_checkpoint_is_refused_by_its_model(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    config = tmp_path / "copy" / "target" / "config.json"
    config.write_text(config.read_text() + " ")
    done = specplan_here("run", str(tmp_path / "copy" / "bundle"), "--prompt", "abc")
    assert done.returncode == 2
    assert "target" in done.stderr


def test_bench(bundle: Path) -> None:
    arguments = ("bench", str(bundle), "--limit", "1", "--repeats", "1", "--no-stock")
    table = specplan_here(*arguments)
    assert table.returncode == 0, table.stderr
    assert "autoregressive" in table.stdout
    missed = specplan_here(*arguments, "--require-speedup", "1000", "--json")
    assert missed.returncode == 1
    assert "1000.00 is required" in missed.stderr
    assert json.loads(missed.stdout)["lines"][0]["name"] == "autoregressive"
    assert specplan_here(*arguments, "--batch", "64").returncode == 5


def test_bench_of_a_load(bundle: Path, tmp_path: Path) -> None:
    """Measured beside predicted, at a rate and by a trace; a limit that is missed ends with 1."""
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"seconds": 0}\n{"seconds": 0.01, "output_tokens": 3}\n')
    table = specplan_here("bench", str(bundle), "--rate", "50", "--requests", "4")
    assert table.returncode == 0, table.stderr
    assert "TTFT p50 / p90 / p99" in table.stdout and "predicted" in table.stdout
    done = specplan_here("bench", str(bundle), "--trace", str(trace), "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["requests"] == 2 and answer["lines"][0]["name"] == "autoregressive"
    for line in answer["lines"]:
        assert 0 < line["measured"]["ttft"]["p50"] <= line["measured"]["ttft"]["p99"]
        assert line["predicted"]["tpot"]["mean"] > 0
    both = specplan_here("bench", str(bundle), "--trace", str(trace), "--rate", "1")
    assert both.returncode == 2 and "--trace" in both.stderr
    for flags in (("--rate", "5", "--require-speedup", "2"), ("--running", "4")):
        ignored = specplan_here("bench", str(bundle), *flags)
        assert ignored.returncode == 2 and flags[-2] in ignored.stderr


def test_bench_of_every_kind(bundle: Path) -> None:
    arguments = ("--limit", "1", "--repeats", "1", "--kinds", "--no-stock", "--json")
    done = specplan_here("bench", str(bundle), *arguments)
    assert done.returncode == 0, done.stderr
    lines = json.loads(done.stdout)["lines"]
    assert {line["name"].split(":")[0] for line in lines} == {
        "autoregressive", "draft_model", "dynamic_tree", "lookup_by_match", "lookup_or_draft",
        "prompt_lookup", "staged",
    }  # fmt: skip
    assert all(0 < line["predicted"]["low"] < line["predicted"]["mean"] for line in lines)


def test_tune(folder: Path, bundle: Path, tmp_path: Path) -> None:
    """A table for people and a document for programs; the second call finds the budget spent."""
    arguments = ("tune", str(folder / "problem.yaml"), "--minutes", "0.03")
    tuned = specplan_here(*arguments, "--out", str(tmp_path / "tuned"))
    assert tuned.returncode == 0, tuned.stderr
    assert "leads" in tuned.stdout and "Chosen: " in tuned.stdout and "Bundle: " in tuned.stdout
    answer = json.loads(specplan_here(*arguments, "--json").stdout)
    assert package.parse_plan(answer["plan"]) == package.load_bundle(tmp_path / "tuned").plan
    assert answer["tuning"]["lines"] and not answer["tuning"]["interrupted"]
    assert answer["tuning"]["minutes"] > 0.03 or answer["tuning"]["decided"]
    lost = specplan_here(*arguments, "--storage", str(folder / "problem.yaml"))
    assert lost.returncode == 2 and "no journal of a study" in lost.stderr


def test_profile_device(folder: Path, tmp_path: Path) -> None:
    workload = problem()["workload"] | {"output_tokens": 1}
    alone = {"target": problem()["models"]["target"] | {"path": str(folder / "target")}}
    changed = problem(device="measured", models=alone, workload=workload, sources=[])
    changed["workload"]["prompts"] = str(folder / "prompts.jsonl")
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(changed))
    done = specplan_here("profile", "device", str(tmp_path / "p.yaml"), "--json")
    assert done.returncode == 0, done.stderr
    kinds = {row["kind"] for row in json.loads(done.stdout)["measurements"]}
    assert kinds >= {"forward", "prefill", "op", "round"}
    assert list((tmp_path / "profiles" / "device").glob("*.json"))
    again = specplan_here("profile", "device", str(tmp_path / "p.yaml"))
    assert again.returncode == 0 and "forward" in again.stdout


def test_profile_acceptance(folder: Path) -> None:
    done = specplan_here("profile", "acceptance", str(folder / "problem.yaml"), "--json")
    assert done.returncode == 0, done.stderr
    profiles = json.loads(done.stdout)["profiles"]
    assert set(profiles) == {
        "draft",
        "fallback(text, draft)",
        "interleaved(draft, text)",
        "beam(draft, 2)",
        "beam(draft, 4)",
        "text",
    }
    table = specplan_here("profile", "acceptance", str(folder / "problem.yaml"))
    assert "rank 0" in table.stdout


def test_a_missing_extra_is_reported_with_its_command(
    folder: Path, bundle: Path, no_torch: str
) -> None:
    problem = str(folder / "problem.yaml")
    commands = [
        ("optimize", problem), ("tune", problem), ("profile", "device", problem),
        ("profile", "acceptance", problem), ("run", str(bundle), "--prompt", "abc"),
        ("bench", str(bundle)),
    ]  # fmt: skip
    for done in specplan_each(commands, no_torch):
        assert done.returncode == 4, done
        assert "pip install 'specplan[run]'" in done.stderr and done.stdout == "", done


def test_planning_from_ready_tables_needs_no_torch(
    folder: Path, tmp_path: Path, no_torch: str
) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    (path,) = (tmp_path / "copy" / "profiles" / "acceptance").glob("draft-*.json")
    ready = problem(acceptance={"draft": str(path)}, sources=[])
    (tmp_path / "copy" / "ready.yaml").write_text(yaml.safe_dump(ready))
    done = specplan("optimize", str(tmp_path / "copy" / "ready.yaml"), PYTHONPATH=no_torch)
    assert done.returncode == 0, done.stderr


def test_exit_codes_of_broken_and_infeasible_problems(folder: Path, bundle: Path) -> None:
    cases = {2: {"objectve": "latency"}, 3: {"limits": {"tpot": 1e-12}}}
    for exit_code, changes in cases.items():
        path = folder / f"exit_{exit_code}.yaml"
        path.write_text(yaml.safe_dump(problem(**changes)))
        done = specplan_here("optimize", str(path), "--out", str(folder / "other"))
        assert done.returncode == exit_code, done.stderr
        assert done.stdout == "" and not (folder / "other").exists()
    full = specplan_here("optimize", str(folder / "problem.yaml"), "--out", str(folder))
    assert full.returncode == 2 and "--out" in full.stderr


def test_goodput_at_a_load(folder: Path, bundle: Path, tmp_path: Path) -> None:
    """As JSON, in words, and by the API: the same load, modelled, with the front beside it."""
    workload = problem()["workload"] | {"batch_sizes": [1, 4], "request_rate": 3.0}
    path = folder / "goodput.yaml"
    path.write_text(yaml.safe_dump(problem(objective="goodput", workload=workload)))
    result = package.optimize(path, out=tmp_path / "bundle")
    explained = specplan_here("explain", str(tmp_path / "bundle"), "--json")
    assert explained.returncode == 0, explained.stderr
    explanation = json.loads(explained.stdout)
    served = explanation["chosen"]["at_load"]
    assert served["request_rate"] == 3.0 and served["basis"].startswith("modelled")
    assert {point["batch"] for point in explanation["pareto"]} <= {1, 4}
    assert result.at_load is not None and result.at_load.goodput.mean == served["goodput"]["mean"]
    assert "At 3 requests/s, modelled" in result.explain()
    assert package.explain(tmp_path / "bundle") == result.explain()


@pytest.mark.parametrize("ending", [".html", ".md"])
def test_a_report_of_a_bundle(bundle: Path, tmp_path: Path, ending: str) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / f"report{ending}"
    done = specplan_here("report", str(bundle), "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert "Use " in out.read_text()
    answer = specplan_here("report", str(bundle), "--out", str(out), "--json")
    assert json.loads(answer.stdout) == {"report": str(out)}
    plan = str(bundle / "plan.json")  # no result of a bench run
    wrong = specplan_here("report", str(bundle), "--out", str(out), "--bench", plan)
    assert wrong.returncode == 2
    lines = tmp_path / "bench.json"
    for damaged in ('{"lines": [{}]}', '{"lines": 5}'):
        lines.write_text(damaged)
        wrong = specplan_here("report", str(bundle), "--out", str(out), "--bench", str(lines))
        assert wrong.returncode == 2 and "this is not the result of a bench run" in wrong.stderr
