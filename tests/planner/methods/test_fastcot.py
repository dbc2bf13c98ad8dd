"""Reasoning that ends before it is complete: the plan against the algorithm, written out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.oracle.backend import OracleBackend
from specplan.cost_models.devices.device import load_device
from specplan.cost_models.estimate import Estimate, Pricer
from specplan.measure.acceptance.continuations import request_of
from specplan.measure.acceptance.profile import measure_acceptance
from specplan.measure.quality.losses import losses
from specplan.measure.quality.prompts import quality_parts
from specplan.measure.workbench import PROFILE, Workbench
from specplan.planner import gather_facts, load_problem
from specplan.planner.drafters.candidates import possible_drafters
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family, Refusal
from specplan.planner.methods.fastcot import METHOD, FastCoTOptions
from specplan.runtime.generate import generate
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.requests import Request
from tests.backends.definition import outputs
from tests.backends.pairs import load_pair, save_pair
from tests.measure.problems import write_problem
from tests.planner.example_facts import example_facts, workload

TRIGGER = (11, 12, 13)


def facts_of(folder: Path, trigger: tuple[int, ...] = TRIGGER, **more: object) -> ProblemFacts:
    return example_facts(
        folder,
        methods=["fastcot"],
        sources=["jacobi"],
        workload=workload(answer_trigger=list(trigger)),
        **more,
    )


def best_after(model: CausalModel, text: list[int]) -> list[int]:
    """The most probable token after each place of a text, by one pass without a cache."""
    size = len(text)
    places, mask = torch.arange(size)[None], torch.ones(1, size, size, dtype=torch.bool).tril()
    cache = model.new_cache(1, size)
    return model.forward(torch.tensor([text]), places, places, mask, cache)[0].argmax(-1).tolist()


def as_published(
    model: CausalModel, prompt: tuple[int, ...], options: FastCoTOptions, most: int
) -> tuple[tuple[int, ...], int]:
    """Tokens and passes: settled tokens leave the window; once, all of it joins the text."""
    text, passes = list(prompt), 0
    guess = [0] * (options.window + len(TRIGGER))
    while len(text) - len(prompt) < most:
        best = best_after(model, text + guess)[len(text) - 1 :]
        settled = 0
        while settled < len(guess) and guess[settled] == best[settled]:
            settled += 1
        if passes == options.passes:
            settled, left = len(guess), []
        else:
            left = best[settled + 1 : len(guess)][: options.window]
        text += [*guess[:settled], best[settled]]
        passes += 1
        last = passes == options.passes
        guess = left + (list(TRIGGER) if last else [0] * (options.window - len(left)))
    return tuple(text[len(prompt) :][:most]), passes


@pytest.mark.parametrize("options", [FastCoTOptions(4, 3), FastCoTOptions(2, 1)], ids=str)
def test_the_answer_follows_reasoning_that_is_not_complete(
    options: FastCoTOptions, tmp_path: Path
) -> None:
    save_pair(tmp_path, scale=0.2)
    models = load_pair(tmp_path)
    plan = METHOD.plan(facts_of(tmp_path / "facts"), options)
    prompts = ((3, 1, 4, 1, 5), (2, 7), (5, 9, 5, 9, 5, 9))
    requests = [Request(prompt_tokens=one, max_new_tokens=24) for one in prompts]
    expected = [as_published(models["target"], one, options, 24) for one in prompts]
    assert outputs(EagerBackend().compile(plan, models), requests) == expected
    assert outputs(OracleBackend().compile(plan, models), requests[:2]) == expected[:2]
    for tokens, passes in expected:
        places = [n for n in range(24) if tokens[n : n + 3] == TRIGGER]
        assert places and passes < 24 - len(TRIGGER)
    assert len({tokens for tokens, _ in expected}) == 3


def test_without_a_question_for_the_answer_it_is_refused(tmp_path: Path) -> None:
    for trigger, reason in (((), "workload.answer_trigger"), ((32000,), "no token 32000")):
        (refused,) = METHOD.choices(facts_of(tmp_path, trigger))
        assert isinstance(refused, Refusal) and reason in refused.reason
    settings = [*METHOD.run_settings(facts_of(tmp_path))]
    assert settings[:3] == [FastCoTOptions(4, 8), FastCoTOptions(4, 16), FastCoTOptions(4, 24)]
    assert settings[0].words == "windows of 4, the answer after 8 passes"


def test_its_rounds_are_priced_as_they_ran_and_its_loss_is_measured(tmp_path: Path) -> None:
    path = write_problem(tmp_path, prompts=20, output_tokens=16, answer_trigger=[5, 6])
    quality = {"measure": "outputs_differ", "at_most": 0.05, "prompts": "prompts.jsonl"}
    data = json.loads(path.read_text()) | {"sources": ["jacobi"], "limits": {"quality": quality}}
    path.write_text(json.dumps(data))
    bench = Workbench(load_problem(path))
    device = load_device("cpu-generic")
    facts = gather_facts(bench.problem, device=device)
    wanted = [name for name in possible_drafters(facts) if "fastcot" in str(name)][:2]
    profiles = measure_acceptance(bench, facts, wanted=wanted, limit=2)
    facts = gather_facts(bench.problem, device=device, profiles=profiles)
    prompts = bench.prompts(PROFILE)[:2]
    (family,) = METHOD.choices(facts)
    assert isinstance(family, Family) and len(family.settings) == 2
    for options in family.settings:
        plan, drafter = METHOD.plan(facts, options), METHOD.drafter(facts, options)
        assert drafter is not None
        pricer = Pricer(device, facts.shapes, 1, 40, 16)
        priced = pricer.estimate(plan, profiles[drafter])
        assert isinstance(priced, Estimate)
        requests = [request_of(bench, one, n) for n, one in enumerate(prompts)]
        ran = [generate(bench.compile(plan), [one]).rounds for one in requests]
        assert sum(ran) / len(ran) == pytest.approx(priced.rounds.mean)
        lost = losses(bench, quality_parts(bench), plan, lambda *_: None)
        assert len(lost) == 40 and sum(lost) > 0
