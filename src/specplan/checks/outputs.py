"""Findings in the forms that people and continuous integration read.

Written for: GitHub workflow commands and step summaries, the JUnit XML that GitLab, Jenkins and
GitHub actions read, github-action-benchmark 1.22 (`customSmallerIsBetter`), Bencher 0.6 (Bencher
Metric Format).
"""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

from specplan.checks.findings import Finding, Findings, Metric, Status

MARKS: dict[Status, str] = {"ok": "✅", "noted": "ℹ️", "undecided": "❔", "regressed": "❌"}
LEVELS: dict[Status, str] = {"noted": "notice", "undecided": "warning", "regressed": "error"}
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def markdown(findings: Findings) -> str:
    """A table, and details below it, as a step summary shows them."""
    rows = [f"| {MARKS[i.status]} | {_cell(i.name)} | {_cell(i.summary)} |" for i in findings.items]
    head = [f"### {findings.verdict}", "", "| | what | finding |", "|---|---|---|"]
    more: list[str] = []
    for item in findings.items:
        if item.details:
            fence = "`" * max(3, 1 + max(map(len, re.findall("`+", item.details)), default=0))
            more += ["", f"<details><summary>{_html(item.name)}</summary>", "", f"{fence}diff"]
            more += [item.details, fence, "", "</details>"]
    return "\n".join([*head, *rows, *more]) + "\n"


def workflow_commands(findings: Findings) -> str:
    """One GitHub workflow command per finding that is not ok; empty when all are."""
    lines = []
    for item in findings.items:
        if item.status in LEVELS:
            title = _property(f"specplan check {findings.kind}: {item.name}")
            text = _data("\n".join(filter(None, (item.summary, item.details))))
            lines.append(f"::{LEVELS[item.status]} title={title}::{text}\n")
    return "".join(lines)


def junit(findings: Findings) -> str:
    """One test case per finding: a failure, skipped where undecided, or passed."""
    suite = ElementTree.Element(
        "testsuite",
        name=f"specplan check {findings.kind}",
        tests=str(len(findings.items)),
        failures=str(len(findings.regressed)),
        errors="0",
        skipped=str(sum(item.status == "undecided" for item in findings.items)),
        time=f"{sum(item.seconds for item in findings.items):.3f}",
    )
    for item in findings.items:
        suite.append(_case(findings.kind, item))
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def benchmark_json(findings: Findings) -> list[dict[str, Any]]:
    """Entries for github-action-benchmark's tool `customSmallerIsBetter`."""
    return [
        {
            "name": f"{item.name}: {metric.name}",
            "unit": metric.unit,
            "value": metric.value,
            **({} if metric.low is None else {"range": f"{metric.low:.6g} to {metric.high:.6g}"}),
            "extra": item.summary,
        }
        for item in findings.items
        for metric in item.metrics
    ]


def bencher_json(findings: Findings) -> dict[str, dict[str, dict[str, float]]]:
    """Bencher Metric Format: benchmark, measure, value with bounds."""
    return {
        item.name: {metric.name: _bounds(metric) for metric in item.metrics}
        for item in findings.items
        if item.metrics
    }


def _bounds(metric: Metric) -> dict[str, float]:
    known = {"value": metric.value, "lower_value": metric.low, "upper_value": metric.high}
    return {key: value for key, value in known.items() if value is not None}


def _case(kind: str, item: Finding) -> ElementTree.Element:
    case = ElementTree.Element(
        "testcase",
        name=_xml(item.name),
        classname=f"specplan.check.{kind}",
        time=f"{item.seconds:.3f}",
    )
    if item.status == "regressed":
        ElementTree.SubElement(case, "failure", message=_xml(item.summary)).text = _xml(
            item.details
        )
    elif item.status == "undecided":
        ElementTree.SubElement(case, "skipped", message=_xml(item.summary))
    text = "\n".join(filter(None, (item.summary, item.details)))
    ElementTree.SubElement(case, "system-out").text = _xml(text)
    return case


def _cell(text: str) -> str:
    return _html(text).replace("|", "\\|").replace("\n", " ")


def _html(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _data(text: str) -> str:
    """Escaped as the text of a workflow command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """Escaped as a property of a workflow command."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _xml(text: str) -> str:
    """Text without the characters that XML 1.0 excludes."""
    return _NO_XML.sub("?", text)
