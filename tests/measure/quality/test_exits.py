"""Plans that leave the target early: played on a trace, and run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from specplan.cost_models.acceptance.evidence.exits import Exits
from specplan.cost_models.devices.device import load_device
from specplan.cost_models.intervals import Interval
from specplan.cost_models.rounds.demands import ForwardDemand, round_demands
from specplan.cost_models.rounds.pricing import Unpriced, price_round
from specplan.gathering import open_bench
from specplan.ir.plan import Plan, ValueState
from specplan.ir.text.parser import parse_plan
from specplan.ir.text.printer import print_plan
from specplan.ir.values import Entry
from specplan.measure.acceptance import exit_traces
from specplan.measure.acceptance.continuations import continue_prompts, request_of
from specplan.measure.acceptance.exit_traces import OfStates, Traces, traces_of
from specplan.measure.acceptance.exits import (
    asked_of,
    exit_layers_of,
    keys_are_exact,
    losses_along,
    played_along,
)
from specplan.measure.acceptance.teacher import TracedText
from specplan.measure.progress import silent
from specplan.measure.quality.calibrate import measure_losses
from specplan.measure.quality.laws import recorded
from specplan.measure.quality.losses import drawn_together, losses
from specplan.measure.quality.prompts import quality_parts
from specplan.measure.workbench import PROFILE, Workbench
from specplan.planner import ProblemFacts, discover_methods, write_token_exits
from specplan.planner.search.settings import pricer_of
from specplan.problems import as_problem
from specplan.runtime.generate import generate
from specplan.runtime.sampling import SamplingSettings, probabilities
from tests.measure.problems import write_problem
from tests.planner.trained_exits import write_exits

METHODS = ("confident_exit", "agreeing_exit", "copied_exit", "exit_by_token", "policy_exit")


COPIED = ("copied_exit", "policy_exit")
"""Of which keys and values are approximate."""
LIMIT = {"quality": {"measure": "outputs_differ", "at_most": 0.5}}


def open_problem(
    folder: Path, prompts: int = 6, **workload: float
) -> tuple[Workbench, ProblemFacts]:
    """A problem of a tiny target with three layers."""
    path = write_problem(folder, prompts=prompts, output_tokens=12, prompt_tokens=16, **workload)
    data = json.loads(path.read_text()) | {"device": "cpu-generic", "methods": [*METHODS]}
    data |= {"limits": LIMIT, "token_exits": "exits.tsv"}
    config = json.loads((folder / "target" / "config.json").read_text())
    vocabulary = config["vocab_size"]
    for kind in ("classifier", "policy"):
        write_exits(folder / kind, kind, (1, 2), config["hidden_size"])
        data[f"exit_{kind}"] = kind
    shares = np.random.default_rng(5).random((vocabulary, 3))
    write_token_exits(folder / "exits.tsv", np.maximum.accumulate(shares, axis=1))
    Path(path).write_text(json.dumps(data))
    return open_bench(as_problem(path))


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workbench, ProblemFacts]:
    """At temperature 0."""
    return open_problem(tmp_path_factory.mktemp("exits"))


def with_bar(plan: Plan, bar: float) -> Plan:
    """A plan with another threshold."""
    states = tuple(
        replace(state, kind=Entry("calibrated", (("init", bar),)))
        if isinstance(state, ValueState)
        else state
        for state in plan.states
    )
    return replace(plan, states=states)


def plans_of(facts: ProblemFacts, name: str) -> list[Plan]:
    """Of every setting of a method."""
    method = discover_methods()[name]
    return [method.plan(facts, options) for options in method.run_settings(facts)]


def texts_of(bench: Workbench) -> list[TracedText]:
    """The target's own outputs."""
    prompts, target = bench.prompts(PROFILE), bench.models["target"]
    outputs = continue_prompts(bench, prompts, lambda *_: None)
    return [
        TracedText(place, prompt.id, request_of(bench, prompt, place), output, target)
        for place, (prompt, output) in enumerate(zip(prompts, outputs, strict=True))
    ]


def deep_passes(
    bench: Workbench, plan: Plan, text: TracedText
) -> tuple[tuple[int, ...], Counter[str]]:
    """What a plan emits, and how often it runs each kind of pass, alone in its batch."""
    ran: Counter[str] = Counter()

    def observe(op: str, model: str | None, *rest: object) -> None:
        if model is not None and op.startswith("forward"):
            ran[op] += 1

    run = generate(bench.compile(plan), [text.request], observer=observe)
    return run.completions[0].tokens, ran


@pytest.mark.parametrize("name", METHODS)
def test_what_is_played_on_a_trace_is_what_runs(
    opened: tuple[Workbench, ProblemFacts], name: str
) -> None:
    """Whether outputs differ, and of those that do not, how often the deep layers ran."""
    bench, facts = opened
    plans, texts = plans_of(facts, name), texts_of(bench)
    differ = same = 0
    some = plans[:: max(1, len(plans) // 2)]
    for plan in (*some, with_bar(plans[0], 0.01)):
        assert exit_layers_of(plan) is not None
        exact = keys_are_exact(plan)
        assert exact == (name not in COPIED)
        for text in texts[:3]:
            output, ran = deep_passes(bench, plan, text)
            if exact:
                assert losses_along(bench, plan, [text]) == [float(output != text.output)]
            if output == text.output and exact:
                (entered,) = played_along(bench, plan, [text]).rows()
                deep = max((op for op in ran if ":" in op), key=lambda op: op.split(":")[1])
                assert sum(mask & 1 for mask in entered) == ran[deep]
            differ, same = differ + (output != text.output), same + (output == text.output)
    assert differ or same


def half_of_tokens_leave(bench: Workbench, facts: ProblemFacts) -> list[Plan]:
    """By the median of a measure at a layer; and where two layers agree."""
    agreeing, every = plans_of(facts, "agreeing_exit")[0], plans_of(facts, "confident_exit")
    plans = [with_bar(agreeing, 1.0)]
    for word in ("margin", "saturation", "logistic"):
        plan = next(one for one in every if f" {word}" in print_plan(one))
        played, seen = play_with(bench, plan)
        measured = seen.measures[word if word == "margin" else played.pop()]
        layer = (exit_layers_of(plan) or ())[-2]
        plans.append(with_bar(plan, float(measured[[*seen.by_layer].index(layer)].median())))
    return plans


def play_with(bench: Workbench, plan: Plan) -> tuple[list[OfStates], Traces]:
    """The measures of states that a plan takes, and what was traced for it."""
    texts, layers = texts_of(bench), exit_layers_of(plan) or ()
    return [*asked_of(plan)], traces_of(bench.exit_traces, texts, layers, silent, asked_of(plan))


def test_losses_of_replays_are_those_of_running_the_plans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Request by request at temperature 0, some outputs the target's and some not.

    Plans of different exit layers share one pass over each text.
    """
    bench, facts = open_problem(tmp_path, prompts=40)
    plans, passes = half_of_tokens_leave(bench, facts), list[str]()
    assert len({exit_layers_of(plan) for plan in plans}) > 1
    passes.clear()
    trace = exit_traces.layer_traces

    def counted(
        text: TracedText, layers: Sequence[int], asked: Sequence[OfStates]
    ) -> dict[int, exit_traces.LayerTrace]:
        passes.append(text.name)
        return trace(text, layers, asked)

    monkeypatch.setattr(exit_traces, "layer_traces", counted)
    measured, parts = measure_losses(bench, plans), quality_parts(bench)
    assert len(passes) <= len(parts.tokens) == 40
    for plan, loss in zip(plans, measured.values(), strict=True):
        ran = losses(bench, parts, plan, silent)
        assert [*loss.calibration, *loss.report] == ran
        assert sum(ran) > 0.0
    assert any(0.0 in loss.report for loss in measured.values())


def test_losses_of_sampled_texts_are_those_of_the_laws_that_run(tmp_path: Path) -> None:
    """1 - prod min(1, q(x) / p(x)) along the target's texts, q the laws of the plan that runs.

    The mean over x drawn from p is that of min(1, p(x) / q(x)) over x drawn from q, which running
    the plan freely measures. Texts of different lengths are played together as alone.
    """
    bench, facts = open_problem(tmp_path, temperature=0.8)
    texts = [replace(one, output=one.output[: 2 * i]) for i, one in enumerate(texts_of(bench))]
    settings = SamplingSettings.of([texts[0].request])
    for plan in half_of_tokens_leave(bench, facts):
        together = losses_along(bench, plan, texts)
        assert together[0] == 0.0 and len({*together}) > 2
        assert together == [loss for one in texts for loss in losses_along(bench, plan, [one])]
        executable = bench.compile(plan)
        for text, loss in [*zip(texts, together, strict=True)][1:]:
            ((_, laws),) = recorded(executable, [text.request], [text.output])  # type: ignore[arg-type]
            count = len(text.output)
            target = probabilities(text.logits[None], settings)[0].double()
            shared = drawn_together(laws[:count], target, text.output)
            assert 1.0 - loss == pytest.approx(float(shared.prod()), rel=1e-6)


@pytest.mark.parametrize("name", METHODS)
def test_thresholds_that_admit_no_exit_decode_as_the_target_does(
    opened: tuple[Workbench, ProblemFacts], name: str
) -> None:
    """Greedy equality, and every token enters the deep layers."""
    bench, facts = opened
    plan = next(p for p in plans_of(facts, name) if "entropy" not in str(p))
    plan = with_bar(plan, 3.0)
    for text in texts_of(bench)[:4]:
        assert deep_passes(bench, plan, text)[0] == text.output
        if name not in COPIED:
            assert losses_along(bench, plan, [text]) == [0.0]
            assert all(mask & 1 for mask in played_along(bench, plan, [text]).rows()[0])


LENIENT = {
    "relaxed_acceptance": ("delta=0.6", "delta=0.6", "delta=0.0"),
    "bild": ("threshold=2.0", "threshold=1e6", "threshold=0.0"),
    "joint_beam": ("threshold=0.3", "", "threshold=1.0"),  # its draft agrees too often to be wrong
    "contrastive": ("beta=0.5", "beta=0.5", "beta=0.0"),
    "depth_by_position": ("layers=[0:1, 2:3]", "layers=[0:1, 2:3]", "layers=[0:3]"),
}
"""What a plan has, makes its output another one, and makes it the target's, at temperature 0."""


@pytest.mark.parametrize("name", LENIENT)
def test_plans_without_any_leniency_decode_as_the_target_does(
    opened: tuple[Workbench, ProblemFacts], name: str
) -> None:
    bench, facts = opened
    texts, (own, loose, strict) = texts_of(bench)[:4], LENIENT[name]
    plan = print_plan(plans_of(facts, name)[0]).replace(' 0.4"', ' 0.0"')
    assert own in plan

    def outputs(numbers: str) -> list[tuple[int, ...]]:
        executable = bench.compile(parse_plan(plan.replace(own, numbers)))
        requests = [text.request for text in texts]
        return [one.tokens for one in generate(executable, requests).completions]

    wanted = [text.output for text in texts]
    assert outputs(strict) == wanted
    assert not loose or outputs(loose) != wanted


def test_a_round_costs_what_its_exits_leave(opened: tuple[Workbench, ProblemFacts]) -> None:
    """Deep layers by the share of tokens that need them, in a batch by that of any request."""
    _, facts = opened
    plan = plans_of(facts, "confident_exit")[0]
    item = plan.rounds[0]
    demands = round_demands(plan, item)
    rows = ((1, 0, 0, 0) * 25,) * 4
    drafting = Exits(rows).drafts(plan, item, demands)
    assert not isinstance(drafting, str)
    (share,) = drafting.demands.entered
    assert share.mean == 0.25 and share.low < 0.25 < share.high
    (waiting,) = drafting.lag(1).values()
    assert waiting == pytest.approx((24 * 4 * 3) / (25 * 4) / 7)
    assert drafting.tokens_per_round == Interval.exact(1.0)
    pricer = pricer_of(
        ProblemFacts(facts.problem, facts.target, facts.drafts, load_device("cpu-generic"))
    )
    seconds = []
    for entered in ((1,) * 40, (1, 0, 0, 0) * 10, (0,) * 39 + (1,)):
        demands = replace(round_demands(plan, item), entered=(_exact(entered),))
        price = price_round(
            demands,
            pricer.round_pricer,
            {step.cache: 0.0 for step in drafting.demands.steps if isinstance(step, ForwardDemand)},
        )
        assert not isinstance(price, Unpriced)
        seconds.append(float(np.asarray(price.seconds.median).flat[0]))
    assert seconds[0] > seconds[1] > seconds[2]
    halfway = (seconds[0] - seconds[1]) / (seconds[0] - seconds[2])
    assert halfway == pytest.approx(0.75 / (1 - 1 / 40), rel=1e-6)


def _exact(entered: tuple[int, ...]) -> Interval:
    return Interval.exact(sum(entered) / len(entered))
