"""Stores of hidden states: what they give is the paper's, and plans decode the mixture with them.

The formulas are those of NEST, arXiv 2405.19325, written out here once more, state by state.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import LlamaForCausalLM
from typer.testing import CliRunner

from specplan.cli.datastore import datastore
from specplan.cost_models.models.drafter_shapes import read_drafter
from specplan.cost_models.models.heads.neighbours import is_store_folder
from specplan.cost_models.models.model_shape import ModelShape
from specplan.ir.errors import UsageError
from specplan.ir.text.parser import parse_plan
from specplan.measure.acceptance.teacher import text_logits, text_states
from specplan.planner.facts import ProblemFacts, gather_facts
from specplan.planner.methods import neighbour_mixture, nest
from specplan.planner.methods.nest import NestOptions
from specplan.planner.problem.loading import problem_from_dict
from specplan.planner.templates.mixtures import NeighbourOptions
from specplan.runtime.laws import LAWS
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.loading import load_all
from specplan.runtime.models.neighbours.store import NeighbourStore
from specplan.runtime.requests import Request
from tests.backends.pairs import plain, run, save_pair
from tests.backends.text_laws import VOCABULARY, law_of_texts, p_value
from tests.planner.example_facts import example_problem, workload

NEAREST, OFFSET, SCALE, TEMPERATURE = 6, 0.75, 0.3, 800.0
CORPUS = [(n * n * n + 3 * n) % 53 % VOCABULARY for n in range(56)]
ALONE = """plan mixture
model target
model near
assume law=stated
state @kv = cache target
state @h = track target layer=[2]
round decode {
  %t = root
  %l = forward target %t cache=@kv pending=1 keep=@h
  %n = forward near %t features=@h layers=[0:0]
  %x = mix %l %n law=retrieval
  %a = accept %t target=%x
  %e = emit %a
  commit @kv %e
  commit @h %e
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target of three layers, and a store of its states over a corpus, as commands make it."""
    folder = tmp_path_factory.mktemp("neighbours")
    save_pair(folder, VOCABULARY, scale=0.3)
    np.save(folder / "corpus.npy", np.array(CORPUS))
    words = ["states", folder / "corpus.npy", "--target", folder / "target", "--out"]
    words += [folder / "near", "--dtype", "float64", "--window", 40, "--nearest", NEAREST]
    words += ["--offset", OFFSET, "--scale", SCALE, "--temperature", TEMPERATURE, "--json"]
    done = CliRunner().invoke(datastore, [*map(str, words)])
    assert done.exit_code == 0, done.output
    return folder


@pytest.fixture(scope="module")
def models(folder: Path) -> dict[str, CausalModel]:
    roles = {"target": (folder / "target", "float64"), "near": (folder / "near", "auto")}
    return load_all(roles)


@pytest.fixture(scope="module", params=[0.0, 0.8])
def facts(request: pytest.FixtureRequest, folder: Path) -> ProblemFacts:
    drafts = [{"name": "near", "path": "near"}]
    problem = example_problem(
        models={"target": {"path": "target"}, "drafts": drafts},
        workload=workload(temperature=request.param),
    )
    return gather_facts(problem_from_dict(problem, folder))


def nearest_of(store: NeighbourStore, state: Tensor) -> tuple[list[tuple[float, int]], float]:
    """(squared distance, place) of the neighbours of a state, and the target's share."""
    every = [(float(((state - one) ** 2).sum()), n) for n, one in enumerate(store.states)]
    near = sorted(every)[:NEAREST]
    return near, 1.0 / (1.0 + exp(-(near[0][0] / near[-1][0] - OFFSET) / SCALE))


def mixture(store: NeighbourStore, target: CausalModel, text: Sequence[int]) -> Tensor:
    """Probabilities `[V]` of the token behind a text."""
    state = text_states(target, [*text, 0], len(text), layers=2)[0]
    near, share = nearest_of(store, state)
    weights = [exp(-distance / TEMPERATURE) for distance, _ in near]
    followed = torch.zeros(VOCABULARY, dtype=torch.float64)
    for weight, (_, place) in zip(weights, near, strict=True):
        followed[int(store.next_tokens[place])] += weight / sum(weights)
    own = text_logits(target, [*text, 0], len(text))[0].softmax(-1)
    return share * own + (1 - share) * followed


def test_states_are_those_that_enter_the_last_layer(
    folder: Path, models: dict[str, object]
) -> None:
    """`hidden_states[-2]` of stock transformers, as the released code has it."""
    store = models["near"]
    assert isinstance(store, NeighbourStore)
    stock = LlamaForCausalLM.from_pretrained(folder / "target", dtype=torch.float64)
    with torch.no_grad():
        first = stock(torch.tensor([CORPUS[:40]]), output_hidden_states=True).hidden_states[-2][0]
        later = stock(torch.tensor([CORPUS[20:-1]]), output_hidden_states=True).hidden_states[-2]
    torch.testing.assert_close(store.states[:40], first, rtol=0, atol=2e-5)
    torch.testing.assert_close(store.states[40:], later[0, 20:], rtol=0, atol=2e-5)
    assert store.next_tokens.tolist() == CORPUS[1:]
    priced = read_drafter(folder / "near", ModelShape.from_path(folder / "target"))
    assert priced.kind == "neighbours" and priced.feature_layers == (2,)
    assert priced.shape.vocab_size == len(CORPUS) - 1 and priced.shape.digest == store.digest


def test_spans_go_on_behind_the_nearest_state_with_the_token(models: dict[str, object]) -> None:
    store = models["near"]
    assert isinstance(store, NeighbourStore)
    store.documents[45:] = 1
    states, levels, spans = store.states[None, :44] + 0.01, 4, 0
    for token in range(VOCABULARY):
        given = torch.full(states.shape[:2], token)
        steps = torch.ones_like(given)
        above = store.enter(given, given, states, None, steps * 0)
        assert above.shape[-1] == store.hidden_size
        spanned = store.enter(given, given, above, None, steps)
        rows = [store.rows(spanned, "logits", steps, level).exp()[0] for level in range(levels)]
        for place, state in enumerate(states[0]):
            near, share = nearest_of(store, state)
            start = next((n for _, n in near if store.next_tokens[n] == token), None)
            for level, row in enumerate(rows):
                inside = start is not None and start + 1 + level < (45 if start < 45 else 55)
                sure = (1.0 if level else 1.0 - share) if inside else 0.0
                wanted = torch.full((VOCABULARY,), (1.0 - sure) / VOCABULARY, dtype=torch.float64)
                if inside:
                    wanted[CORPUS[start + 2 + level]] += sure
                    spans += 1
                torch.testing.assert_close(row[place], wanted, rtol=0, atol=1e-9)
    store.documents[45:] = 0
    assert spans > 100


def test_the_output_is_the_mixtures(models: dict[str, CausalModel], facts: ProblemFacts) -> None:
    """Greedy texts one by one; the law of sampled ones by enumeration, with and without spans."""
    target, store = models["target"], models["near"]
    assert isinstance(store, NeighbourStore)
    plan = neighbour_mixture.METHOD.plan(facts, NeighbourOptions("near", 4))
    if not facts.greedy:
        exact = law_of_texts(
            target, [lambda text: mixture(store, target, text)[None].log()], lambda two, _: two[1]
        )
        assert p_value(plan, models, exact, 1500) > 1e-4
        assert np.abs(exact - law_of_texts(target)).sum() > 0.1  # which is not the target's
        return
    requests = [
        Request(prompt_tokens=tuple(CORPUS[n : n + 4 + n % 3]), max_new_tokens=9) for n in range(20)
    ]
    expected = run(parse_plan(ALONE), models, requests)
    for request, tokens in zip(requests[:4], expected, strict=False):
        text = [*request.prompt_tokens]
        for token in tokens:
            assert token == int(mixture(store, target, text).argmax())
            text.append(token)
    assert run(plan, models, requests) == expected
    assert expected != run(plain(), {"target": target}, requests)


def test_lenient_spans_have_the_law_that_the_rule_states(
    models: dict[str, CausalModel], facts: ProblemFacts
) -> None:
    """At 0 what stands has a part of the best probability; above, `span` was enumerated.

    A stricter test leaves less of the corpus in the output.
    """
    store, target = models["near"], models["target"]
    assert isinstance(store, NeighbourStore)
    requests = [Request(prompt_tokens=tuple(CORPUS[n : n + 5]), max_new_tokens=8) for n in range(9)]
    strict, lenient = (
        run(nest.METHOD.plan(facts, NestOptions("near", 4, one)), models, requests)
        for one in (1.0, 0.05)
    )
    if not facts.greedy:
        return
    assert strict == run(parse_plan(ALONE), models, requests) != lenient
    for request, tokens in zip(requests, lenient, strict=True):
        text = [*request.prompt_tokens]
        for token in tokens:
            probs = mixture(store, target, text)
            assert float(probs[token]) >= 0.05 * float(probs.max()) * (1 - 1e-9)
            text.append(token)


def test_the_mixture_by_rows_of_a_store() -> None:
    """l = 1/4 of (.5, .5, 0), 3/4 of (0, 1/3, 2/3)."""
    own = torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64).log()
    spanned = torch.tensor([0.0, 1 / 3, 2 / 3], dtype=torch.float64).log() + log(3.0)
    mixed = LAWS["retrieval"].combine(torch.stack([own, spanned])).softmax(-1)
    assert mixed.tolist() == pytest.approx([0.125, 0.375, 0.5])


def test_a_store_of_another_target_is_refused(folder: Path, tmp_path: Path) -> None:
    save_pair(tmp_path, VOCABULARY, scale=0.2)
    with pytest.raises(UsageError, match="not those of target"):
        load_all({"target": (tmp_path / "target", "float64"), "near": (folder / "near", "auto")})
    assert is_store_folder(folder / "near") and not is_store_folder(folder / "target")
