"""Losses of real plans on tiny models: zero by proof where there is one, laws as they are."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from specplan.backends.bundle import load_bundle
from specplan.cost_models.quality.certificate import check_certified, read_certificate
from specplan.edited import write_edited
from specplan.gathering import open_bench
from specplan.ir.errors import InfeasibleError, MissingCapabilityError, UsageError
from specplan.ir.plan import Plan
from specplan.ir.text.parser import parse_plan
from specplan.measure.acceptance.teacher import text_logits
from specplan.measure.device.probes import plain_plan
from specplan.measure.quality.calibrate import measure_losses
from specplan.measure.quality.commands import Scorer, drop
from specplan.measure.quality.laws import recorded
from specplan.measure.quality.prompts import quality_parts
from specplan.measure.workbench import PROFILE, TokenPrompt, Workbench, chosen_prompts
from specplan.planner import load_problem
from specplan.problems import as_problem
from specplan.quality.calibrating import calibrate_plan, certificate_beside, write_calibrated
from specplan.runtime.acceptance._emitted import emitted_law
from specplan.runtime.generate import generate
from specplan.runtime.sampling import SamplingSettings, probabilities
from tests.measure.problems import write_problem

TEMPERATURE = 0.8
CHAIN = """plan chain
model target
model draft
assume temperature=0.8{law}
state @kv = cache target
state @draft_kv = cache draft
round decode {{
  %t0 = root
  %u = uniform 1 stream=draft
  %q = forward draft %t0 cache=@draft_kv pending=2
  %c = grow %t0 at=%t0 logits=%q how=draw by=%u
  %l = forward target %c cache=@kv pending=1
  {judge}
  %e = emit %a
  commit @kv %e
  commit @draft_kv %e
}}
"""
TOKEN = "%v = uniform 2 stream=accept\n  %a = accept %c target=%l rule=token by=%v"
EXIT = """plan exit
model target
assume temperature=0.8 law=free
state @kv = cache target
state @bar = value calibrated(init=0.5)
state @x = track target layer=1
round decode {
  %t = root
  %s = forward target %t cache=@kv pending=1 layers=[0:1] keep=@x
  %b = load @bar
  %m = measure %s top1
  %behind = measure @kv lag(layers=1:3)
  %go = compute "m < b or n >= 3" m=%m b=%b n=%behind
  %l = when %go otherwise=[%s] {
    %d = forward target %t cache=@kv pending=4 layers=[1:3] features=@x
    yield %d
  }
  %v = uniform 1 stream=accept
  %a = accept %t target=%l rule=token by=%v
  %e = emit %a
  commit @kv %e
  commit @x %e
}
"""


def chain(rule: str) -> Plan:
    """One drafted token, judged by a rule."""
    if rule == "token":
        return parse_plan(CHAIN.format(law="", judge=TOKEN))
    drawn = rule == "lenient"
    judge = f"%a = accept %c target=%l rule={rule}" + (" by=%v" if drawn else "")
    uniforms = "%v = uniform 2 stream=accept\n  " if drawn else ""
    return parse_plan(CHAIN.format(law=" law=free", judge=uniforms + judge))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A problem of tiny models with 20 prompts in each part."""
    folder = tmp_path_factory.mktemp("quality")
    write_problem(folder, prompts=40, temperature=TEMPERATURE, output_tokens=6, prompt_tokens=12)
    return folder


def problem_of(folder: Path, **quality: Any) -> Any:
    """The problem with a quality limit."""
    data = json.loads((folder / "problem.yaml").read_text())
    data |= {"limits": {"quality": {"at_most": 0.4, **quality}}, "device": "cpu-generic"}
    path = folder / "limited.yaml"
    path.write_text(json.dumps(data))
    return as_problem(path)


def bench_of(folder: Path, **quality: Any) -> Workbench:
    """Its workbench."""
    return open_bench(problem_of(folder, **quality))[0]


def test_a_law_is_that_of_the_rule_and_of_both_models(folder: Path) -> None:
    """The first emitted token of each prompt: recorded while running, and from the two models."""
    bench = bench_of(folder, measure="divergence")
    parts = quality_parts(bench)
    requests = [bench.request(one, place) for place, one in enumerate(parts.tokens[:6])]
    settings = SamplingSettings.of(requests[:1])
    for rule in ("token", "lenient", "typical", "relaxed", "rollback", "top_beta"):
        plan = chain(rule)
        ran = recorded(bench.compile(plan), requests)  # type: ignore[arg-type]
        for request, (output, laws) in zip(requests, ran, strict=True):
            assert len(output) == len(laws) == 6
            assert torch.allclose(laws.sum(-1), torch.ones(6).double(), atol=1e-6)
            text = [*request.prompt_tokens, output[0]]
            logits, drafted = (
                text_logits(bench.models[name], text, len(text) - 1) for name in ("target", "draft")
            )
            p, q = (probabilities(one[None], settings)[0].double() for one in (logits, drafted))
            judged = next(op for op in plan.rounds[0].ops if op.judges_by is not None).judges_by
            assert judged is not None
            assert torch.allclose(laws[:1], emitted_law(judged, logits, p, q), atol=1e-6), rule
            assert float(laws[0, output[0]]) > 0.0


def test_plans_that_keep_the_law_lose_nothing_and_others_do(folder: Path) -> None:
    """By every measure; losses are stored and read again; without exits nothing is lost."""
    always, never = (parse_plan(EXIT.replace("init=0.5", f"init={bar}")) for bar in ("0.0", "2.0"))
    for quality in (
        {"measure": "outputs_differ"},
        {"measure": "divergence"},
        {"measure": "divergence", "divergence": "kl"},
        {"measure": "held_out_loss"},
    ):
        bench = bench_of(folder, **quality)
        drafting = [] if quality["measure"] == "held_out_loss" else [chain("token")]
        none = measure_losses(bench, [never, *drafting])
        for loss in none.values():
            assert max(*loss.calibration, *loss.report) < 1e-5
            assert len(loss.calibration) == len(loss.report) == 20
        (some,) = measure_losses(bench, [always]).values()
        assert some.mean > 0.001
        assert measure_losses(bench, [always]) == measure_losses(
            bench_of(folder, **quality), [always]
        )
    with pytest.raises(MissingCapabilityError, match="drafts"):
        measure_losses(bench, [chain("token")])


def test_a_plan_is_calibrated_certified_and_compiled_with_its_certificate_alone(
    folder: Path,
) -> None:
    """The last value of the grid that is shown to be safe; without a certificate none compiles."""
    problem = problem_of(folder, measure="outputs_differ", at_most=0.3)
    done = calibrate_plan(parse_plan(EXIT), problem, (2.0, 1.5, 0.0))
    assert [one.keeps for one in done.certificate.grid] == [True, True, False]
    assert "calibrated(init=1.5)" in str(done.as_dict()["plan"])
    law = done.plan.assumptions.law
    assert (law.name, law.get("loss"), law.get("risk")) == ("bounded", 0.3, 0.05)
    out = folder / "exit.plan"
    write_calibrated(done, out)
    certified = certificate_beside(out)
    assert certified == done.certificate
    with pytest.raises(UsageError, match="no certificate"):
        write_edited(done.plan, problem, folder / "bundle")
    riskier = parse_plan(str(done.as_dict()["plan"]).replace("init=1.5", "init=0.0"))
    with pytest.raises(UsageError, match="another plan"):
        write_edited(riskier, problem, folder / "bundle", certified=certified)
    for _ in range(2):  # anew, and in place of itself
        bundle = write_edited(done.plan, problem, folder / "certified", certified=certified)
        assert load_bundle(bundle.folder).certificate == certified
    digests = dict(done.certificate.models)
    check_certified(done.plan, certified, digests, "here")
    with pytest.raises(UsageError, match="another checkpoint"):
        check_certified(done.plan, certified, {"target": "0"}, "here")
    (folder / "exit.plan.certificate.json").write_text('{"schema_version": 1}')
    with pytest.raises(UsageError, match="no certificate"):
        read_certificate(folder / "exit.plan.certificate.json")
    with pytest.raises(InfeasibleError, match="not shown to keep"):
        calibrate_plan(parse_plan(EXIT), problem, (0.0,))


def python(code: str) -> Sequence[str]:
    return (sys.executable, "-I", "-S", "-c", code)


def test_a_command_scores_and_a_crash_or_a_hang_is_a_loss() -> None:
    """Exit codes, numbers, signals, time and memory; whatever it has started ends with it."""
    read = "import json,sys; o=json.load(sys.stdin)['output']; "
    parses = python(read + "compile(o, 'o', 'exec')")
    scorer = Scorer(tuple(parses), 20.0, 2e9)
    assert scorer.score("a", "", "x = 1\n") == 1.0
    assert scorer.score("a", "", "x = = 1\n") == 0.0
    for code, seconds, memory, expected in (
        ("print('half'); print(0.5)", 20.0, 2e9, 0.5),
        ("print('tests run: 12, failures: 0')", 20.0, 2e9, 1.0),
        ("import os,signal; os.kill(os.getpid(), signal.SIGSEGV)", 20.0, 2e9, None),
        ("import time; time.sleep(60)", 1.0, 2e9, None),
        ("x = bytearray(1 << 30)", 20.0, 3e8, 0.0),
    ):
        assert Scorer(tuple(python(code)), seconds, memory).score("a", "", "") == expected
    with pytest.raises(UsageError, match="no program"):
        Scorer(("no-such-program-anywhere",), 20.0, 2e9).score("a", "", "")
    assert (drop(1.0, 0.25), drop(0.0, 1.0), drop(1.0, None), drop(None, 0.0)) == (0.75, 0, 1, 0)


FAILING = """
import json, os, signal, sys, time
place = int(json.load(sys.stdin)["id"].split("-")[-1]) % 10
if place == 0:
    os.kill(os.getpid(), signal.SIGSEGV)
if place == 1:
    time.sleep(60)
"""


def test_a_plan_loses_where_the_command_crashes_or_hangs(folder: Path) -> None:
    """Of a plan that decodes as the target does, which loses nothing elsewhere."""
    bench = bench_of(folder, measure="command", command=[*python(FAILING)], seconds=1.0)
    never = parse_plan(EXIT.replace("init=0.5", "init=2.0"))
    (loss,) = measure_losses(bench, [never]).values()
    parts = quality_parts(bench)
    places = [int(prompt.id.split("-")[-1]) % 10 for prompt in parts.texts]
    assert [*loss.calibration, *loss.report] == [float(place < 2) for place in places]
    assert 0 < places.count(0) < len(places) > places.count(1) > 0


def test_a_command_tells_which_of_the_reference_targets_functions_parse(
    repository: Path, tmp_path: Path
) -> None:
    """`benchmarks/parsing.py` of the quickstart's outputs: 51 % by 384 of them."""
    problem = load_problem(repository / "examples/quickstart/problem.yaml")
    bench = Workbench(problem.model_copy(update={"profiles": tmp_path}))
    prompts = chosen_prompts(problem, PROFILE)[:24]
    requests = [
        bench.request(TokenPrompt(one.id, tuple(bench.tokenizer.encode(one.text))), place)
        for place, one in enumerate(prompts)
    ]
    done = generate(bench.compile(plain_plan(False)), requests, tokenizer=bench.tokenizer)
    scorer = Scorer((sys.executable, str(repository / "benchmarks/parsing.py")), 20.0, 1e9)
    scores = [
        scorer.score(prompt.id, prompt.text, one.text or "")
        for prompt, one in zip(prompts, done.completions, strict=True)
    ]
    assert {*scores} == {0.0, 1.0}
    assert 0.2 <= sum(score or 0.0 for score in scores) / len(scores) <= 0.8
