"""`specplan methods`: what the search may choose from, and by which rules tokens are accepted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specplan.cli.options import JsonOption
from specplan.cli.output import named, print_json, print_record, print_table

if TYPE_CHECKING:
    from specplan.pages.methods import Engines
    from specplan.planner.method import Method


def methods(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="Show this method or rule in full.", show_default=False
        ),
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the page docs/methods.md.")
    ] = False,
    rules: Annotated[
        bool,
        typer.Option("--rules", help="Only acceptance rules; with --markdown, docs/rules.md."),
    ] = False,
    measured: Annotated[
        Path | None,
        typer.Option(
            help="With --markdown: the output of `benchmarks/methods.py --json`, or with --rules "
            "of `benchmarks/rule_losses.py --json`.",
            exists=True,
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """List the drafting methods and acceptance rules, or show one."""
    from specplan import api
    from specplan.backends.engines.registry import engines_by_draft
    from specplan.backends.registry import backends_by_rule
    from specplan.ir.errors import UsageError
    from specplan.ir.tables.acceptance import list_rules
    from specplan.pages.methods import method_as_dict
    from specplan.pages.rules import rule_as_dict

    all_methods, engines = api.list_methods(), engines_by_draft()
    all_rules, runners = list_rules(), backends_by_rule(rule.name for rule in list_rules())
    if measured is not None and not markdown:
        raise UsageError(
            "only the pages print measured results", where="--measured", remedy="Add --markdown."
        )
    if name is not None:
        rows = [method_as_dict(method, engines) for method in all_methods]
        rows += [rule_as_dict(rule, runners) for rule in all_rules]
        (record,) = named(name, rows, "method or rule")
        if json:
            print_json(record)
        else:
            print_record(record)
        return
    if markdown and rules:
        _print_rules_page(runners, measured)
    elif markdown:
        _print_methods_page(all_methods, engines, measured)
    elif json:
        document = {} if rules else _document(all_methods, engines)
        print_json(document | {"rules": [rule_as_dict(rule, runners) for rule in all_rules]})
    else:
        if not rules:
            _print_methods(all_methods, engines)
        _print_rules(runners)


def _document(methods: Sequence[Method[Any]], engines: Engines) -> dict[str, Any]:
    """The methods, and the published systems that none of them runs."""
    from specplan.pages.methods import method_as_dict
    from specplan.pages.published import not_here

    listed = [method_as_dict(method, engines) for method in methods]
    return {"methods": listed, "not_here": not_here(methods)}


def _print_methods_page(
    methods: Sequence[Method[Any]], engines: Engines, measured: Path | None
) -> None:
    from specplan.pages.methods import methods_page, read_results

    print(methods_page(methods, engines, read_results(measured) if measured else None), end="")


def _print_rules_page(runners: dict[str, tuple[str, ...]], measured: Path | None) -> None:
    from specplan.ir.tables.acceptance import list_rules
    from specplan.pages.rules import read_losses, rules_page

    print(rules_page(list_rules(), runners, read_losses(measured) if measured else None), end="")


def _print_methods(methods: Sequence[Method[Any]], engines: Engines) -> None:
    from specplan.pages.methods import drafts_from, output_words

    print_table(
        ("method", "drafts from", "output", "status", "engines", "what it does"),
        [
            (
                method.name,
                drafts_from(method),
                output_words(method),
                ", ".join(method.status),
                ", ".join(engines.get((method.engine_drafter, method.shape), ())) or "-",
                method.summary,
            )
            for method in methods
        ],
    )


def _print_rules(runners: dict[str, tuple[str, ...]]) -> None:
    from specplan.ir.tables.acceptance import list_rules
    from specplan.pages.rules import judges_words, keeps_words, needs

    print_table(
        ("rule", "judges", "keeps the law", "needs", "runs on", "what it does", "source"),
        [
            (
                rule.name,
                judges_words(rule),
                keeps_words(rule),
                ", ".join(needs(rule)) or "-",
                ", ".join(runners[rule.name]) or "-",
                rule.summary,
                rule.source,
            )
            for rule in list_rules()
        ],
    )
