"""Reports: golden Markdown, and pages that need no network, with headings, charts and plain words.

Set SPECPLAN_UPDATE_GOLDEN=1 to write the texts in `golden/` anew, and read the difference.
"""

from __future__ import annotations

import json
import os
import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")

from markdown_it import MarkdownIt

from specplan import api
from specplan.ir.errors import UsageError
from specplan.ir.plan import Plan
from specplan.report import render, write_report
from specplan.report.content import MOST_CANDIDATES
from tests.cli.test_screen import HERE as SCREENS
from tests.cli.test_screen import NEVER, answered

GOLDEN = Path(__file__).resolve().parent / "golden"
CASES = ("chat-8b-h100", "undecided", "undecided-grid", "grid", "no-speculation", "own-models")
STEPS = ("specplan explain problem.yaml --show all   (or plan)",)
REASON = re.compile(r"^  - .*\n", re.MULTILINE)
VOID = {"meta", "br", "img", "link", "input", "hr"}
BENCH = {
    "lines": [
        {
            "name": "the plan",
            "tokens_per_second": 123.4,
            "low": 120.0,
            "high": 130.0,
            "against_baseline": 1.7,
            "predicted": {"mean": 118.0, "low": 101.0, "high": 140.0},
            "error": -0.044,
        },
        {
            "name": "transformers <stock>",
            "tokens_per_second": 60.0,
            "low": 59.0,
            "high": 61.0,
            "against_baseline": 0.8,
            "predicted": None,
            "error": None,
        },
    ]
}


class Page(HTMLParser):
    """Elements of a page, which must be closed in order, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"pre", "style", "script"} & set(self.open):
            self.words.append(data)


@cache
def report(case: str) -> tuple[Plan, dict[str, Any]]:
    """A plan and what a bundle's report holds of it."""
    if case == "own-models":  # those of the quickstart, on a device that is the same everywhere
        models = SCREENS.parents[1] / "examples/reference_models"
        result = api.optimize(
            {
                "schema_version": 1,
                "models": {
                    "target": {"path": str(models / "target"), "dtype": "float32"},
                    "drafts": [{"name": "draft", "path": str(models / "draft")}],
                },
                "device": "h100-sxm",
                "backend": "eager",
                "workload": {"batch_sizes": [1], "prompt_tokens": 160, "output_tokens": 128},
                "acceptance": {"draft": [0.8, 0.75, 0.7]},
            }
        )
    else:
        result = answered(case)
    explanation = result.explanation()
    return result.plan, json.loads(
        json.dumps(result.search.as_dict() | {"explanation": explanation})
    )


def page(case: str, **more: Any) -> str:
    return render(".html", *report(case), source="problem.yaml", steps=STEPS, **more)


def without_counts(text: str) -> str:
    """A report with # for how many kinds were not tried, which grows with the methods."""
    section = re.compile(r"^## Not tried$.*?(?=^## )", re.M | re.S)
    return section.sub(lambda part: re.sub(r"\d+", "#", part[0]), text)


@pytest.mark.parametrize("case", CASES)
def test_golden_markdown(case: str) -> None:
    text = render(".md", *report(case), source="problem.yaml", steps=STEPS)
    path = GOLDEN / f"{case}.md"
    assert len(REASON.findall(text)) == len(report(case)[1]["explanation"]["refused"])
    text = without_counts(REASON.sub("", text))  # tests of the planner have the words of each
    if os.environ.get("SPECPLAN_UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
    parsed = MarkdownIt("commonmark").enable("table").parse(text)
    lines = sum(line.startswith("|") for line in text.splitlines())
    kinds = [token.type for token in parsed]
    assert lines == kinds.count("tr_open") + kinds.count("table_open")  # all rows are rows


@pytest.mark.parametrize("case", CASES)
def test_a_page_needs_no_network_and_is_in_the_words_of_users(case: str) -> None:
    text = page(case)
    parsed = Page(text)
    words = "".join(parsed.words)
    assert not NEVER.search(words) and not re.search(r"\bplain decoding\b", words)
    addresses = [value for _, attributes in parsed.seen for key, value in attributes.items()
                 if key in ("src", "href", "xlink:href") and value]  # fmt: skip
    assert all(address.startswith("#") for address in addresses)
    assert "@import" not in text and "url(http" not in text
    charts = [attributes for tag, attributes in parsed.seen if tag == "svg"]
    assert charts and all(one["role"] == "img" and one["aria-label"] for one in charts)
    assert not re.search(r"#010[0-9a-f]{3}\b", text)  # every colour is the page's own
    assert "var(--line-1)" in text and "prefers-color-scheme: dark" in text


@pytest.mark.parametrize("case", CASES)
def test_tables_have_a_heading_for_every_column(case: str) -> None:
    text = page(case)
    tables = re.findall(r"<table.*?</table>", text, re.DOTALL)
    assert tables
    for table in tables:
        heads = re.findall(r"<th ", table[: table.index("</thead>")])
        rows = re.findall(r"<tr.*?</tr>", table[table.index("<tbody>") :], re.DOTALL)
        assert rows and {row.count("<td") for row in rows} == {len(heads)}


def test_a_decision_has_its_charts_at_one_operating_point_too() -> None:
    def labels(case: str) -> list[str]:
        seen = Page(page(case)).seen
        return [str(attributes["aria-label"]) for tag, attributes in seen if tag == "svg"]

    several, one = labels("chat-8b-h100"), labels("own-models")
    assert any("The drafted tree" in label for label in labels("tree-7b-a100"))
    for word in ("by batch size", "by draft tokens per step", "today's", "of the device"):
        assert any(word in label for label in several)
    for word in ("by draft tokens per step", "today's"):
        assert any(word in label for label in one)
    assert labels("undecided") == ["Gain over no speculation by acceptance of a draft token"]


def test_every_candidate_with_an_estimate_is_in_the_table() -> None:
    _, data = report("chat-8b-h100")
    text = page("chat-8b-h100", bench=BENCH)
    assert "transformers &lt;stock&gt;" in text
    table = text[text.index('id="candidates"') :]
    body = table[table.index("<tbody>") : table.index("</tbody>")]
    estimated = [item for item in data["candidates"] if item["estimates"]]
    assert body.count("<tr") == min(len(estimated), MOST_CANDIDATES)
    assert body.count('class="chosen"') == 1
    buttons = table[: table.index("</thead>")].count("<button>")
    assert buttons == 6  # headings are reached and pressed by keyboard


def test_speeds_are_those_of_the_points() -> None:
    """The chart of throughput and the table show decoding alone: 1 / TPOT."""
    text = render(".md", *report("chat-8b-h100"), source="x", bench=BENCH)
    assert "the plan | 123" in text
    for point in report("chat-8b-h100")[1]["explanation"]["points"]:
        assert (
            f"| {1 / point['tpot']['mean']:.3g} | {point['batch'] / point['tpot']['mean']:.0f} |"
            in text
        )


def test_a_file_of_another_kind_is_refused_and_not_written(
    tmp_path: Path,
) -> None:
    with pytest.raises(UsageError, match="cannot be written as"):
        write_report(tmp_path / "report.pdf", *report("chat-8b-h100"), source="bundle")
    assert list(tmp_path.iterdir()) == []


def test_trees_are_drawn_without_crossings() -> None:
    from specplan.report.parts import _places

    parents = [-1, -1, 0, 0, 1, 2, 5]
    places = _places(parents)
    assert places[-1][1] == 0 and min(y for _, y in places.values()) == -4
    for level in {y for _, y in places.values()}:
        nodes = sorted((x, n) for n, (x, y) in places.items() if y == level)
        above = [places[parents[n]][0] for _, n in nodes if n >= 0]
        assert above == sorted(above) and len({x for x, _ in nodes}) == len(nodes)
