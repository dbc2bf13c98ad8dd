"""Priors of acceptance: what sets them, what they cover, and how they are marked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specplan.cost_models.acceptance.drafters import TEXT, Model
from specplan.cost_models.acceptance.priors import fit, tables
from specplan.cost_models.acceptance.priors.fit import (
    checked_lengths,
    checked_words,
    prior_mixture,
    prior_profile,
)
from specplan.cost_models.acceptance.priors.tables import KINDS, TASKS, kind_table, task_of
from specplan.cost_models.acceptance.profile import AcceptanceKey, AcceptanceProfile
from specplan.ir.errors import UsageError
from specplan.planner.drafters.profiles import stated_profile
from specplan.planner.facts import gather_facts
from specplan.planner.problem.loading import problem_from_dict
from specplan.problems import portable
from tests.planner.checkpoints import write_checkpoint
from tests.planner.example_facts import example_problem
from tests.planner.rich_facts import usual_facts

CHAIN = (-1, 0, 1), (0, 0, 0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("priors")
    for name, seed in (("target", 0), ("draft", 1)):
        write_checkpoint(made / name, seed=seed)
    return made


def test_intervals_cover_figures_of_sources_that_set_nothing() -> None:
    checked = checked_lengths()
    sources = {one.figure.source for one in checked}
    setting = {one.source for kind in KINDS for one in kind_table(kind).setting}
    assert len(checked) >= 60 and len(sources) >= 8 and not sources & setting
    assert 0.80 <= sum(one.inside for one in checked) / len(checked) <= 0.97


def test_figures_of_sources_that_check_set_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {(kind, task): prior_mixture(kind, task) for kind in KINDS for task in TASKS}
    caches = [fit.prior_mixture, fit.logit_acceptance, fit._task_offsets, fit._pooled_variance]
    full = {kind: kind_table(kind) for kind in KINDS}
    only_setting = {
        kind: tables.KindTable(one.kind, one.words, one.concentration, one.setting)
        for kind, one in full.items()
    }
    monkeypatch.setattr(fit, "kind_table", only_setting.__getitem__)
    for cached in caches:
        cached.cache_clear()
    after = {(kind, task): prior_mixture(kind, task) for kind in KINDS for task in TASKS}
    for cached in caches:
        cached.cache_clear()
    assert before == after


def test_a_figure_of_a_source_that_sets_priors_cannot_check_them() -> None:
    with pytest.raises(ValueError, match="sets priors"):
        checked_lengths(kind_table("ngram").setting)


def test_kinds_without_three_other_sources_say_that_they_are_unchecked() -> None:
    for kind in KINDS:
        sources = {one.source for one in kind_table(kind).checking}
        assert (checked_words(kind) == "unchecked") == (len(sources) < 3)
    assert checked_words("eagle3").startswith("checked: 90 % intervals held 43 of 45")
    assert checked_words("medusa") == "unchecked"


def test_priors_are_wide_ordered_by_task_and_valid_for_every_kind() -> None:
    for kind in KINDS:
        for task in TASKS:
            profile = prior_profile(kind, task, AcceptanceKey(Model("eagle")))
            tokens = profile.tokens_per_round(*CHAIN)
            assert 1.0 < tokens.low < tokens.mean < tokens.high <= 4.0
            assert tokens.high - tokens.low > 0.8
    means = {
        task: prior_mixture("eagle3", task).model.tokens_per_round(*CHAIN).mean for task in TASKS
    }
    assert means["math"] > means["code"] > means["summarisation"] > means["chat"]


@pytest.mark.parametrize(
    ("text", "task"),
    [("code", "code"), ("HumanEval", "code"), ("gsm8k", "math"),
     ("cnn/dm", "summarisation"),
     ("summarization", "summarisation"), ("chat", "chat"), ("MT-Bench", "chat"), ("", "any"),
     ("translation", "any")],
)  # fmt: skip
def test_the_task_is_read_from_the_users_word(text: str, task: str) -> None:
    assert task_of(text) == task


def profiles(folder: Path, acceptance: Any, **changes: Any) -> dict[Any, AcceptanceProfile]:
    problem = problem_from_dict(example_problem(acceptance=acceptance, **changes), folder)
    again = problem_from_dict(portable(problem, folder), folder)
    assert again.acceptance == problem.acceptance
    return dict(gather_facts(problem).profiles)


def test_one_word_states_priors_for_all_drafters(folder: Path, tmp_path: Path) -> None:
    every = profiles(folder, "prior")
    assert set(every) == {Model("draft"), TEXT}
    draft = every[Model("draft")]
    assert draft.assumption is not None and draft.assumption.startswith("prior for a smaller model")
    assert draft.assumption.endswith("unchecked")
    assert draft.provenance["origin"] == "prior" and draft.provenance["prior"]["sources"]
    draft.save(tmp_path / "prior.json")
    assert AcceptanceProfile.load(tmp_path / "prior.json").assumption == draft.assumption


def test_one_drafter_may_have_a_prior(folder: Path) -> None:
    assert set(profiles(folder, {"draft": "prior"})) == {Model("draft")}


def test_what_no_figures_are_published_on_has_no_prior(folder: Path) -> None:
    with pytest.raises(UsageError, match="there is no prior") as caught:
        profiles(folder, {"beam(draft, 4)": "prior"})
    assert "0.6" in str(caught.value)


def test_the_kind_of_a_drafter_is_read_from_its_config() -> None:
    facts = usual_facts(0.0)
    words = {
        str(drafter): stated_profile("prior", AcceptanceKey(drafter), facts.drafters).provenance[
            "prior"
        ]["kind"]
        for drafter in (*map(Model, ("head", "flash", "draft", "mtp")), TEXT)
    }
    assert words == {
        "head": "eagle3",
        "flash": "dflash",
        "draft": "draft_model",
        "mtp": "mtp",
        "text": "ngram",
    }
