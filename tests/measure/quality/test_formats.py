"""Number formats are chosen by speed, within what they may lose on held-out text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from scipy import stats  # noqa: E402

from specplan.cost_models.memory.plan_memory import plan_memory  # noqa: E402
from specplan.cost_models.quality.formats import FormatLoss  # noqa: E402
from specplan.gathering import find, lost_by_formats, open_bench  # noqa: E402
from specplan.ir.errors import InfeasibleError, UsageError  # noqa: E402
from specplan.measure.acceptance.teacher import text_logits  # noqa: E402
from specplan.measure.device.probes import plain_plan  # noqa: E402
from specplan.measure.quality.prompts import LEAST  # noqa: E402
from specplan.measure.workbench import BENCH  # noqa: E402
from specplan.planner import Problem  # noqa: E402
from specplan.planner.explain.data import explain  # noqa: E402
from specplan.planner.explain.words import explain_words  # noqa: E402
from specplan.planner.problem.loading import problem_from_dict  # noqa: E402
from specplan.planner.quality.limit import check_format  # noqa: E402
from specplan.problems import each_variant  # noqa: E402
from specplan.progress import silent  # noqa: E402

EXAMPLES = Path(__file__).parents[3] / "examples"
LIMIT = 0.005


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of prompts, half as many as there are, and of what was measured on them: once."""
    folder = tmp_path_factory.mktemp("formats")
    lines = (EXAMPLES / "prompts/code.jsonl").read_text("utf-8").splitlines()
    (folder / "prompts.jsonl").write_text("\n".join(lines[::2]), "utf-8")
    return folder


def described(folder: Path, **changes: Any) -> Problem:
    models = EXAMPLES / "reference_models"
    return problem_from_dict(
        {
            "schema_version": 1,
            "models": {
                "target": {"path": str(models / "target"), "dtype": "float32"},
                "drafts": [
                    {"name": "draft", "path": str(models / "draft")},
                    {"name": "eagle", "path": str(models / "heads/eagle")},
                ],
            },
            "device": "cpu-generic",
            "acceptance": {"draft": 0.7},
            "methods": ["draft_model"],
            "formats": ["float32", "Q4_0", "Q8_0"],
            "limits": {"quality": {"measure": "held_out_loss", "at_most": LIMIT}},
            "workload": {
                "batch_sizes": [1],
                "prompt_tokens": 64,
                "output_tokens": 32,
                "task": "code",
                "prompts": str(folder / "prompts.jsonl"),
            },
            "profiles": str(folder),
        }
        | changes
    )


def test_the_fastest_format_that_keeps_the_limit_is_chosen(folder: Path) -> None:
    problem = described(folder)
    result = find(problem, silent)
    chosen = result.facts.problem
    assert chosen.label == "eager, Q8_0" and chosen.formats == ("Q8_0",)
    dtypes = [draft.dtype for draft in chosen.models.drafts]
    assert (chosen.models.target.dtype, *dtypes) == ("Q8_0",) * 3, "heads too"
    by_label = {one.backend: one for one in result.backends}
    assert list(by_label) == ["eager, float32", "eager, Q4_0", "eager, Q8_0"]
    coarse, fine = by_label["eager, Q4_0"], by_label["eager, Q8_0"]
    assert "Q4_0 is not shown to keep the limit of 0.005 nats per token" in coarse.refusal
    assert by_label["eager, float32"].loss is None
    assert coarse.loss is not None and fine.loss is not None
    assert abs(fine.loss.mean) < fine.loss.bound < LIMIT < coarse.loss.mean

    whole, rounded = (open_bench(one)[0] for one in each_variant(problem)[::2])
    texts = [prompt.tokens for prompt in whole.prompts(BENCH)][: len(fine.loss.losses)]
    for text, loss in list(zip(texts, fine.loss.losses, strict=True))[:3]:
        half = len(text) // 2
        likely = [
            text_logits(bench.models["target"], text, half)
            .double()
            .log_softmax(-1)[range(len(text) - half), list(text[half:])]
            .mean()
            for bench in (whole, rounded)
        ]
        assert loss == pytest.approx(float(likely[0] - likely[1]))

    explanation = explain(result)
    data = {one["backend"]: one for one in explanation["backends"]}
    assert data["eager, Q8_0"]["chosen"] and data["eager, Q8_0"]["loss"]["against"] == "float32"
    assert explanation["setting"]["dtype"] == "Q8_0"
    words = "\n".join(explain_words(explanation))
    assert "eager, Q8_0 loses" in words and "of held-out text against float32, at most" in words
    assert "No plan for eager, Q4_0" in words


def test_formats_by_model_and_without_a_limit(folder: Path) -> None:
    by_model = {"target": "Q8_0", "draft": "Q4_0"}
    problem = described(folder, formats=["float32", by_model], limits={}, backends=["eager"])
    _, second = each_variant(problem)
    assert second.label == "eager, target Q8_0 and draft Q4_0"
    assert [m.dtype for m in second.models.by_role.values()] == ["Q8_0", "Q4_0", "auto"]
    result = find(problem, silent)
    assert result.facts.problem == second
    assert result.backends[1].loss is not None and result.backends[1].loss.risk == 0.05


def test_caches_are_chosen_like_dtypes(tmp_path: Path) -> None:
    prompts = tmp_path / "few.jsonl"
    lines = (EXAMPLES / "prompts/code.jsonl").read_text("utf-8").splitlines()[:LEAST]
    prompts.write_text("\n".join(lines), "utf-8")
    halves = {"dtype": "float32", "kv_format": "float16"}
    problem = described(
        tmp_path,
        formats=["float32", {"target": halves}, {"kv_format": "fp8"}],
        workload={"batch_sizes": [1], "prompt_tokens": 16, "output_tokens": 8},
        limits={
            "quality": {
                "measure": "held_out_loss",
                "at_most": 1e-4,
                "prompts": str(prompts),
            }
        },
    )
    first, second, third = each_variant(problem)
    assert second.label == "eager, target float32 with caches in float16"
    assert third.label == "eager, caches in fp8"
    for one, caches in ((second, ["float16", None, None]), (third, ["fp8"] * 3)):
        assert [model.kv_format for model in one.models.by_role.values()] == caches
        assert [model.dtype for model in one.models.by_role.values()] == ["float32", "auto", "auto"]
    again = problem_from_dict(problem.model_dump(mode="json", exclude_none=True))
    assert again == problem, "a bundle's problem reads back"

    lost = lost_by_formats((first, second, third), silent)
    fine, coarse = (lost[f"float32 with caches in {form}"] for form in ("float16", "fp8"))
    assert fine.against == coarse.against == "float32"
    most = [max(map(abs, one.losses)) for one in (fine, coarse)]
    assert 0 < most[0] < 2e-3 < most[1], "ten bits of a mantissa, and three"
    worse = FormatLoss((0.1, 0.2, 0.3), "float32", 0.05)
    lost["float32 with caches in fp8"] = worse
    check_format(first, lost)
    with pytest.raises(InfeasibleError, match="float32 with caches in fp8 is not shown to keep"):
        check_format(third, lost)

    plan, sizes = plain_plan(True), list[float]()
    for one in (first, second, third):
        shapes = {"target": one.models.target.shape()}
        parts = {part.name: float(part.bytes) for part in plan_memory(plan, shapes, 1, 999).parts}
        sizes.append(parts["cache @kv"])
        assert ("keys and values of a layer, widened" in parts) == (one is not first)
    assert [sizes[0] / size for size in sizes] == [1, 2, 4]


def test_the_bound_is_students() -> None:
    losses = tuple(0.01 + 0.02 * ((7 * i) % 11 - 5) for i in range(30))
    loss = FormatLoss(losses, "float32", 0.05)
    wanted = stats.ttest_1samp(losses, 0.0).confidence_interval(0.9).high
    assert loss.bound == pytest.approx(wanted)
    assert loss.keeps(wanted + 1e-9, 1) and not loss.keeps(wanted - 1e-9, 1)
    assert not loss.keeps(wanted + 1e-9, 2), "two tests share the risk"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"formats": ["float32", {"drafts": "Q8_0"}]}, "the problem has no model drafts"),
        ({"formats": ["Q8_0", "Q8_0"]}, "Q8_0 is named twice"),
        ({"formats": ["Q8_0", {"kv_format": "int8"}]}, "formats"),
        ({"backend": "vllm"}, "and not by vllm"),
        (
            {"limits": {"quality": {"measure": "outputs_differ", "at_most": 0.1}}},
            "is measured on held-out text",
        ),
    ],
)
def test_formats_that_cannot_be_chosen_among(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message):
        described(tmp_path, **changes)
