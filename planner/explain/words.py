"""The explanation of a search in words, made from its data alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from specplan.planner.answer.decision import (
    alternatives,
    backends,
    basis,
    format_loss,
    gain_lines,
    standing,
    warnings,
)
from specplan.planner.answer.names import NO_SPECULATION, advice
from specplan.planner.answer.not_tried import not_tried_lines
from specplan.planner.explain.break_even_words import break_even_words, formula_words
from specplan.planner.explain.choice import load_name, loads_words, pareto_words
from specplan.planner.explain.load import load_words
from specplan.planner.explain.numbers import about, bytes_words, few, percent, seconds_words, short
from specplan.planner.explain.what_if_words import undecided_lines

_MINOR = 0.02
"""Parts of a round below this share are summed."""


def summary_words(explanation: Mapping[str, Any]) -> list[str]:
    """What was decided and among what, in sentences; one per line or list item.

    Args:
        explanation: from `summarise` or `explain`.
    """
    if explanation["verdict"] == "undecided":
        return list(undecided_lines(explanation))
    return [*_decision(explanation), *_points(explanation), *_others(explanation)]


def explain_words(explanation: Mapping[str, Any]) -> list[str]:
    """Sentences, most important first; one per line or list item.

    Args:
        explanation: from `explain`, or read back from a bundle's report.
    """
    if explanation["verdict"] == "undecided":
        return list(undecided_lines(explanation))
    return [*_decision(explanation), *reason_words(explanation)]


def reason_words(explanation: Mapping[str, Any]) -> list[str]:
    """What lies behind a decision: operating points, times, acceptance, break-even, the untried.

    Args:
        explanation: from `explain`, with another verdict than `undecided`.
    """
    return [
        *_points(explanation),
        *_time(explanation),
        *_acceptance(explanation),
        *formula_words(explanation),
        *break_even_words(explanation),
        *_others(explanation),
    ]


def _decision(explanation: Mapping[str, Any]) -> Iterator[str]:
    yield advice(explanation)
    for line in (*gain_lines(explanation), *warnings(explanation)):
        if line.tone != "faint":
            yield f"{line.text.removesuffix('.')}."
    outcomes = backends(explanation)
    if outcomes:
        yield f"Backends: {outcomes}."
    lost = format_loss(explanation)
    if lost:
        yield f"{lost}."
    for one in explanation["backends"]:
        if one["refusal"]:
            yield f"No plan for {one['backend']}: {one['refusal'].removesuffix('.')}."
    names = list(alternatives(explanation))
    if names:
        yield f"Instead, over {NO_SPECULATION}: {' | '.join(names)}."
    yield from (line.text for line in standing(explanation))
    yield f"Based on {'; '.join(line.text for line in basis(explanation))}."


def _points(explanation: Mapping[str, Any]) -> Iterator[str]:
    yield from load_words(explanation)
    yield from _figures(explanation)
    yield from loads_words(explanation)
    yield from pareto_words(explanation)


def _others(explanation: Mapping[str, Any]) -> Iterator[str]:
    yield from not_tried_lines(explanation)
    yield f"Assumptions: {'; '.join(explanation['assumptions'])}."


def _figures(explanation: Mapping[str, Any]) -> Iterator[str]:
    yield "Every estimate stands with its 90 % interval in brackets."
    for figures in few(explanation["chosen"]["by_batch"]):
        outside = " (extrapolated)" if figures["extrapolated"] else ""
        name = load_name(explanation, figures).capitalize()
        yield (
            f"{name}: {about(figures['tokens_per_second'], short)} tokens/s in all, prompts "
            f"included{outside}, "
            f"{about(figures['tokens_per_round'], short)} tokens per round of "
            f"{about(figures['seconds_per_round'], seconds_words)}, first token after "
            f"{about(figures['ttft'], seconds_words)}, "
            f"{about(figures['memory_bytes'], bytes_words)} of memory."
        )


def _time(explanation: Mapping[str, Any]) -> Iterator[str]:
    for entry in few(explanation["time"]["chosen"]):
        parts = entry["parts"]
        least = _MINOR * sum(part["seconds"]["mean"] for part in parts)
        texts = [_part(part) for part in parts if part["seconds"]["mean"] >= least]
        minor = [part["seconds"] for part in parts if part["seconds"]["mean"] < least]
        if minor:
            rest = {end: sum(part[end] for part in minor) for end in ("mean", "low", "high")}
            texts.append(f"the rest {about(rest, seconds_words)}")
        yield f"Time of a round at {load_name(explanation, entry)}: {', '.join(texts)}."


def _part(part: Mapping[str, Any]) -> str:
    name = f"{part['op']} {part['model']}" if part["model"] else part["op"]
    if part["op"] == "round":
        name = "the loop around it"
    times = "" if part["times"] == 1 else f"{part['times']:.4g} x "
    width = f" ({part['width']} tokens)" if part["model"] else ""
    return f"{times}{name}{width} {about(part['seconds'], seconds_words)}"


def _acceptance(explanation: Mapping[str, Any]) -> Iterator[str]:
    for acceptance in explanation["acceptance"]:
        shares = [
            f"{entry['depth']} in {about(entry['accepted_at_least'], percent)}"
            for entry in acceptance["by_depth"]
        ]
        yield (
            f'Of what "{acceptance["drafter"]}" drafts ({acceptance["words"]}), at least so many '
            f"tokens are accepted in this share of the rounds: {', '.join(shares)}."
        )
