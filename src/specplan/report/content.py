"""What a report says, section by section, made from a bundle's report alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from specplan.ir.plan import Plan
from specplan.ir.text.printer import print_plan
from specplan.planner.answer.decision import (
    Line,
    alternatives,
    backends,
    basis,
    capacity,
    format_loss,
    gain_lines,
    standing,
    warnings,
)
from specplan.planner.answer.names import (
    NO_SPECULATION,
    advice,
    milliseconds,
    plan_name,
    problem_name,
)
from specplan.planner.answer.not_tried import causes, not_tried_line
from specplan.planner.answer.points import (
    QUANTITY_HEADS,
    Matrix,
    columns,
    matrices,
    prompts_of,
    quantities,
    remarks,
)
from specplan.planner.answer.quality import front_table
from specplan.planner.explain.break_even_words import paying_ranges
from specplan.planner.explain.numbers import about, bytes_words, counted, few, seconds_words, short
from specplan.planner.explain.what_if_words import (
    EXPLORE_COMMAND,
    WHOLE_TABLE,
    drafters_of,
    import_command,
    no_decision,
    table_cells,
)
from specplan.report.parts import part_name

MOST_CANDIDATES = 400
"""Rows of the table of candidates, best first."""


def content(
    plan: Plan,
    report: Mapping[str, Any],
    source: str,
    steps: Sequence[str],
    bench: Mapping[str, Any] | None,
    *,
    charts: bool,
) -> dict[str, Any]:
    """Everything that the templates show.

    Args:
        plan: the chosen plan.
        report: as a bundle holds it, `explanation` included.
        source: the bundle or problem, as commands name it.
        steps: commands to go on with.
        bench: what `specplan bench --json` measured of it.
        charts: draw pictures too, as SVG; Markdown has none.
    """
    explanation = report["explanation"]
    shared = {
        "problem": problem_name(explanation),
        "not_tried": not_tried_line(explanation),
        "causes": list(causes(explanation)),
        "assumptions": explanation["assumptions"],
        "undecided": explanation["verdict"] == "undecided",
    }
    if shared["undecided"]:
        return shared | _undecided(explanation, source, charts)
    return shared | {
        "headline": advice(explanation),
        "gain": list(gain_lines(explanation)),
        "warnings": list(warnings(explanation)),
        **_numbers(explanation),
        "alternatives": list(alternatives(explanation)),
        "quality": front_table(explanation.get("quality")),
        "no_speculation": NO_SPECULATION,
        "notes": _notes(explanation),
        "basis": list(basis(explanation)),
        "measured": [] if bench is None else [_contender(row) for row in bench["lines"]],
        "time": [_time(entry) for entry in few(explanation["time"]["chosen"])],
        "acceptance": [_acceptance(part) for part in explanation["acceptance"]],
        "break_even": list(paying_ranges(explanation)),
        "candidates": list(_candidates(report)),
        "steps": steps,
        "plan": print_plan(plan),
        "charts": _charts(report) if charts else {},
    }


def _charts(report: Mapping[str, Any]) -> dict[str, Any]:
    from specplan.report import charts
    from specplan.report.parts import time_chart, tree_chart

    explanation = report["explanation"]
    drawn = (
        ("Time per output token by batch size. Bands are 90 % intervals.",
         charts.tpot_chart(explanation)),
        ('Time per output token by draft tokens per step. Circles mark "with"; K = 0 is no '
         "speculation.", charts.length_chart(report)),
        ("Gain over no speculation by tokens per step, prompt included. It pays above the dashed "
         "line; marks are today's acceptance.", charts.acceptance_chart(explanation)),
        ("Throughput against speed per user while decoding; numbers are requests. Up and to the "
         "right is better.", charts.pareto_chart(report)),
        ("Speed against loss. Up and to the left is better; left of the dashed line keeps the "
         "limit.", charts.quality_chart(explanation)),
    )  # fmt: skip
    return {
        "numbers": [(caption, chart) for caption, chart in drawn if chart is not None],
        "time": time_chart(explanation),
        "trees": [tree_chart(part) for part in explanation["acceptance"] if _branches(part)],
    }


def _undecided(explanation: Mapping[str, Any], source: str, charts: bool) -> dict[str, Any]:
    """The answer where no acceptance is known: what it would take, and how to go on."""
    first = drafters_of(explanation)[0]
    pictures: list[tuple[str, str]] = []
    if charts:
        from specplan.report.charts import what_if_chart

        caption = "Gain over no speculation by acceptance of a draft token, prompt included."
        pictures = [(caption, what_if_chart(explanation))]
    head, *rows = table_cells(explanation["what_if"])
    return {
        "headline": no_decision(explanation),
        "table_words": " ".join(WHOLE_TABLE),
        "what_if": {"head": head, "rows": rows},
        "charts": {"numbers": pictures},
        "steps": [
            import_command(first),
            f"specplan optimize {source} --set acceptance.{first}={first}.json",
            f"specplan optimize {source} --set acceptance.{first}=0.75   (assumed, and marked so)",
            EXPLORE_COMMAND.replace("PROBLEM", source),
        ],
    }


def _numbers(explanation: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of operating points: one, by batch size, or a grid with all behind it."""
    points, prompts = explanation["points"], prompts_of(explanation)
    shown = columns(explanation, points)
    head = [column.name for column in shown]
    rows = [list(row) for row in zip(*(column.cells for column in shown), strict=True)]
    if len(prompts) > 1:
        head = ["prompt", *head]
        rows = [[str(p["prompt_tokens"]), *row] for p, row in zip(points, rows, strict=True)]
    every = {"title": "Every operating point", "head": head, "rows": rows}
    behind: list[dict[str, Any]] = []
    if len(points) == 1:
        rows = [
            [", ".join(filter(None, (name, remark))), *cells]
            for name, *cells, remark in quantities(explanation, points[0])
        ]
        tables = [{"title": "", "head": QUANTITY_HEADS[:-1], "rows": rows}]
    elif len(prompts) == 1:
        tables = [every | {"title": ""}]
    else:
        batches = sorted({point["batch"] for point in points})
        tables, behind = [_matrix(one) for one in matrices(explanation, batches, prompts)], [every]
    return {
        "tables": tables,
        "remarks": list(remarks(explanation, whole=True)),
        "behind": [*behind, _intervals(explanation)],
    }


def _matrix(matrix: Matrix) -> dict[str, Any]:
    return {
        "title": f"{matrix.title}; rows requests, columns prompt tokens",
        "head": ["requests", *map(str, matrix.prompts)],
        "rows": [[str(batch), *cells] for batch, cells in matrix.rows],
    }


def _intervals(explanation: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers that the tables round, with the ends of their 90 % intervals."""
    keys = (
        ("plain_tpot", "TPOT without", seconds_words),
        ("tpot", "TPOT with", seconds_words),
        ("decode_gain", "decode gain", short),
        ("request_gain", "request gain", short),
        ("tokens_per_step", "tokens per step", short),
        ("ttft", "TTFT", seconds_words),
        ("memory_bytes", "memory in all", bytes_words),
    )
    return {
        "title": "The same with 90 % intervals",
        "head": ["requests", "prompt", *(name for _, name, _ in keys)],
        "rows": [
            [str(point["batch"]), str(point["prompt_tokens"]),
             *(about(point[key], words) for key, _, words in keys)]
            for point in explanation["points"]
        ],
    }  # fmt: skip


def _notes(explanation: Mapping[str, Any]) -> list[Line]:
    """What the plan bears, on which backends, how sure the choice is, and what it is worth."""
    every = capacity(explanation), backends(explanation), format_loss(explanation)
    texts = filter(None, every)
    return [*(Line(f"{text[0].upper()}{text[1:]}.") for text in texts), *standing(explanation)]


def _branches(part: Mapping[str, Any]) -> bool:
    """Whether there is a static tree to draw, and not a mere chain."""
    parents = part.get("parents") or ()
    return len(set(parents)) < len(parents)


def _time(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Where the time of a step goes at one operating point."""
    whole = sum(part["seconds"]["mean"] for part in entry["parts"])
    return {
        "at": f"{counted(entry['batch'], 'request')}, {entry['prompt_tokens']} prompt tokens",
        "parts": [
            {
                "name": part_name(part),
                "times": round(part["times"], 2),
                "width": part["width"],
                "seconds": about(part["seconds"], seconds_words),
                "share": part["seconds"]["mean"] / whole if whole else 0.0,
            }
            for part in entry["parts"]
        ],
    }


def _acceptance(part: Mapping[str, Any]) -> dict[str, Any]:
    """How many draft tokens steps accept."""
    return {
        "drafter": part["drafter"],
        "rows": [
            [
                str(level["depth"]),
                "" if level["nodes"] is None else str(level["nodes"]),
                about(level["accepted_at_least"], lambda share: f"{100 * share:.0f} %"),
            ]
            for level in part["by_depth"]
        ],
    }


MEASURED = frozenset(
    ("name", "tokens_per_second", "low", "high", "against_baseline", "predicted", "error")
)
"""What is read of each line that `specplan bench --json` printed."""


def _contender(line: Mapping[str, Any]) -> dict[str, Any]:
    """One row of what `specplan bench` measured."""
    return {
        "name": line["name"],
        "tokens_per_second": short(line["tokens_per_second"]),
        "quartiles": f"{short(line['low'])} to {short(line['high'])}",
        "gain": short(line["against_baseline"]),
        "predicted": "" if line["predicted"] is None else about(line["predicted"], short),
        "error": "" if line["error"] is None else f"{line['error']:+.1%}",
    }


def _candidates(report: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Candidates with an estimate, fastest first at the first operating point."""
    estimated = [item for item in report["candidates"] if item["estimates"]]
    for item in sorted(estimated, key=_seconds_per_token)[:MOST_CANDIDATES]:
        first = item["estimates"][0]
        yield {
            "plan": plan_name(item),
            "chosen": item is report["candidates"][report["chosen"]],
            "cells": [
                milliseconds(_seconds_per_token(item)),
                f"{first['tokens_per_round']['mean']:.2f}",
                milliseconds(first["seconds_per_round"]["median"]),
                f"{first['memory_bytes']['mean'] / 1e9:.3g}",
            ],
            "why_not": item["refusal"] or item["unsupported"] or "",
        }


def _seconds_per_token(item: Mapping[str, Any]) -> float:
    return float(item["estimates"][0]["seconds_per_token"]["median"])
