"""Findings as files: parsed by what reads them, or held against the shapes they document."""

from __future__ import annotations

import json
import re
from urllib.parse import unquote
from xml.etree import ElementTree

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specplan.checks import outputs
from specplan.checks.findings import Finding, Findings, Metric

NASTY = "50 % | <b>:,\nsecond ``` line\x00 & more"
FINDINGS = Findings(
    "speed",
    (
        Finding("fine", "ok", "all well", metrics=(Metric("seconds", 0.5, "s"),), seconds=1.5),
        Finding("odd", "noted", "worth telling"),
        Finding("open", "undecided", "not known", seconds=0.25),
        Finding(
            NASTY, "regressed", NASTY, details=NASTY, metrics=(Metric("ratio", 1.1, "x", 1.0, 1.2),)
        ),
    ),
)

BENCHER = {  # https://bencher.dev/bmf.json
    "type": "object",
    "additionalProperties": {
        "type": "object",
        "additionalProperties": {
            "type": "object",
            "properties": {
                "value": {"type": "number"},
                "lower_value": {"type": ["number", "null"]},
                "upper_value": {"type": ["number", "null"]},
            },
            "required": ["value"],
            "additionalProperties": False,
        },
    },
}
BENCHMARK = {  # github-action-benchmark, README "customSmallerIsBetter"
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "unit": {"type": "string"},
            "value": {"type": "number"},
            "range": {"type": "string"},
            "extra": {"type": "string"},
        },
        "required": ["name", "unit", "value"],
        "additionalProperties": False,
    },
}


def test_junit_counts_what_failed() -> None:
    root = ElementTree.fromstring(outputs.junit(FINDINGS).encode())
    (suite,) = root.findall("testsuite")
    counts = {name: suite.get(name) for name in ("tests", "failures", "skipped", "errors", "time")}
    assert counts == {
        "tests": "4", "failures": "1", "skipped": "1", "errors": "0", "time": "1.750",
    }  # fmt: skip
    cases = suite.findall("testcase")
    assert [case.get("name") for case in cases[:3]] == ["fine", "odd", "open"]
    assert [case.find("failure") is not None for case in cases] == [False, False, False, True]
    assert [case.find("skipped") is not None for case in cases] == [False, False, True, False]
    failure = cases[3].find("failure")
    assert failure is not None and failure.text == NASTY.replace("\x00", "?")


def test_json_keeps_the_shapes_that_readers_document() -> None:
    bencher, benchmark = outputs.bencher_json(FINDINGS), outputs.benchmark_json(FINDINGS)
    jsonschema.validate(json.loads(json.dumps(bencher)), BENCHER)
    jsonschema.validate(json.loads(json.dumps(benchmark)), BENCHMARK)
    assert bencher["fine"] == {"seconds": {"value": 0.5}}
    assert bencher[NASTY]["ratio"] == {"value": 1.1, "lower_value": 1.0, "upper_value": 1.2}
    assert [entry["name"] for entry in benchmark] == ["fine: seconds", f"{NASTY}: ratio"]
    assert benchmark[1]["range"] == "1 to 1.2"


def read_commands(text: str) -> list[tuple[str, str, str]]:
    """Level, title and message as the GitHub runner reads workflow commands."""
    commands = []
    for line in text.splitlines():
        match = re.fullmatch(r"::(\w+) title=([^,:]*)::(.*)", line)
        assert match is not None, line
        commands.append((match[1], unquote(match[2]), unquote(match[3])))
    return commands


def test_annotations_are_one_line_each() -> None:
    commands = read_commands(outputs.workflow_commands(FINDINGS))
    assert [level for level, _, _ in commands] == ["notice", "warning", "error"]
    assert commands[2][1] == f"specplan check speed: {NASTY}"
    assert commands[2][2] == f"{NASTY}\n{NASTY}"


@given(st.text(alphabet=st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp")), max_size=60))
def test_any_text_survives(text: str) -> None:
    findings = Findings("plans", (Finding("name", "regressed", "summary", details=text),))
    ((_, _, message),) = read_commands(outputs.workflow_commands(findings))
    assert message == "\n".join(filter(None, ("summary", text)))
    failure = ElementTree.fromstring(outputs.junit(findings).encode()).find(".//failure")
    assert failure is not None
    assert (failure.text or "") == re.sub("[\ufffe\uffff]", "?", text)


def test_markdown_is_a_table_and_fenced_details() -> None:
    text = outputs.markdown(FINDINGS)
    rows = [line for line in text.splitlines() if line.startswith("| ") and "what" not in line]
    assert len(rows) == 4
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 4 for row in rows)
    assert "<b>" not in text.split("````diff")[0]
    assert text.count("````") == 2 and "1 regressed, 1 undecided, 1 noted, 1 ok" in text


def test_the_verdict_leaves_out_what_there_is_none_of() -> None:
    assert Findings("plans", (FINDINGS.items[0],)).verdict == "specplan check plans: 1 ok"


@pytest.mark.parametrize("status", ["ok", "noted", "undecided", "regressed"])
def test_only_regressions_regress(status: str) -> None:
    findings = Findings("plans", (Finding("x", status, "y"),))  # type: ignore[arg-type]
    assert bool(findings.regressed) == (status == "regressed")
