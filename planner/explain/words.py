"""The explanation of a search in words, made from its data alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from specplan.planner.explain.break_even_words import break_even_words, formula_words
from specplan.planner.explain.choice import (
    confidence_words,
    load_name,
    loads_words,
    pareto_words,
    runner_up_words,
)
from specplan.planner.explain.load import load_words
from specplan.planner.explain.numbers import about, bytes_words, few, percent, seconds_words, short
from specplan.planner.explain.what_if_words import undecided_lines

PLAIN = "autoregressive"
_MINOR = 0.02
"""Parts of a round below this share are summed."""


def summary_words(explanation: Mapping[str, Any]) -> list[str]:
    """What was decided and among what, in sentences; one per line or list item.

    Args:
        explanation: from `summarise` or `explain`.
    """
    if explanation["verdict"] == "undecided":
        return list(undecided_lines(explanation))
    return [*_decision(explanation), *_others(explanation)]


def explain_words(explanation: Mapping[str, Any]) -> list[str]:
    """Sentences, most important first; one per line or list item.

    Args:
        explanation: from `explain`, or read back from a bundle's report.
    """
    if explanation["verdict"] == "undecided":
        return list(undecided_lines(explanation))
    return [
        *_decision(explanation),
        *_time(explanation),
        *_acceptance(explanation),
        *formula_words(explanation),
        *break_even_words(explanation),
        *_others(explanation),
    ]


def _decision(explanation: Mapping[str, Any]) -> Iterator[str]:
    yield verdict_words(explanation)
    yield from assumed_words(explanation)
    yield from backends_words(explanation)
    yield from runner_up_words(explanation)
    yield from confidence_words(explanation)
    yield from load_words(explanation)
    yield from _figures(explanation)
    yield from loads_words(explanation)
    yield from pareto_words(explanation)


def _others(explanation: Mapping[str, Any]) -> Iterator[str]:
    yield from _runners_up(explanation)
    yield from _refused(explanation)
    yield f"Taken for granted: {'; '.join(explanation['assumptions'])}."


def verdict_words(explanation: Mapping[str, Any]) -> str:
    """The decision in one sentence."""
    chosen, rival = explanation["chosen"], explanation["best_drafting"]
    times = _times(explanation["speedup"])
    match explanation["verdict"]:
        case "speculate":
            return (
                f"Chosen: {chosen['method']}, {chosen['words']}; estimated at {times} "
                f"{_of_plain(explanation, chosen)}{_on_assumption(chosen)}."
            )
        case "plain_refused":
            return (
                f"Chosen: {chosen['method']}, {chosen['words']}; plain decoding is refused "
                f"({explanation['plain']['refusal']}); estimated at {times} its speed."
            )
        case "plain_only":
            reason = "nothing else that runs has a price"
            if rival is not None:
                reason = f"every plan that drafts is refused ({rival['refusal']})"
            return f"Chosen: plain decoding; {reason}.{_paying_loads(explanation)}"
        case "plain_within_error":
            return (
                f"Chosen: plain decoding; the best plan that drafts ({_named(rival)}) is estimated "
                f"at {_times(rival['speedup'])} its speed, which the estimate's own error leaves "
                "open."
            )
    return (
        f"Chosen: plain decoding; the best plan that drafts ({_named(rival)}) is estimated at "
        f"{_times(rival['speedup'])} its speed."
    )


def _paying_loads(explanation: Mapping[str, Any]) -> str:
    """Loads that lose their drafting to others at which it misses a limit, and the way out."""
    paying = [load for load in explanation["loads"] if load["method"] not in (None, PLAIN)]
    if not paying:
        return ""
    named = "; ".join(
        f"{load_name(explanation, load)} ({_named(load)}, {_times(load['speedup'])})"
        for load in paying
    )
    return (
        f" Drafting pays, within the limits, at {named}: leave the other loads out to plan for "
        "these."
    )


def assumed_words(explanation: Mapping[str, Any]) -> Iterator[str]:
    """What was assumed of acceptance; reports of older bundles hold nothing of it."""
    assumed = explanation.get("assumed") or {}
    if assumed:
        parts = "; ".join(f'"{drafter}": {text}' for drafter, text in assumed.items())
        yield (
            f"Assumed, not measured: the acceptance of {parts}. Every number of a plan that "
            "drafts with it is an assumption too."
        )


def backends_words(explanation: Mapping[str, Any]) -> Iterator[str]:
    """The outcome on each of several backends."""
    outcomes = []
    for one in explanation.get("backends", ()):
        if one["refusal"]:
            outcomes.append(f"{one['backend']}: no plan ({one['refusal']})")
        elif one["chosen"]:
            outcomes.insert(0, f"it is for {one['backend']}")
        else:
            outcomes.append(f"{_times(one['gain'])} as fast as {_named(one)} on {one['backend']}")
    if outcomes:
        yield f"Of {len(outcomes)} backends {'; '.join(outcomes)}."


def _on_assumption(candidate: Mapping[str, Any]) -> str:
    return ", on an assumed acceptance" if candidate.get("assumed") else ""


def _of_plain(explanation: Mapping[str, Any], candidate: Mapping[str, Any]) -> str:
    """What a speedup is a multiple of; at a load that one of the two does not bear, requests."""
    served, plain = candidate.get("at_load"), explanation["plain"].get("at_load")
    if served is None or plain is None:
        return "the speed of plain decoding"
    if served["whole"] and plain["whole"]:
        return "the speed of plain decoding at this load"
    return "the requests that plain decoding serves at this load"


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


def _runners_up(explanation: Mapping[str, Any]) -> Iterator[str]:
    texts = []
    for candidate in explanation["runners_up"]:
        refused = f", refused ({candidate['refusal']})" if candidate["refusal"] else ""
        texts.append(f"{_named(candidate)} {about(candidate['speedup'], short)}{refused}")
    if texts:
        at = "" if explanation.get("load") is None else ", or the requests it serves, at this load"
        yield f"Next, as times the speed of plain decoding{at}: {'; '.join(texts)}."


def _refused(explanation: Mapping[str, Any]) -> Iterator[str]:
    for entry in explanation["refused"]:
        count = f", {entry['settings']} settings" if entry["settings"] > 1 else ""
        example = f" (such as {entry['example']})" if entry["settings"] > 1 else ""
        yield f"Refused: {entry['method']}, {entry['family']}{count}{example}: {entry['reason']}."


def _named(candidate: Mapping[str, Any]) -> str:
    return f"{candidate['method']}, {candidate['words']}"


def _times(interval: Mapping[str, float]) -> str:
    return f"{interval['mean']:.2f} times ({interval['low']:.2f} to {interval['high']:.2f})"
