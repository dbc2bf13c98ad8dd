"""Reports hold the decision, need no network, and are well formed."""

from __future__ import annotations

import json
import re
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")

from markdown_it import MarkdownIt

from specplan.ir.errors import UsageError
from specplan.ir.plan import Plan
from specplan.planner import explain, search
from specplan.report import render, write_report
from specplan.report.content import MOST_CANDIDATES
from tests.planner.example_facts import example_facts, workload

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
        self.words.append(data)


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, dict[str, Any]]:
    """A decision over batches, as a bundle stores it."""
    folder = tmp_path_factory.mktemp("facts")
    facts = example_facts(folder, workload=workload(batch_sizes=[1, 4, 16, 64]))
    result = search(facts)
    assert result.chosen.plan is not None
    report = result.as_dict() | {"explanation": explain(result)}
    return result.chosen.plan, json.loads(json.dumps(report))


def test_a_page_holds_the_decision_and_needs_no_network(
    planned: tuple[Plan, dict[str, Any]],
) -> None:
    text = render(".html", *planned, source="bundle", bench=BENCH)
    page = Page(text)
    words = "".join(page.words)
    assert "Chosen: " in words and "Taken for granted" in words and "tokens per second" in words
    assert "transformers <stock>" in words  # escaped in the text
    addresses = [value for _, held in page.seen for key, value in held.items()
                 if key in ("src", "href", "xlink:href") and value]  # fmt: skip
    assert all(address.startswith("#") for address in addresses)
    assert "@import" not in text and "url(http" not in text
    charts = [held for tag, held in page.seen if tag == "svg"]
    assert len(charts) >= 2 and all(held["role"] == "img" for held in charts)
    assert not re.search(r"#010[0-9a-f]{3}\b", text)  # every colour is the page's own
    assert "var(--chosen)" in text and "prefers-color-scheme: dark" in text


def test_every_candidate_with_a_price_is_in_the_table(
    planned: tuple[Plan, dict[str, Any]],
) -> None:
    _, report = planned
    text = render(".html", *planned, source="bundle")
    table = text[text.index('id="candidates"') :]
    body = table[table.index("<tbody>") : table.index("</tbody>")]
    priced = [item for item in report["candidates"] if item["estimates"]]
    assert body.count("<tr") == min(len(priced), MOST_CANDIDATES)
    assert body.count('class="chosen"') <= 1
    chosen = report["candidates"][report["chosen"]]
    assert escape(chosen["words"]) in text
    buttons = table[: table.index("</thead>")].count("<button>")
    assert buttons == 7  # headings are reached and pressed by keyboard


def test_markdown_says_the_same(planned: tuple[Plan, dict[str, Any]]) -> None:
    text = render(".md", *planned, source="bundle", bench=BENCH)
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    kinds = [token.type for token in tokens]
    headings = [t.content for t, before in zip(tokens[1:], tokens, strict=False)
                if before.type == "heading_open"]  # fmt: skip
    assert "Candidates" in headings and "Where the time goes" in headings
    assert kinds.count("table_open") >= 5
    assert "Chosen: " in text and "the plan | 123" in text


def test_what_was_not_measured_is_said_to_be_open(planned: tuple[Plan, dict[str, Any]]) -> None:
    for form in (".html", ".md"):
        assert "Not measured yet" in render(form, *planned, source="bundle")


def test_a_file_of_another_kind_is_refused_and_not_written(
    planned: tuple[Plan, dict[str, Any]], tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="cannot be written as"):
        write_report(tmp_path / "report.pdf", *planned, source="bundle")
    assert list(tmp_path.iterdir()) == []


def test_trees_are_drawn_without_crossings() -> None:
    from specplan.report.charts import _places

    parents = [-1, -1, 0, 0, 1, 2, 5]
    places = _places(parents)
    assert places[-1][1] == 0 and min(y for _, y in places.values()) == -4
    for level in {y for _, y in places.values()}:
        nodes = sorted((x, n) for n, (x, y) in places.items() if y == level)
        above = [places[parents[n]][0] for _, n in nodes if n >= 0]
        assert above == sorted(above) and len({x for x, _ in nodes}) == len(nodes)
