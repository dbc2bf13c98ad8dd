"""What other programs write, against the same numbers by hand; and what broken files say."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from specplan.cost_models.acceptance.importers.registry import discover_importers
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.importing import import_acceptance
from specplan.ir.errors import UsageError
from tests.cost_models.acceptance.importer_files import (
    ACCEPTANCE_CSV,
    BENCH,
    DETAILED,
    GOLDEN_YAML,
    ITERATIONS,
    LLAMA_CPP,
    PROMETHEUS,
    RESPONSE,
    SERVER_INFO,
    SGLANG_LOG,
    SGLANG_METRICS,
    SPECDEC_BENCH,
    STEPS,
    VLLM_LOG,
    answer,
    iteration,
)
from tests.cost_models.small_trees import chain

Read = Callable[..., AcceptanceProfile]
REQUEST_RECORD = {"acceptance_rate": 0.5, "total_accepted_draft_tokens": 90}


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Import some content, by a file that is called after its kind."""

    def call(content: Any, name: str = "log", **options: Any) -> AcceptanceProfile:
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        profile = import_acceptance(path, options.pop("drafter", "draft"), **options)
        assert profile.provenance["file"] == name
        assert profile.provenance["rounds"] > 0
        profile.save(tmp_path / "profile.json")
        assert AcceptanceProfile.load(tmp_path / "profile.json").tokens_per_round(
            *chain(2)
        ) == profile.tokens_per_round(*chain(2))
        return profile

    return call


def survival(profile: AcceptanceProfile, depth: int) -> tuple[float, ...]:
    return profile.accepted_at_least(*chain(depth))


def mean(profile: AcceptanceProfile, depth: int) -> float:
    tokens = profile.tokens_per_round(*chain(depth))
    assert tokens.low < tokens.mean < tokens.high
    return tokens.mean


def test_vllm_counters(read: Read) -> None:
    """1000 drafts of 3, by two engines: 710, 530 and 420 kept; length 1 + 1660 / 1000."""
    profile = read(PROMETHEUS)
    assert profile.provenance["format"] == "vllm-prometheus"
    assert profile.provenance["date"] == date.today().isoformat()  # of the file, just written
    assert survival(profile, 3) == pytest.approx((0.71, 0.53, 0.42))
    assert mean(profile, 3) == pytest.approx(1 + 1660 / 1000)
    assert profile.hazard_counts(2, 0) == pytest.approx((530, 710))
    assert profile.evidence.measured_depth == 3
    assert "1,000 rounds" in profile.source
    one = read(PROMETHEUS, select="engine=1")
    assert survival(one, 3) == pytest.approx((280 / 400, 210 / 400, 170 / 400))
    assert survival(read(LLAMA_CPP), 3) == pytest.approx((0.8, 0.5, 0.2))
    without = "\n".join(line for line in PROMETHEUS.splitlines() if "per_pos" not in line)
    assert mean(read(without), 3) == pytest.approx(2.66, abs=0.005)
    bare = PROMETHEUS.replace("_total{", "{")
    assert survival(read(bare), 3) == survival(profile, 3)


def test_vllm_bench(read: Read) -> None:
    profile = read(BENCH)
    assert profile.provenance["format"] == "vllm-bench"
    assert survival(profile, 3) == pytest.approx((0.62, 0.39, 0.21))
    assert mean(profile, 3) == pytest.approx(BENCH["spec_decode_acceptance_length"])
    assert profile.hazard_counts(1, 0)[1] == 5000
    rates = "spec_decode_per_position_acceptance_rates"
    assert mean(read(BENCH | {rates: []}), 3) == pytest.approx(2.22, abs=0.005)
    detailed = read(BENCH | {"per_request": [STEPS, RESPONSE["metrics"]]})
    assert detailed.provenance["rounds"] == 5 + 43


def test_vllm_requests(read: Read) -> None:
    profile = read(RESPONSE)
    assert profile.provenance["format"] == "vllm-requests"
    assert survival(profile, 3) == pytest.approx((4 / 43, 3 / 43, 3 / 43))
    assert mean(profile, 3) == pytest.approx(1.2325581395348837)
    steps = read(DETAILED)
    assert steps.evidence.rows == ((4 / 5,), (2 / 3,), (1 / 2,))  # shorter drafts are no trials
    assert steps.evidence.trials == (5, 3, 2)
    both = read("\n".join(map(json.dumps, (RESPONSE, DETAILED))))
    assert both.provenance["requests"] == 2
    assert survival(both, 1) == pytest.approx((8 / 48,))
    assert sum(both.evidence.trials or ()) < 50  # two requests, and unlike ones
    by_length = {k: v for k, v in STEPS.items() if not k.startswith("per_step")} | {
        "acceptance_histogram_by_draft_length": {"1": [0, 1], "2": [1, 0, 0], "3": [0, 1, 1, 1]}
    }
    assert read([by_length]).evidence.rows == steps.evidence.rows


def test_sglang(read: Read) -> None:
    profile = read(SERVER_INFO)
    assert profile.provenance["format"] == "sglang"
    assert mean(profile, 3) == pytest.approx(2.85, abs=0.01)
    assert "assumed" in profile.source
    counted = read(SERVER_INFO, rounds=50_000)
    narrow, wide = (p.tokens_per_round(*chain(3)) for p in (counted, profile))
    assert narrow.high - narrow.low < 0.1 * (wide.high - wide.low)
    assert mean(read(SGLANG_METRICS), 3) == pytest.approx(2.3, abs=0.01)
    assert mean(read({"accept_length": 2.2}, draft_tokens=4), 4) == pytest.approx(2.2, abs=0.01)
    block = {"accept_length": 3.9, "speculative_num_draft_tokens": 16}  # counts the root
    assert read(block).provenance["draft_tokens"] == 15


def test_tensorrt_llm(read: Read) -> None:
    """Accepted drafts only: 12 + 15 + 5 by 18 requests are a length of 1 + 32 / 18."""
    profile = read(ITERATIONS)
    assert profile.provenance["format"] == "tensorrt-llm"
    assert mean(profile, 3) == pytest.approx(1 + 32 / 18, abs=0.01)
    assert profile.provenance["rounds"] == 18
    repeated = [*ITERATIONS, iteration(24, 12, 8, rank=1)]
    assert read(repeated).provenance == profile.provenance | {
        "sha256": read(repeated).provenance["sha256"]
    }
    lines = "\n".join(json.dumps(row) for row in ITERATIONS)
    assert mean(read(lines), 3) == mean(profile, 3)
    assert mean(read([json.dumps(row) for row in ITERATIONS]), 3) == mean(profile, 3)
    single = [iteration(3, accepted, 1) for accepted in (3, 0, 1, 2, 3, 1)]
    assert survival(read(single), 3) == pytest.approx((5 / 6, 3 / 6, 2 / 6))  # each is a round
    record = {"acceptance_histogram": [2, 1, 1], "num_spec_steps": 4}
    assert survival(read({"metrics": record}), 2) == pytest.approx((0.5, 0.25))
    totals = [REQUEST_RECORD | {"total_draft_tokens": 180}] * 3
    assert mean(read(totals, draft_tokens=3), 3) == pytest.approx(1 + 270 / 180, abs=0.01)


def test_spec_bench(read: Read) -> None:
    """The bonus counts: lengths 1, 3, 2, 4 kept 0, 2, 1, 3."""
    profile = read(answer(1, 3, 2, 4) + answer(2, 1, question=82))
    assert profile.provenance["format"] == "spec-bench"
    assert survival(profile, 3) == pytest.approx((4 / 6, 2 / 6, 1 / 6))
    assert mean(profile, 3) == pytest.approx((1 + 3 + 2 + 4 + 2 + 1) / 6)
    assert profile.evidence.measured_depth == 3
    source = read(answer(1, 3, 2, 4), drafter="text")
    assert source.key.how == "given"


def test_speculators(read: Read) -> None:
    profile = read(ACCEPTANCE_CSV, "acceptance.csv")
    assert profile.provenance["format"] == "speculators"
    assert survival(profile, 1) == pytest.approx(((800 + 1300 + 250) / 3500,))
    assert profile.hazard(3, 0) == pytest.approx((360 + 400) / (550 + 700))  # `short` had no third
    for row in csv.DictReader(io.StringIO(ACCEPTANCE_CSV)):
        one = read(ACCEPTANCE_CSV, "acceptance.csv", select=row["subset"])
        drafted = int(row["num_draft_tokens"]) // int(row["num_drafts"])
        assert mean(one, drafted) == pytest.approx(float(row["acceptance_length"]))
    low, high = (profile.tokens_per_round(*chain(3)).low, profile.tokens_per_round(*chain(3)).high)
    assert low < 2.3 < high  # three subsets that differ a lot


def test_specdec_bench(read: Read) -> None:
    profile = read(SPECDEC_BENCH)
    assert profile.provenance["format"] == "specdec-bench"
    assert survival(profile, 3) == pytest.approx((0.6, 0.3, 0.3))
    assert mean(profile, 3) == pytest.approx((40 + 2 * 30 + 4 * 30) / 100)
    rates = {k: v for k, v in SPECDEC_BENCH.items() if k != "Acceptance_Length_Histogram"}
    assert survival(read(rates), 3) == pytest.approx((0.6, 0.3, 0.3))
    assert survival(read(SPECDEC_BENCH, draft_tokens=5), 5)[3:] == (0.0, 0.0)


def test_inferencex(read: Read) -> None:
    profile = read(GOLDEN_YAML, "qwen3.5_mtp.yaml")
    assert profile.provenance["format"] == "inferencex"
    for draft_tokens, length in ((1, 1.93), (3, 3.39), (8, 5.21)):
        assert mean(profile, draft_tokens) == pytest.approx(length, abs=0.06)
    two = GOLDEN_YAML + "  thinking_off: {1: 1.8, 2: 2.4}\n"
    off = read(two, select="thinking_off")
    assert mean(off, 2) == pytest.approx(2.4, abs=0.06)
    with pytest.raises(UsageError, match="thinking_on, thinking_off"):
        read(two)


def test_at_a_temperature_engines_draw(read: Read) -> None:
    assert read(PROMETHEUS).key.how == "best"
    assert read(PROMETHEUS, temperature=0.6).key.how == "draw"
    assert read(PROMETHEUS, task="code").key.task == "code"


BROKEN: dict[str, tuple[Any, dict[str, Any], str]] = {
    "nothing": ("", {}, "no known format"),
    "other": ("hello: world", {}, "no known format"),
    "format": (PROMETHEUS, {"format": "vlm"}, "Known are"),
    "lookup": (PROMETHEUS, {"drafter": "text"}, "misses of a lookup"),
    "no drafts": (PROMETHEUS.replace(" 600.0", " 0").replace(" 400.0", " 0"), {}, "no drafts"),
    "no number": (PROMETHEUS.replace(" 600.0", " NaN"), {}, "NaN"),
    "cut": (PROMETHEUS.replace('model_name="m"} 600.0', 'model_n'), {}, "line 3"),
    "missing position": (PROMETHEUS.replace('position="1"', 'position="7"'), {}, "by position"),
    "models": (PROMETHEUS.replace('engine="1",model_name="m"', 'model_name="n"'), {}, "m, n"),
    "no label": (PROMETHEUS, {"select": "engine=9"}, "engine=9"),
    "percent": (
        BENCH | {"spec_decode_per_position_acceptance_rates": [62.0, 39.0, 21.0]}, {}, "rates",
    ),
    "no bonus": (BENCH | {"spec_decode_acceptance_length": 1.22}, {}, "bonus"),
    "two results": ([BENCH, BENCH], {}, "several results"),
    "no rate": (BENCH | {"spec_decode_num_drafts": None}, {}, "spec_decode_num_drafts"),
    "mean": (DETAILED | {"metrics": STEPS | {"mean_acceptance_length": 1.4}}, {}, "bonus"),
    "uneven": (STEPS | {"per_step_drafted": [3]}, {}, "per_step"),
    "too many": (STEPS | {"per_step_accepted": [3, 1, 2, 3, 1]}, {}, "per_step"),
    "huge": (STEPS | {"per_step_drafted": [3, 3, 3, 2, 10**30]}, {}, "per_step_drafted"),
    "part of a token": (answer(1, 2).replace("[1, 2]", "[1, 2.5]"), {}, "whole number"),
    "tree": (SERVER_INFO | {"speculative_eagle_topk": 8}, {}, "trees"),
    "off": (SERVER_INFO | {"internal_states": [{"avg_spec_accept_length": None}]}, {}, "no mean"),
    "length": (SERVER_INFO | {"speculative_num_steps": 1}, {}, "not possible"),
    "how long": ({"accept_length": 2.2}, {}, "--draft-tokens"),
    "plain": ([iteration(0, 0, 0)], {}, "no iteration"),
    "more kept": ([iteration(3, 4, 1)], {}, "numAcceptedTokens"),
    "lengths vary": ([iteration(24, 3, 10), iteration(24, 9, 9)], {}, "--draft-tokens"),
    "no rounds": ([REQUEST_RECORD | {"total_draft_tokens": 180}], {}, "--draft-tokens"),
    "baseline": (answer(1, 1, 1), {}, "plain decoding"),
    "bonus": (answer(0, 2), {}, "bonus"),
    "words": (answer(1, 2).replace("[1, 2]", '"x"'), {}, "accept_lengths"),
    "subset": (ACCEPTANCE_CSV, {"select": "qa"}, "math_reasoning"),
    "rate": (ACCEPTANCE_CSV.replace("0.80", "80"), {}, "acceptance_at_pos_0"),
    "drafts": (ACCEPTANCE_CSV.replace("1000,3000", "0,0"), {}, "num_drafts"),
    "histogram": (SPECDEC_BENCH | {"Acceptance_Length_Histogram": {"0": 5}}, {}, "length"),
    "curve": (GOLDEN_YAML.replace("1.93", "2.93"), {}, "2.93"),
    "mode": (GOLDEN_YAML, {"select": "thinking_off"}, "thinking_on"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_have_one_message(read: Read, name: str) -> None:
    content, options, words = BROKEN[name]
    with pytest.raises(UsageError) as caught:
        read(content, **options)
    assert words in str(caught.value)
    assert caught.value.remedy
    assert caught.value.where


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        import_acceptance(tmp_path / "none", "draft")


def test_every_format_is_recognised(tmp_path: Path) -> None:
    """Each of these files is recognised by one importer alone, and all importers are found."""
    from specplan.cost_models.foreign_file import Source

    files: dict[str, Any] = {
        "vllm-prometheus": PROMETHEUS,
        "vllm-bench": BENCH,
        "vllm-requests": DETAILED,
        "vllm-log": VLLM_LOG,
        "sglang": SERVER_INFO,
        "sglang-log": SGLANG_LOG,
        "tensorrt-llm": ITERATIONS,
        "spec-bench": answer(1, 2),
        "speculators": ACCEPTANCE_CSV,
        "specdec-bench": SPECDEC_BENCH,
        "inferencex": GOLDEN_YAML,
    }
    importers = discover_importers()
    assert set(importers) == {*files, "sequoia"}
    for name, content in files.items():
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        recognising = [
            other for other, importer in importers.items() if importer.recognises(Source(path))
        ]
        assert recognising == [name]
    docs = Path(__file__).parents[3] / "docs" / "acceptance.md"
    assert all(f"`{name}`" in docs.read_text() for name in importers)
