"""Measured acceptance predicts rounds exactly where it was measured."""

from __future__ import annotations

import json
import shutil
from datetime import date
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from specplan.cost_models.acceptance.drafters import (  # noqa: E402
    TEXT,
    Drafter,
    Model,
)
from specplan.cost_models.acceptance.evidence.base import Drafting, read_drafting  # noqa: E402
from specplan.cost_models.acceptance.profile import AcceptanceProfile  # noqa: E402
from specplan.cost_models.devices.device import load_device  # noqa: E402
from specplan.measure.acceptance import profile as acceptance_module  # noqa: E402
from specplan.measure.acceptance import recorder  # noqa: E402
from specplan.measure.acceptance.profile import (  # noqa: E402
    measure_acceptance,
    relative_half_width,
)
from specplan.measure.acceptance.teacher import greedy_ranks, sampled_ranks  # noqa: E402
from specplan.measure.workbench import PROFILE, Workbench  # noqa: E402
from specplan.planner import Family, discover_methods, gather_facts, load_problem  # noqa: E402
from specplan.runtime.generate import generate  # noqa: E402
from specplan.runtime.requests import Request  # noqa: E402
from specplan.runtime.sampling import SamplingSettings, best, probabilities  # noqa: E402
from tests.matrix import sized  # noqa: E402
from tests.measure.problems import write_problem  # noqa: E402

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    return Workbench(load_problem(write_problem(tmp_path_factory.mktemp("problem"))))


def _profiles(bench: Workbench, **options: object) -> dict[Drafter, AcceptanceProfile]:
    facts = gather_facts(bench.problem, device=load_device("cpu-generic"))
    return measure_acceptance(bench, facts, **options)  # type: ignore[arg-type]


def test_replayed_rounds_are_the_rounds_that_run(bench: Workbench) -> None:
    profiles = _profiles(bench)
    facts = gather_facts(bench.problem, device=load_device("cpu-generic"), profiles=profiles)
    prompts = bench.prompts(PROFILE)
    for method in discover_methods().values():
        for family in method.choices(facts) if method.runnable else ():
            if not isinstance(family, Family):
                continue
            for options in family.settings[:: sized(15, 5)]:
                plan = method.plan(facts, options)
                drafter = method.drafter(facts, options)
                if drafter is None:
                    continue
                drafting = read_drafting(plan, plan.rounds[0], profiles[drafter].evidence)
                assert isinstance(drafting, Drafting)
                executable = bench.compile(plan)
                rounds = 0
                for prompt in prompts:
                    request = Request(
                        prompt_tokens=prompt.tokens, max_new_tokens=bench.output_tokens
                    )
                    rounds += generate(executable, [request]).rounds
                expected = drafting.rounds(bench.output_tokens, 1)
                assert rounds / len(prompts) == pytest.approx(expected.mean), options.words


def test_profiles_grow_and_are_read_back(bench: Workbench) -> None:
    first = _profiles(bench, limit=3)
    every = _profiles(bench)
    for name, profile in every.items():
        rows, earlier = _rows(profile), _rows(first[name])
        assert rows[:3] == earlier[:3] and len(rows) == 8
        assert profile.provenance["versions"]["torch"] == torch.__version__
        assert profile.provenance["date"] == date.today().isoformat()
    stored = sorted((bench.problem.profiles / "acceptance").glob("*.json"))
    assert len(stored) == 7, "one file per drafter"
    assert {AcceptanceProfile.load(path).key for path in stored} == {
        profile.key for profile in every.values()
    }


def test_greedy_ranks_are_places_among_the_best() -> None:
    logits = torch.randn(20, 30).round(decimals=1)  # with ties
    order = best(logits[None], 30)[0].tolist()
    tokens = [int(torch.randint(30, ())) for _ in range(20)]
    expected = [row.index(token) for row, token in zip(order, tokens, strict=True)]
    expected = [rank if rank < 6 else -1 for rank in expected]
    assert greedy_ranks(logits, tokens, 6) == expected


def test_sampled_ranks_have_the_known_acceptance() -> None:
    """P(first child accepted) = sum of min(p, q) (Leviathan et al. 2022, section 3.2)."""
    torch.manual_seed(0)
    target, draft = torch.randn(1, 12), torch.randn(1, 12)
    count = 8000
    request = Request(prompt_tokens=(0,), temperature=0.9, seed=3)
    ranks = sampled_ranks(target.expand(count, -1), draft.expand(count, -1), request, 4)
    settings = SamplingSettings.of([request])
    p, q = probabilities(target[None], settings)[0, 0], probabilities(draft[None], settings)[0, 0]
    alpha = float(torch.minimum(p, q).sum())
    share = ranks.count(0) / count
    assert abs(share - alpha) < 4 * (alpha * (1 - alpha) / count) ** 0.5
    assert set(ranks) <= {-1, 0, 1, 2, 3}


def test_no_more_prompts_than_the_precision_needs(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With groups of two prompts: a coarse wish stops early, a finer one goes on from there."""
    monkeypatch.setattr(acceptance_module, "LEAST_PROMPTS", 2)
    monkeypatch.setattr(recorder, "path_of", _elsewhere(recorder.path_of))
    coarse = _profiles(bench, precision=10.0)
    assert {len(_rows(profile)) for profile in coarse.values()} == {2}
    assert all(profile.provenance["prompts_left"] == 6 for profile in coarse.values())
    hopeless = _profiles(bench, precision=1e-6, wanted=[Model("draft")], promising=lambda _: ())
    assert len(_rows(hopeless[Model("draft")])) == 2
    fine = _profiles(bench, precision=1e-6)
    assert (
        len(_rows(fine[Model("draft")])) == 8
        and fine[Model("draft")].provenance["prompts_left"] == 0
    )
    assert fine[Model("draft")].provenance["half_width"] > 0.0
    every = _profiles(bench, precision=0.0)
    for name, profile in every.items():
        assert len(_rows(profile)) == 8 and _rows(profile)[:2] == _rows(coarse[name])
    assert _rows(every[Model("draft")]) == _rows(fine[Model("draft")])
    again = _profiles(bench, precision=10.0)  # what is known is kept
    assert {len(_rows(profile)) for profile in again.values()} == {8}


def _elsewhere(path: Any) -> Any:
    def moved(*arguments: Any) -> Path:
        usual: Path = path(*arguments)
        return usual.with_name("grown-" + usual.name)

    return moved


def _rows(profile: AcceptanceProfile) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in profile.evidence.traces]


def test_the_half_width_is_that_of_the_least_sure_candidate(bench: Workbench) -> None:
    profiles = _profiles(bench)
    facts = gather_facts(bench.problem, device=load_device("cpu-generic"))
    text = profiles[TEXT]
    chains = [text.tokens_per_round(tuple(range(-1, n - 1)), (0,) * n) for n in range(2, 17)]
    widest = max((value.high - value.low) / 2 / value.mean for value in chains)
    half_width = relative_half_width(facts, text)
    assert 0 < half_width <= widest * (1 + 1e-9)
    longest = chains[-1]
    assert half_width >= (longest.high - longest.low) / 2 / longest.mean


def test_rows_of_sampling_are_of_the_requested_settings(tmp_path: Path) -> None:
    """The temperature asked for stands in the key, and other settings give other profiles."""
    rows = {}
    for temperature in (0.0, 0.8):
        folder = tmp_path / str(temperature)
        folder.mkdir()
        path = write_problem(folder, prompts=2, temperature=temperature, output_tokens=12)
        profile = _profiles(Workbench(load_problem(path)))[Model("draft")]
        assert profile.key.temperature == temperature
        assert profile.key.how == ("best" if temperature == 0.0 else "draw_distinct")
        rows[temperature] = profile.evidence.rows
    assert rows[0.0] != rows[0.8]


@pytest.mark.parametrize("change", ["text", "length"])
def test_traces_of_other_texts_are_not_taken_for_these(change: str, tmp_path: Path) -> None:
    """One prompt is edited under its old name, or all become shorter."""
    path = write_problem(tmp_path, prompts=3)
    before = _profiles(Workbench(load_problem(path)))
    if change == "text":
        first, *others = (tmp_path / "prompts.jsonl").read_text().splitlines()
        edited = json.loads(first) | {"text": "def first(items):\n    return items[0]\n"}
        (tmp_path / "prompts.jsonl").write_text("\n".join([json.dumps(edited), *others]))
    else:
        path.write_text(path.read_text().replace('"prompt_tokens": 40', '"prompt_tokens": 30'))
    after = _profiles(Workbench(load_problem(path)))
    shutil.rmtree(Workbench(load_problem(path)).problem.profiles)
    anew = _profiles(Workbench(load_problem(path)))
    for name, profile in after.items():
        named = zip(profile.provenance["prompts"], _rows(profile), strict=True)
        fresh = zip(anew[name].provenance["prompts"], _rows(anew[name]), strict=True)
        assert dict(named) == dict(fresh), name
    assert _rows(before[Model("draft")]) != _rows(anew[Model("draft")])
