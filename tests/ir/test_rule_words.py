"""The page on acceptance rules, and what the command line says of them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from specplan.backends.registry import backends_by_rule
from specplan.cli.main import program
from specplan.ir.errors import UsageError
from specplan.ir.tables.acceptance import RULE_ENTRIES, list_rules
from specplan.ir.tables.builtin import BUILTIN
from specplan.pages.rules import read_losses, rules_page

LOSSES = "benchmarks/results/rule_losses.json"


def test_the_page_is_that_of_the_code_and_of_the_results(repository: Path) -> None:
    page = (repository / "docs/rules.md").read_text(encoding="utf-8")
    runners = backends_by_rule(rule.name for rule in list_rules())
    losses = read_losses(repository / LOSSES)
    assert page == rules_page(list_rules(), runners, losses), (
        f"run: specplan methods --rules --markdown --measured {LOSSES} > docs/rules.md"
    )
    asked = ["methods", "--rules", "--markdown", "--measured", str(repository / LOSSES)]
    assert CliRunner().invoke(program(), asked).stdout == page


def test_every_lossy_rule_was_measured_and_the_page_says_what(repository: Path) -> None:
    losses = read_losses(repository / LOSSES)
    lossy = {rule.name for rule in RULE_ENTRIES if rule.lossless == "never"}
    assert {each["rule"] for each in losses["rules"]} == lossy | {"token", "all"}
    changed = [each | {"total_variation": 0.7654321} for each in losses["rules"]]
    page = rules_page(list_rules(), {}, {**losses, "rules": changed})
    assert page.count("| .765 |") == len(changed)
    assert "| .765 |" not in rules_page(list_rules(), {})


def test_files_that_hold_no_losses_are_refused(tmp_path: Path) -> None:
    for document in ({"date": "2026-11-23"}, {"date": "2026-11-23", "places": 1, "rules": []}):
        (tmp_path / "a.json").write_text(json.dumps(document))
        with pytest.raises(UsageError, match="no losses of rules"):
            read_losses(tmp_path / "a.json")


def test_every_rule_says_what_a_reader_needs() -> None:
    assert {rule.name for rule in RULE_ENTRIES} == set(BUILTIN.names("rule"))
    for rule in RULE_ENTRIES:
        assert rule.summary and re.search(r"\b20\d\d\b", rule.source), rule.name
        assert (rule.loss is not None) == (rule.lossless == "never")


def test_methods_and_rules_are_listed_together() -> None:
    document = json.loads(CliRunner().invoke(program(), ["methods", "--json"]).stdout)
    assert list(document) == ["methods", "not_here", "rules"]
    rules = {rule["name"]: rule for rule in document["rules"]}
    assert len(rules) >= 14
    for rule in rules.values():
        assert rule["paper"] and isinstance(rule["needs"], list)
        assert rule["lossless"] == (rule["keeps_the_law"] != "never") == (rule["loss"] is None)
    assert rules["token"]["needs"] == ["target rows", "draft laws", "uniforms"]
    assert rules["greedy"]["keeps_the_law"] == "at temperature 0"
    assert rules["typical"]["parameters"] == {"epsilon": 0.09, "delta": 0.3}
    alone = json.loads(CliRunner().invoke(program(), ["methods", "--rules", "--json"]).stdout)
    assert alone == {"rules": document["rules"]}
    text = CliRunner().invoke(program(), ["methods"]).stdout
    assert all(f" {name} " in text or f"{name} " in text for name in ("k_seq", "draft_model"))
