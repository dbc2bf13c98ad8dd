"""Heads are measured like any drafter, and their replayed rounds are those that run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from specplan.cost_models.acceptance.drafters import Drafter, Fallback, Model, OwnRounds
from specplan.cost_models.acceptance.evidence.base import Drafting, read_drafting
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.devices.device import load_device
from specplan.ir.plan import Plan
from specplan.measure.acceptance.continuations import continue_prompts, request_of
from specplan.measure.acceptance.heads import head_ranks, text_features
from specplan.measure.acceptance.profile import measure_acceptance
from specplan.measure.acceptance.teacher import TracedText
from specplan.measure.progress import silent
from specplan.measure.workbench import PROFILE, Workbench
from specplan.planner import (
    Family,
    discover_methods,
    gather_facts,
    load_problem,
    possible_drafters,
)
from specplan.planner.facts import ProblemFacts
from specplan.runtime.generate import generate
from specplan.runtime.models.heads.drafter import Drafter as Head
from specplan.runtime.models.heads.loading import places_of
from specplan.runtime.models.heads.text_attention import Texts
from specplan.runtime.models.heads.unrolled import unrolled
from tests.measure.problems import write_problem
from tests.runtime.heads import formats
from tests.runtime.heads.formats import Stored

torch.set_num_threads(1)
STEPS = 3
GROWN = ("eagle2", "dynamic_depth", "rescored_heads", "pruned_heads", "unverified_heads")


def add_modules(folder: Path, size: int) -> None:
    """Two modules in the target's checkpoint, by DeepSeek's names."""
    config = json.loads((folder / "config.json").read_text())
    config["num_nextn_predict_layers"] = 2
    (folder / "config.json").write_text(json.dumps(config))
    tensors = formats.modules("deepseek", 2, config["num_hidden_layers"], size=size)
    formats.save_file(tensors, folder / "modules.safetensors")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    """A target that was taught nothing, and heads that were taught its own texts."""
    folder = tmp_path_factory.mktemp("problem")
    path = write_problem(folder, prompts=2, output_tokens=16)
    size = json.loads((folder / "target/config.json").read_text())["vocab_size"]
    add_modules(folder / "target", size)
    ids = {"mask_token_id": size - 1, "target_layer_ids": [0, 1]}
    stored = {
        "eagle": formats.eagle3(
            reads=2, size=size, reduced=False, eagle_aux_hidden_state_layer_ids=[1, 2]
        ),
        "flash": formats.dflash(size=size, dflash_config=ids),
        "medusa": formats.medusa(size=size),
        "hydra": formats.hydra(size=size),
        "slots": formats.look_ahead_tokens(size=size),
        "skipping": formats.skipping_tokens(size=size),
    }
    problem = json.loads(path.read_text())
    for name, one in stored.items():
        one.save(folder / name)
        problem["models"]["drafts"].append({"name": name, "path": name, "dtype": "float64"})
    problem["sources"] = ["prompt_lookup", "mtp"]
    path.write_text(json.dumps(problem))
    bench = Workbench(load_problem(path))
    for name, one in stored.items():
        teach(bench, [bench.models[name]])
        save_again(bench.models[name], one, folder / name)
    return Workbench(load_problem(path))


def texts_of(bench: Workbench) -> Iterator[tuple[int, list[int]]]:
    """Length of the prompt, and the tokens of a text."""
    prompts = bench.prompts(PROFILE)
    for prompt, output in zip(prompts, continue_prompts(bench, prompts, silent), strict=True):
        yield len(prompt.tokens), [*prompt.tokens, *output]


def teach(bench: Workbench, heads: list[Head], rounds: int = 40) -> None:
    """Cross-entropy along the target's own texts, at all steps, by Adam."""
    target, texts = bench.models["target"], list(texts_of(bench))
    length = min(len(text) for _, text in texts)
    tokens = torch.tensor([text[-length:] for _, text in texts])
    head = heads[0]
    features = text_features(target, Texts.alone(tokens), head.description.reads.layers)
    weights = [weight for one in heads for weight in one.parameters()]
    optimiser = torch.optim.Adam([weight.requires_grad_(True) for weight in weights], lr=0.02)
    for _ in range(rounds):
        loss = torch.zeros(())
        for step, logits in enumerate(unrolled(heads, tokens, features, STEPS)):
            ahead = step + 1
            guessed = logits[:, length - 16 : length - ahead].flatten(0, 1)
            loss = loss + functional.cross_entropy(
                guessed, tokens[:, length - 16 + ahead :].flatten()
            )
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert torch.isfinite(loss)


def save_again(head: Head, stored: Stored, folder: Path) -> None:
    """Write a head's weights under the names of its format."""
    weights = head.weights_by_name()
    places = places_of(head.description, frozenset(stored.tensors), folder)
    tensors = {
        name: weights[places[name]].detach().clone() if places[name] in weights else tensor
        for name, tensor in stored.tensors.items()
    }
    Stored(stored.config, tensors).save(folder)


def facts_of(bench: Workbench, profiles: dict[Drafter, AcceptanceProfile]) -> ProblemFacts:
    return gather_facts(bench.problem, device=load_device("cpu-generic"), profiles=profiles)


def rounds_of(bench: Workbench, plan: Plan) -> list[int]:
    executable, rounds = bench.compile(plan), []
    for index, prompt in enumerate(bench.prompts(PROFILE)):
        rounds.append(generate(executable, [request_of(bench, prompt, index)]).rounds)
    return rounds


def test_replayed_rounds_of_heads_are_the_rounds_that_run(bench: Workbench) -> None:
    names = ("eagle", "flash", "medusa", "hydra", "slots", "skipping", "mtp")
    wanted: list[Drafter] = [Model(name) for name in names]
    wanted += [Fallback("text", "eagle"), Fallback("text", "draft")]
    profiles = measure_acceptance(bench, facts_of(bench, {}), wanted=wanted, precision=0.0)
    facts = facts_of(bench, profiles)
    drafted = set[str]()
    for method in discover_methods().values():
        for family in method.choices(facts):
            settings: Any = family.settings if isinstance(family, Family) else ()
            for options in settings[:: max(len(settings) - 1, 1)]:
                drafter = method.drafter(facts, options)
                if drafter not in wanted:
                    continue
                plan = method.plan(facts, options)
                drafting = read_drafting(plan, plan.rounds[0], profiles[drafter].evidence)
                assert isinstance(drafting, Drafting), drafting
                rounds = rounds_of(bench, plan)
                expected = drafting.rounds(bench.output_tokens, 1).mean
                assert sum(rounds) / len(rounds) == pytest.approx(expected), options.words
                if drafting.tokens_per_round.mean > 1.5:
                    drafted.add(str(drafter))
    assert drafted >= {"eagle", "flash", "medusa", "hydra", "fallback(text, eagle)"}


@pytest.mark.parametrize("name", ["eagle", "medusa"])
def test_draws_of_a_head_are_accepted_as_often_as_distributions_overlap(
    name: str, bench: Workbench
) -> None:
    """1 - TV(p, q) of first draws (arXiv 2211.17192), at every place and depth, over 40 seeds."""
    head, target, seeds = bench.models[name], bench.models["target"], 40
    prompt, (start, tokens) = bench.prompts(PROFILE)[0], next(texts_of(bench))
    request, given = request_of(bench, prompt, 0), torch.tensor([tokens[:-1]])
    text = TracedText(0, prompt.id, request, tuple(tokens[start:]), target)
    features = text_features(target, Texts.alone(given), head.description.reads.layers)
    by_step = [x[0, start:].clone() for x in unrolled(head, given, features, STEPS)]

    def overlaps(temperature: float) -> torch.Tensor:
        """By place and depth; 0 where no round could begin."""
        judged = functional.softmax(text.logits / temperature, -1)
        shares = torch.zeros(len(tokens) - start, STEPS)
        for step, logits in enumerate(by_step):
            drawn = functional.softmax(logits[: len(shares) - 1 - step] / temperature, -1)
            shares[1 + step :, step] = torch.minimum(judged[1 + step :], drawn).sum(-1)
        return shares

    heats = (1.0, 0.5, 0.3, 0.2, 0.1, 0.05, 0.03, 3.0, 10.0)
    heat = next(heat for heat in heats if 0.2 < overlaps(heat)[STEPS:].mean() < 0.9)
    accepted, expected = torch.zeros(len(tokens) - start, STEPS), overlaps(heat)
    for seed in range(seeds):
        drawing = replace(text, request=replace(request, temperature=heat, seed=seed))
        ranks = torch.tensor(head_ranks([head], drawing, STEPS, 3, drawn=True))
        accepted += ranks == 0
    deviation = (expected * (1 - expected)).sum(0).mul(seeds).sqrt()
    assert ((accepted - seeds * expected).sum(0).abs() < 4 * deviation).all()


def test_trees_that_a_head_grows_by_the_context_are_run_to_be_priced(bench: Workbench) -> None:
    """EAGLE-2, and with the depth of its beam's probability; heads ordered or pruned by others."""
    named = bench.problem.model_copy(update={"methods": GROWN})
    own = Workbench(named)
    ways = [one for one in possible_drafters(facts_of(own, {})) if isinstance(one, OwnRounds)]
    wanted = [one for one in ways if {"eagle", "medusa"} & {*one.models}][::3]
    profiles = measure_acceptance(own, facts_of(own, {}), wanted=wanted, precision=0.0)
    facts, ran = facts_of(own, profiles), set[str]()
    for name in GROWN:
        method = discover_methods()[name]
        for family in method.choices(facts):
            assert isinstance(family, Family), family
            for options in family.settings:
                plan = method.plan(facts, options)
                drafting = read_drafting(
                    plan, plan.rounds[0], profiles[method.drafter(facts, options)].evidence
                )
                assert isinstance(drafting, Drafting), drafting
                rounds = rounds_of(own, plan)
                assert sum(rounds) / len(rounds) == pytest.approx(
                    drafting.rounds(own.output_tokens, 1).mean
                )
                ran.add(name)
    assert ran == {*GROWN}
