"""The page on acceptance rules, and what the command line says of them."""

from __future__ import annotations

import json
import re
from pathlib import Path

from typer.testing import CliRunner

from specplan.backends.registry import backends_by_rule
from specplan.cli.main import app
from specplan.ir.acceptance import RULE_ENTRIES, list_rules
from specplan.ir.rule_words import rules_page
from specplan.ir.tables import BUILTIN


def test_the_page_is_that_of_the_code() -> None:
    page = (Path(__file__).parents[2] / "docs/rules.md").read_text(encoding="utf-8")
    runners = backends_by_rule(rule.name for rule in list_rules())
    assert page == rules_page(list_rules(), runners), (
        "run: specplan methods --rules --markdown > docs/rules.md"
    )


def test_every_rule_says_what_a_reader_needs() -> None:
    assert {rule.name for rule in RULE_ENTRIES} == set(BUILTIN.names("rule"))
    for rule in RULE_ENTRIES:
        assert rule.summary and re.search(r"\b20\d\d\b", rule.source), rule.name
        assert (rule.loss is not None) == (rule.lossless == "never")


def test_methods_and_rules_are_listed_together() -> None:
    document = json.loads(CliRunner().invoke(app, ["methods", "--json"]).stdout)
    assert list(document) == ["methods", "rules"]
    rules = {rule["name"]: rule for rule in document["rules"]}
    assert len(rules) >= 14
    for rule in rules.values():
        assert rule["paper"] and isinstance(rule["needs"], list)
        assert rule["lossless"] == (rule["keeps_the_law"] != "never") == (rule["loss"] is None)
    assert rules["token"]["needs"] == ["target rows", "draft laws", "uniforms"]
    assert rules["greedy"]["keeps_the_law"] == "at temperature 0"
    assert rules["typical"]["parameters"] == {"epsilon": 0.09, "delta": 0.3}
    alone = json.loads(CliRunner().invoke(app, ["methods", "--rules", "--json"]).stdout)
    assert alone == {"rules": document["rules"]}
    text = CliRunner().invoke(app, ["methods"]).stdout
    assert all(f" {name} " in text or f"{name} " in text for name in ("k_seq", "draft_model"))
