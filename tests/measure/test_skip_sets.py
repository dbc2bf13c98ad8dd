"""Sets of blocks to leave out are measured, searched for, stored, and found again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("optuna")

from specplan import api  # noqa: E402
from specplan.cost_models.acceptance.drafters import OwnRounds, SkipBlocks  # noqa: E402
from specplan.cost_models.acceptance.evidence.lengths import Lengths  # noqa: E402
from specplan.cost_models.acceptance.profile import AcceptanceKey, AcceptanceProfile  # noqa: E402
from specplan.cost_models.devices.device import load_device  # noqa: E402
from specplan.ir.blocks import Skips  # noqa: E402
from specplan.ir.errors import UsageError  # noqa: E402
from specplan.measure import skip_sets as module  # noqa: E402
from specplan.measure.acceptance.own_drafts import TeacherText  # noqa: E402
from specplan.measure.acceptance.profile import measure_acceptance  # noqa: E402
from specplan.measure.acceptance.teacher import text_logits  # noqa: E402
from specplan.measure.device import time_probe as times  # noqa: E402
from specplan.measure.drafters import measure_drafters  # noqa: E402
from specplan.measure.skip_sets import search_blocks  # noqa: E402
from specplan.measure.workbench import PROFILE, Workbench  # noqa: E402
from specplan.planner import (  # noqa: E402
    Family,
    ProblemFacts,
    discover_methods,
    gather_facts,
    load_problem,
    search,
)
from specplan.runtime.generate import generate  # noqa: E402
from specplan.runtime.models.kv_cache import KVCache  # noqa: E402
from specplan.runtime.requests import Request  # noqa: E402
from specplan.runtime.sampling import SamplingSettings, probabilities  # noqa: E402
from tests.measure.problems import write_problem  # noqa: E402

torch.set_num_threads(1)
SKIPS = Skips.of([1], [1])
NAME = SkipBlocks("target", SKIPS)


def write_skipping(folder: Path, **more: Any) -> Path:
    """The small problem, which asks for sets of blocks beside its draft model."""
    path = write_problem(folder)
    problem = json.loads(path.read_text()) | {"methods": ["layer_skip"]} | more
    path.write_text(json.dumps(problem))
    return path


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return Workbench(load_problem(write_skipping(tmp_path)))


def facts_of(bench: Workbench, device: str = "cpu-generic") -> ProblemFacts:
    return gather_facts(bench.problem, device=load_device(device))


@torch.inference_mode()
def _slow_lengths(model: Any, text: list[int], start: int, skips: Skips, most: int) -> list[int]:
    """Token by token, with a fresh cache for every place."""
    lengths = []
    for root in range(start - 1, len(text) - 1):
        cache = model.new_cache(1, len(text))
        _extend(model, cache, text, 0, root, Skips())
        length = 0
        for place in range(root, min(root + most, len(text) - 1)):
            row = _extend(model, cache, text, place, place + 1, skips)
            if int(row.argmax()) != text[place + 1]:
                break
            length += 1
        lengths.append(length)
    return lengths


def _extend(
    model: Any, cache: KVCache, text: list[int], start: int, stop: int, skips: Skips
) -> Any:
    if stop == start:
        return None
    places = torch.arange(start, stop)[None]
    mask = torch.arange(stop) <= places[:, :, None]
    tokens = torch.tensor([text[start:stop]])
    hidden = model.hidden(tokens, places, places, mask, cache, skips=skips)
    return model.logits(hidden)[0, -1]


def test_lengths_are_those_of_drafts_one_by_one(bench: Workbench) -> None:
    """The draft sees the target's own cache of the text before the root, and its own from there."""
    model = bench.models["target"]
    accepted = 0
    for prompt, skips in ((3, SKIPS), (9, Skips.of([0])), (5, Skips.of([2], [2]))):
        text = [(7 * i * i + prompt) % 61 for i in range(12)]
        request = Request(prompt_tokens=tuple(text))
        output: list[int] = []
        while len(output) < 20:
            output.append(
                int(text_logits(model, [*text, *output, 0], 12 + len(output))[0].argmax())
            )
        teacher = TeacherText(model, request, output, 6)
        expected = _slow_lengths(model, [*text, *output], 12, skips, 6)
        assert teacher.lengths(skips) == expected
        accepted += sum(expected)
    assert accepted > 0


def test_sampled_lengths_have_the_known_acceptance(bench: Workbench) -> None:
    """P(accepted at the first place) = sum of min(p, q) (Leviathan et al. 2022, section 3.2)."""
    model = bench.models["target"]
    settings = {"temperature": 6.0}
    prompt, accepted, count = (3, 1, 4, 1, 5), 0, 400
    for seed in range(count):
        request = Request(prompt_tokens=prompt, seed=seed, **settings)  # type: ignore[arg-type]
        accepted += TeacherText(model, request, [9], 1).lengths(SKIPS)[0]
    cache = model.new_cache(1, 8)
    whole = _extend(model, cache, [*prompt, 9], 0, 5, Skips())
    draft = _extend(model, cache, [*prompt, 9], 4, 5, SKIPS)
    rows = SamplingSettings.of([Request(prompt_tokens=prompt, **settings)])  # type: ignore[arg-type]
    p, q = (probabilities(row[None, None], rows)[0, 0] for row in (whole, draft))
    alpha = float(torch.minimum(p, q).sum())
    assert abs(accepted / count - alpha) < 4 * (alpha * (1 - alpha) / count) ** 0.5
    assert 0.02 < alpha < 0.98


def test_replayed_rounds_are_the_rounds_that_run(bench: Workbench) -> None:
    facts = facts_of(bench)
    profiles = measure_acceptance(
        bench,
        facts,
        wanted=[SkipBlocks("target", Skips.of([1], [1])), SkipBlocks("target", Skips.of([1], []))],
    )
    known = replace(facts, profiles=profiles)
    method = discover_methods()["layer_skip"]
    prompts = bench.prompts(PROFILE)
    for family in method.choices(known):
        assert isinstance(family, Family)
        for options in family.settings[::3]:
            executable = bench.compile(method.plan(known, options))
            rounds = sum(
                generate(
                    executable,
                    [Request(prompt_tokens=prompt.tokens, max_new_tokens=bench.output_tokens)],
                ).rounds
                for prompt in prompts
            )
            length = options.length
            profile = profiles[method.drafter(facts, options)]
            expected = profile.rounds(range(-1, length - 1), (0,) * length, bench.output_tokens)
            assert rounds / len(prompts) == pytest.approx(expected.mean), options.words


def test_the_search_finds_sets_and_goes_on_where_it_was(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HOPELESS", 1e9)
    facts = facts_of(bench)
    progress: list[str] = []
    profiles = search_blocks(bench, facts, progress=lambda what, *_: progress.append(what))
    assert 1 <= len(profiles) <= module.MOST_SETS and "sets of blocks to leave out" in progress
    for name, profile in profiles.items():
        assert isinstance(name, SkipBlocks) and name.model == "target"
        skips = name.skips
        assert {*skips.attentions, *skips.mlps} == {1}
        assert isinstance(profile.evidence, Lengths) and max(map(max, profile.evidence.rows)) <= 8
        assert profile.key.drafter == name
    (path,) = (bench.problem.profiles / "blocks").glob("*.json")
    stored = json.loads(path.read_text())["lengths"]
    assert set(stored["alone"]) == {"a1", "m1"}

    def never(*_: object, **__: object) -> None:
        raise AssertionError("everything was measured before")

    calls = 0
    real = TeacherText.lengths

    def counted(self: TeacherText, *arguments: Any) -> list[int]:
        nonlocal calls
        calls += 1
        return real(self, *arguments)

    monkeypatch.setattr(TeacherText, "lengths", never)
    assert search_blocks(bench, facts).keys() == profiles.keys()
    del stored["sets"][next(iter(stored["sets"]))]
    path.write_text(json.dumps({"schema_version": 1, "lengths": stored}))
    monkeypatch.setattr(TeacherText, "lengths", counted)
    again = search_blocks(bench, facts)
    assert calls == module.PROMPTS, "the one set that was missing"
    assert again == profiles
    path.write_text(json.dumps({"schema_version": 1, "lengths": {"alone": {}}}))
    with pytest.raises(UsageError, match="not a search of blocks"):
        search_blocks(bench, facts)


def test_hopeless_sets_are_not_searched_on(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HOPELESS", 0.0)
    monkeypatch.setattr(module, "NEAR", 0.0)
    monkeypatch.setattr(module, "refine", None)
    blocks = search_blocks(bench, facts_of(bench))
    assert blocks and all(len(p.evidence.traces) == module.PROMPTS for p in blocks.values())


def test_near_sets_are_measured_on_more_prompts(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "NEAR", 1e9)
    monkeypatch.setattr(module, "HOPELESS", 0.0)
    blocks = search_blocks(bench, facts_of(bench))
    assert blocks and all(len(p.evidence.traces) == 8 for p in blocks.values())


def test_nothing_is_searched_for_unasked(tmp_path: Path) -> None:
    """Beside a draft model, where a set is named, or where the method is left out."""
    AcceptanceProfile.from_hazards(
        [[0.9]], key=AcceptanceKey(SkipBlocks("target", Skips.of([1], []))), trials=9
    ).save(tmp_path / "given.json")
    for more in (
        {"acceptance": {"skip_blocks(target, [attn.1])": "given.json"}},
        {"methods": ["prompt_lookup"]},
        {"methods": None},
    ):
        bench = Workbench(load_problem(write_skipping(tmp_path, **more)))
        assert search_blocks(bench, facts_of(bench)) == {}


@pytest.mark.slow
def test_optimising_from_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way: device, acceptance, sets, and their candidates beside all others."""
    monkeypatch.setattr(times, "EMITTED", 6)
    path = write_skipping(tmp_path)
    result = api.optimize(path)
    tried = [c for c in result.search.candidates if c.method == "layer_skip"]
    assert tried and all(candidate.priced for candidate in tried)
    assert {candidate.unsupported for candidate in tried} == {None}
    facts = result.search.facts
    for skips in (Skips.of([1]), Skips.of((), [1]), SKIPS):
        part = facts.device.forward_seconds(facts.target, 1, 1, 50, 1, None, skips)
        assert part.median > 0 and not part.extrapolated
    assert api.optimize(path).search.chosen.plan == result.search.chosen.plan


def test_sets_that_are_known_draft_in_further_ways(tmp_path: Path) -> None:
    """A given set is drafted with under a stop rule: rehearsed, told of its trips, and priced."""
    path = write_skipping(tmp_path, methods=["thompson"], acceptance={str(NAME): "given.json"})
    AcceptanceProfile.from_hazards([[0.6]], drafter=NAME).save(tmp_path / "given.json")
    bench = Workbench(load_problem(path))
    facts, device = facts_of(bench), load_device("cpu-generic")
    profiles = measure_drafters(bench, facts, device)
    known = replace(facts, profiles={NAME: AcceptanceProfile.from_hazards([[0.6]], drafter=NAME)})
    method = discover_methods()["thompson"]
    (options,) = (one for one in method.later_settings(known) if one.drafter == NAME)
    way = method.drafter(known, options)
    assert isinstance(way, OwnRounds) and profiles[way].prompts == 8
    assert len(set(profiles[way].evidence.stopped)) > 2
    known = gather_facts(bench.problem, device=device, profiles=profiles)
    (candidate,) = (one for one in search(known).candidates if one.drafter == way)
    assert candidate.method == "thompson" and candidate.estimate is not None
