"""What a quality limit lets the search choose, and how the report shows speed against loss."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from specplan.cost_models.acceptance.drafters import rounds_key
from specplan.cost_models.quality.certificate import Measured
from specplan.planner.answer.quality import front_table, quality_lines
from specplan.planner.quality.front import certificate, offers, quality_data
from specplan.planner.quality.limit import changes_output
from specplan.planner.search.comparing import speedup
from specplan.planner.search.search import SearchResult, search
from specplan.report.charts import quality_chart
from tests.planner.example_facts import example_facts

LIMIT, PROMPTS = 0.05, 400


def limited(folder: Path) -> SearchResult:
    """A search in which settings of `relaxed_acceptance` lose from 1 to 12 % of 400 requests."""
    prompts = folder / "prompts.jsonl"
    prompts.write_text('{"text": "def read(self):"}\n')
    quality = {"measure": "outputs_differ", "at_most": LIMIT, "risk": 0.05, "prompts": str(prompts)}
    facts = example_facts(
        folder,
        temperature=0.8,
        methods=["relaxed_acceptance"],
        limits={"quality": quality},
    )
    draws, losses = random.Random(3), {}
    first = search(facts)
    lossy = [one for one in first.candidates if changes_output(one) and one.priced]
    lossy.sort(
        key=lambda one: speedup(one, first.plain, facts.objective).mean
    )  # slow ones lose less
    for place, one in enumerate(lossy):
        rate = 0.01 + 0.11 * place / len(lossy)
        parts = [
            tuple(float(draws.random() < rate) for _ in range(PROMPTS))
            for _ in ("calibration", "report")
        ]
        losses[rounds_key(one.plan)] = Measured(*parts, data=("first", "second"))
    assert len(losses) > 3
    return search(replace(facts, losses=losses))


def test_the_fastest_within_the_limit_is_chosen_and_shown(tmp_path: Path) -> None:
    result = limited(tmp_path)
    every = offers(result.facts, result.candidates, result.plain)
    speeds = [one.speedup.mean for one in every]
    assert speeds == sorted(speeds, reverse=True)
    front = [one for one in every if one.best]
    assert [one.bound for one in front] == sorted((one.bound for one in front), reverse=True)
    for one in every:  # on the front stands what no other plan beats in both
        better = [o for o in every if o.speedup.mean > one.speedup.mean and o.bound <= one.bound]
        assert one.best == (not better)
    keeping = [o for o in every if o.candidate.loss is None or o.candidate.loss.keeps]
    assert 1 < len(keeping) < len(every)
    assert result.chosen is keeping[0].candidate
    loss = result.chosen.loss
    assert loss is not None and loss.p_value < 0.05 and loss.calibrated < LIMIT

    data = quality_data(result.facts, result.candidates, result.plain, result.chosen)
    assert data is not None and (data["bound"], data["samples"]) == (loss.bound, PROMPTS)
    faster = [one for one in front if one.speedup.mean > keeping[0].speedup.mean]
    gain = faster[-1].speedup.mean / keeping[0].speedup.mean - 1
    assert data["price"] == pytest.approx(gain / (100 * (faster[-1].bound - loss.bound)))
    stated = certificate(result.facts, result.candidates, result.chosen)
    assert stated is not None and stated.data == ("first", "second")

    table = front_table(data)
    assert table is not None and len(table["rows"]) == len(every)
    assert table["rows"][0][1] == f"{speeds[0]:.2f}x"
    assert any("keeps the limit" in row[-1] for row in table["rows"])
    words = " ".join(quality_lines(data))
    assert "of outputs differ from the target's (5 % risk, 400 prompts); the limit is 5 %" in words
    chart = quality_chart({"quality": data})
    assert chart is not None and "loss at most, %" in chart
    assert quality_chart({}) is None and front_table(None) is None
