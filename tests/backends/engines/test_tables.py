"""What engines can express is data, and refusals follow from it."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import jsonschema
import pytest

from specplan.backends.engines.checkpoints import FORMS, SGLANG, SPECULATORS
from specplan.backends.engines.registry import all_tables, engine_names, is_engine, open_table
from specplan.backends.engines.structure import DRAFTERS, Drafter, read_structure
from specplan.backends.engines.table import Table
from specplan.backends.engines.words import engine_as_dict, engines_page
from specplan.backends.engines.writing import read_schemas
from specplan.ir.errors import UsageError
from specplan.ir.plan import Plan
from specplan.planner.problem.setting_checks import known_engines
from specplan.planner.templates.merged_rounds import first_then
from tests.backends.engines.examples import by_batch, plans, setting, shrinking_head, stopping

REPOSITORY = Path(__file__).parents[3]
TABLES = all_tables()
NAMES = ("dynamo", "llama_cpp", "onnxruntime_genai", "openvino_genai", "ray_serve", "sglang",
         "tensorrt_edge_llm", "tensorrt_llm", "transformers", "vllm")  # fmt: skip


def by_name(table: Table) -> str:
    return f"{table.engine}@{table.version}"


def words(engine: str, plan: Plan) -> str:
    return "; ".join(refusal.words for refusal in open_table(engine).refusals(plan))


def test_the_engines_are_found_by_their_files() -> None:
    assert engine_names() == NAMES == known_engines()
    folder = REPOSITORY / "backends/engines"
    for name in NAMES:
        assert (folder / f"{name}.py").is_file() and (folder / f"{name}.schema.json").is_file()
    assert set(DRAFTERS) == set(get_args(Drafter))


@pytest.mark.parametrize("table", TABLES, ids=by_name)
def test_a_table_says_what_it_is_and_how_far_it_was_verified(table: Table) -> None:
    assert table.title and table.home.startswith("https://") and table.against
    assert "none" in table.drafters, "plain decoding is always a candidate"
    for drafter, ability in table.drafters.items():
        layouts = ("", SPECULATORS, SGLANG)
        assert set(ability.forms) <= {f"{form}{end}" for form in FORMS for end in layouts}
        assert bool(ability.forms) == (drafter in ("model", "head", "block")), "of checkpoints"
    for schema in read_schemas(table.engine).values():
        jsonschema.Draft202012Validator.check_schema(schema)
    assert engine_as_dict(table)["level"] in ("documentation", "schema", "parser", "run")


@pytest.mark.parametrize("table", TABLES, ids=by_name)
@pytest.mark.parametrize("name", sorted(plans()))
def test_a_plan_is_refused_exactly_where_the_table_lacks_it(table: Table, name: str) -> None:
    for batch in (1, 16):
        plan = plans(batch)[name]
        structure = read_structure(plan)
        ability = table.drafters.get(structure.longest.drafter)
        most = None if ability is None else ability.largest_batch
        takes = ability is not None and (
            name == "plain"
            or (
                structure.longest.shape in ability.shapes
                and (most is None or structure.largest_batch <= most)
                and structure.longest.tokens <= (ability.most_tokens or structure.longest.tokens)
                and (not structure.longest.rule or structure.longest.rule in ability.rules)
                and (not structure.longest.bar or "bar" in ability.ends)
                and (not structure.longest.first or "success" in ability.ends)
                and (not ability.forms or structure.longest.usual_form in ability.forms)
            )
        )
        assert takes == (not table.refusals(plan)), words(table.engine, plan)


def test_reasons_name_what_is_missing() -> None:
    assert "trees were removed in May 2026" in words("vllm", plans()["model_tree"])
    assert "the target's first layers" in words("vllm", plans()["first_layers"])
    assert "batches of 1 at most" in words("transformers", plans()["model"])
    assert "eagle_choices" in words("tensorrt_llm", plans()["model_tree"])
    long = setting("prompt_lookup", "up to 16 tokens after a match of 1 to 8", 0.0, 1)
    assert not words("onnxruntime_genai", long)


def test_what_an_engine_does_otherwise() -> None:
    drawn, ranked = plans()["model_drawn"], plans()["model"]
    assert open_table("sglang").differs(drawn) == ("it drafts the best ranks, the plan draws",)
    assert open_table("sglang").differs(ranked) == open_table("vllm").differs(drawn) == ()
    past = open_table("tensorrt_llm").differs(plans()["past"])
    assert past == ("its suffix automaton takes the longest match, however long",)


def test_schedules() -> None:
    shrinking, stops = shrinking_head(), stopping("eagle3", "chain of 5 by head")
    assert not words("vllm", shrinking) and not words("vllm", stops)
    assert not words("sglang", shrinking)
    assert not words("sglang@0.5.23", stops)
    assert "cannot stop drafting" in words("sglang@0.5.16", stops)
    assert not words("tensorrt_llm", shrinking)
    assert "go on with one token" in words("tensorrt_llm", stops)
    lookup = stopping("prompt_lookup", "up to 8 tokens after a match of 1 to 8")
    assert not words("tensorrt_llm", lookup), "lookup keeps no state that could fall behind"
    assert "one draft length" in words("llama_cpp", shrinking)
    head = [setting("eagle3", f"chain of {length} by head") for length in (2, 5)]
    rising = by_batch([("batch <= 4", head[0]), ("", head[1])])
    assert not words("vllm", rising)
    assert "may not grow" in words("tensorrt_llm", rising)


def test_schedules_that_no_engine_has() -> None:
    head, draft = (setting("eagle3", "chain of 2 by head"), plans()["model"])
    two = by_batch([("batch <= 4", head), ("", draft)])
    by_context = by_batch([("context <= 99", head), ("", setting("eagle3", "chain of 5 by head"))])
    by_place = first_then(plans()["model"], 16, plans()["plain"], ("drafts", "plain"))
    for table in TABLES:
        assert table.refusals(two) and table.refusals(by_context) and table.refusals(by_place)
    assert "by batch size only, the plan by emitted" in words("vllm", by_place)
    assert "one drafter" in words("vllm", two)
    assert "by batch size only" in words("vllm", by_context)


def test_versions() -> None:
    assert open_table("vllm").version == "0.33"
    assert open_table("vllm@0.32.1").asked == "0.32.1"
    assert open_table("tensorrt_llm@1.3.0rc27").version == "1.3"
    assert open_table("vllm@0.3", any_version=True).version == "0.33"
    assert open_table("llama_cpp@b11600").asked == "b11600", "a later build"
    assert open_table("ray_serve").drafters == open_table("vllm@0.29").drafters
    assert open_table("dynamo").drafters == open_table("vllm@0.31").drafters
    for unknown in (
        "vllm@0.3", "vllm@0.320", "sglang@1.0", "sglang@0.5.1", "ray_serve@2.40", "llama_cpp@b1",
    ):  # fmt: skip
        with pytest.raises(UsageError, match="--any-version"):
            open_table(unknown)
    with pytest.raises(UsageError, match="Known: dynamo"):
        open_table("tgi")
    with pytest.raises(UsageError, match='Did you mean "vllm"'):
        open_table("vlm")
    for text in ("trtllm", "tensorrt-llm", "TensorRT-LLM", "tensorrt_llm@1.3"):
        assert open_table(text).engine == "tensorrt_llm"
    assert is_engine("vllm@9") and is_engine("vLLM") and not is_engine("eager")


def test_the_page_says_what_the_tables_say() -> None:
    page = (REPOSITORY / "docs/engines.md").read_text(encoding="utf-8")
    assert page == engines_page(TABLES), "run: specplan engines --markdown > docs/engines.md"
