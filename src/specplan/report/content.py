"""What a report says, section by section, made from a bundle's report alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from specplan.ir.plan import Plan
from specplan.ir.text.printer import print_plan
from specplan.planner.explain.break_even_words import break_even_words, formula_words
from specplan.planner.explain.choice import confidence_words, pareto_words
from specplan.planner.explain.load import load_words
from specplan.planner.explain.numbers import about, bytes_words, seconds_words, short
from specplan.planner.explain.words import assumed_words, backends_words, verdict_words

MOST_CANDIDATES = 400
"""Rows of the table of candidates, best first."""


def content(
    plan: Plan,
    report: Mapping[str, Any],
    source: str,
    bench: Mapping[str, Any] | None,
    *,
    charts: bool,
) -> dict[str, Any]:
    """Everything that the templates show.

    Args:
        plan: the chosen plan.
        report: as a bundle holds it, `explanation` included.
        source: the bundle or problem, as commands name it.
        bench: what `specplan bench --json` measured of it.
        charts: draw pictures too, as SVG; Markdown has none.
    """
    explanation = report["explanation"]
    content: dict[str, Any] = {
        "title": plan.name,
        "device": report["device"]["name"],
        "objective": explanation["objective"],
        "decision": verdict_words(explanation),
        "more": [
            *assumed_words(explanation),
            *backends_words(explanation),
            *confidence_words(explanation),
            *load_words(explanation),
            *pareto_words(explanation),
        ],
        "loads": [_load(figures) for figures in explanation["chosen"]["by_batch"]],
        "best": [_best(load) for load in explanation["loads"]],
        "measured": [] if bench is None else [_contender(row) for row in bench["lines"]],
        "time": [_time(entry) for entry in explanation["time"]["chosen"]],
        "acceptance": explanation["acceptance"],
        "break_even": [*formula_words(explanation), *break_even_words(explanation)],
        "candidates": list(_candidates(report)),
        "refused": explanation["refused"],
        "assumptions": explanation["assumptions"],
        "plan": print_plan(plan),
        "source": source,
        "about": about,
        "short": short,
        "charts": {},
    }
    if charts:
        from specplan.report.charts import speed_chart, time_chart, tree_chart

        content["charts"] = {
            "speed": speed_chart(explanation),
            "time": time_chart(explanation),
            "trees": [tree_chart(part) for part in explanation["acceptance"] if _branches(part)],
        }
    return content


def _branches(part: Mapping[str, Any]) -> bool:
    """Whether there is a static tree to draw, and not a mere chain."""
    parents = part.get("parents") or ()
    return len(set(parents)) < len(parents)


def _load(figures: Mapping[str, Any]) -> dict[str, Any]:
    """One row of what is predicted."""
    return {
        "batch": figures["batch"],
        "prompt_tokens": figures["prompt_tokens"],
        "tokens_per_second": about(figures["tokens_per_second"], short),
        "tokens_per_round": about(figures["tokens_per_round"], short),
        "round": about(figures["seconds_per_round"], seconds_words),
        "ttft": about(figures["ttft"], seconds_words),
        "memory": about(figures["memory_bytes"], bytes_words),
        "extrapolated": figures["extrapolated"],
    }


def _best(load: Mapping[str, Any]) -> dict[str, Any]:
    """The best plan of one load alone."""
    plan = load["method"] and f"{load['method']}, {load['words']}"
    return {
        "batch": load["batch"],
        "prompt_tokens": load["prompt_tokens"],
        "plan": plan or "none keeps the limits",
        "speedup": "" if load["speedup"] is None else about(load["speedup"], short),
    }


def _time(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Where the time of a round goes at one load."""
    whole = sum(part["seconds"]["mean"] for part in entry["parts"])
    return {
        "batch": entry["batch"],
        "prompt_tokens": entry["prompt_tokens"],
        "parts": [
            {
                "name": " ".join(filter(None, (part["op"], part["model"]))),
                "times": round(part["times"], 2),
                "width": part["width"],
                "seconds": about(part["seconds"], seconds_words),
                "share": part["seconds"]["mean"] / whole if whole else 0.0,
            }
            for part in entry["parts"]
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
        "against_plain": short(line["against_baseline"]),
        "predicted": "" if line["predicted"] is None else about(line["predicted"], short),
        "error": "" if line["error"] is None else f"{line['error']:+.1%}",
    }


def _candidates(report: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Candidates with a price, fastest first at the first load."""
    priced = [item for item in report["candidates"] if item["estimates"]]
    for item in sorted(priced, key=_seconds_per_token)[:MOST_CANDIDATES]:
        first = item["estimates"][0]
        yield {
            "method": item["method"],
            "words": item["words"],
            "chosen": item is report["candidates"][report["chosen"]],
            "seconds_per_token": _seconds_per_token(item),
            "tokens_per_round": first["tokens_per_round"]["mean"],
            "seconds_per_round": first["seconds_per_round"]["median"],
            "memory_bytes": first["memory_bytes"]["mean"],
            "refusal": item["refusal"] or item["unsupported"] or "",
        }


def _seconds_per_token(item: Mapping[str, Any]) -> float:
    return float(item["estimates"][0]["seconds_per_token"]["median"])
