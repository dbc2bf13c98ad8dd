"""Measured acceptance predicts rounds exactly where it was measured."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from specplan.cost_models.acceptance import AcceptanceProfile  # noqa: E402
from specplan.cost_models.device import load_device  # noqa: E402
from specplan.measure.acceptance import measure_acceptance  # noqa: E402
from specplan.measure.teacher import greedy_ranks, sampled_ranks  # noqa: E402
from specplan.measure.workbench import PROFILE, Workbench  # noqa: E402
from specplan.planner import discover_methods, gather_facts, load_problem  # noqa: E402
from specplan.runtime.generate import generate  # noqa: E402
from specplan.runtime.requests import Request  # noqa: E402
from specplan.runtime.sampling import SamplingSettings, best, law  # noqa: E402
from tests.measure.problems import write_problem  # noqa: E402

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    return Workbench(load_problem(write_problem(tmp_path_factory.mktemp("problem"))))


def _profiles(bench: Workbench, **options: object) -> dict[str, AcceptanceProfile]:
    facts = gather_facts(bench.problem, device=load_device("cpu-generic"))
    return measure_acceptance(bench, facts, **options)  # type: ignore[arg-type]


def test_replayed_rounds_are_the_rounds_that_run(bench: Workbench) -> None:
    profiles = _profiles(bench)
    facts = gather_facts(bench.problem, device=load_device("cpu-generic"), profiles=profiles)
    prompts = bench.prompts(PROFILE)
    for method in discover_methods().values():
        for family in method.choices(facts):
            for options in family.settings[::5]:  # type: ignore[union-attr]
                plan = method.plan(facts, options)
                proposer = method.proposer(options)
                if proposer is None:
                    continue
                tree = getattr(options, "tree", None)
                length = getattr(options, "length", 0)
                parents = tree.parents if tree else tuple(range(-1, length - 1))
                ranks = tree.ranks if tree else (0,) * length
                executable = bench.compile(plan)
                rounds = 0
                for prompt in prompts:
                    request = Request(
                        prompt_tokens=prompt.tokens, max_new_tokens=bench.output_tokens
                    )
                    rounds += generate(executable, [request]).rounds
                expected = profiles[proposer].rounds(parents, ranks, bench.output_tokens)
                assert rounds / len(prompts) == pytest.approx(expected.mean), options.words


def test_profiles_grow_and_are_read_back(bench: Workbench) -> None:
    first = _profiles(bench, limit=3)
    every = _profiles(bench)
    for name, profile in every.items():
        rows = profile.ranks if profile.ranks is not None else profile.lengths
        earlier = first[name].ranks if first[name].ranks is not None else first[name].lengths
        assert rows is not None and earlier is not None
        assert rows[:3] == earlier[:3] and len(rows) == 8
        assert profile.provenance["versions"]["torch"] == torch.__version__
    stored = sorted((bench.problem.profiles / "acceptance").glob("*.json"))
    assert len(stored) == 2
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
    p, q = law(target[None], settings)[0, 0], law(draft[None], settings)[0, 0]
    alpha = float(torch.minimum(p, q).sum())
    share = ranks.count(0) / count
    assert abs(share - alpha) < 4 * (alpha * (1 - alpha) / count) ** 0.5
    assert set(ranks) <= {-1, 0, 1, 2, 3}
