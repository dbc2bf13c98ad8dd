"""The explanation of a search in words, made from its data alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_MINOR = 0.02
"""Parts of a round below this share are told together."""


def explain_words(explanation: Mapping[str, Any]) -> list[str]:
    """Sentences, most important first; one per line or list item.

    Args:
        explanation: from `explain`, or read back from a bundle's report.
    """
    return [
        _verdict(explanation),
        *_figures(explanation),
        *_time(explanation),
        *_acceptance(explanation),
        *_runners_up(explanation),
        *_refused(explanation),
        f"Taken for granted: {'; '.join(explanation['assumptions'])}.",
    ]


def _verdict(explanation: Mapping[str, Any]) -> str:
    chosen, rival = explanation["chosen"], explanation["best_drafting"]
    times = _times(explanation["speedup"])
    match explanation["verdict"]:
        case "speculate":
            return (
                f"Chosen: {chosen['method']}, {chosen['words']}; estimated at {times} the speed of "
                "plain decoding."
            )
        case "plain_refused":
            return (
                f"Chosen: {chosen['method']}, {chosen['words']}; plain decoding is refused "
                f"({explanation['plain']['refusal']}); estimated at {times} its speed."
            )
        case "plain_only":
            reason = "nothing else has a price"
            if rival is not None:
                reason = f"every plan that drafts is refused ({rival['refusal']})"
            return f"Chosen: plain decoding; {reason}."
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


def _figures(explanation: Mapping[str, Any]) -> Iterator[str]:
    for figures in explanation["chosen"]["by_batch"]:
        rate = figures["tokens_per_second"]
        outside = ", extrapolated" if figures["extrapolated"] else ""
        yield (
            f"Batch {figures['batch']}: {_short(rate['mean'])} tokens/s "
            f"({_short(rate['low'])} to {_short(rate['high'])}{outside}), "
            f"{figures['tokens_per_round']['mean']:.2f} tokens per round of "
            f"{_seconds(figures['seconds_per_round'])}, first token after "
            f"{_seconds(figures['ttft'])}, {_bytes(figures['memory_bytes'])}."
        )


def _time(explanation: Mapping[str, Any]) -> Iterator[str]:
    for entry in explanation["time"]["chosen"]:
        major = [part for part in entry["parts"] if part["share"] >= _MINOR]
        rest = 1.0 - sum(part["share"] for part in major)
        told = [_part(part) for part in major]
        if rest > 0.005:
            told.append(f"the rest {rest:.0%}")
        yield f"Time of a round at batch {entry['batch']}: {', '.join(told)}."


def _part(part: Mapping[str, Any]) -> str:
    name = f"{part['op']} {part['model']}" if part["model"] else part["op"]
    if part["op"] == "round":
        name = "the loop around it"
    times = f"{part['times']} x " if part["times"] > 1 else ""
    width = f" ({part['width']} tokens)" if part["model"] else ""
    return f"{times}{name}{width} {_seconds(part['seconds'])} ({part['share']:.0%})"


def _acceptance(explanation: Mapping[str, Any]) -> Iterator[str]:
    acceptance = explanation["acceptance"]
    if acceptance is None:
        return
    shares = [
        f"{entry['depth']} in {entry['accepted_at_least']:.0%}" for entry in acceptance["by_depth"]
    ]
    yield (
        f'Of what "{acceptance["proposer"]}" drafts ({acceptance["words"]}), at least so many '
        f"tokens are accepted in this share of the rounds: {', '.join(shares)}."
    )


def _runners_up(explanation: Mapping[str, Any]) -> Iterator[str]:
    told = []
    for candidate in explanation["runners_up"]:
        refused = ", refused" if candidate["refusal"] else ""
        told.append(f"{_named(candidate)} {candidate['speedup']['mean']:.2f} x{refused}")
    if told:
        yield f"Next, as times the speed of plain decoding: {'; '.join(told)}."


def _refused(explanation: Mapping[str, Any]) -> Iterator[str]:
    for entry in explanation["refused"]:
        count = f", {entry['settings']} settings" if entry["settings"] > 1 else ""
        example = f" (such as {entry['example']})" if entry["settings"] > 1 else ""
        yield f"Refused: {entry['method']}, {entry['family']}{count}{example}: {entry['reason']}."


def _named(candidate: Mapping[str, Any]) -> str:
    return f"{candidate['method']}, {candidate['words']}"


def _times(interval: Mapping[str, float]) -> str:
    return f"{interval['mean']:.2f} times ({interval['low']:.2f} to {interval['high']:.2f})"


def _seconds(seconds: float) -> str:
    """A time with its unit, three digits."""
    for scale, unit in _UNITS:
        if seconds >= scale:
            return f"{_short(seconds / scale)} {unit}"
    return f"{seconds / 1e-9:.2g} ns"


def _bytes(count: float) -> str:
    for scale, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= scale:
            return f"{_short(count / scale)} {unit}"
    return f"{count:.0f} B"


def _short(number: float) -> str:
    """Three digits, no exponent."""
    if number >= 100:
        return f"{number:.0f}"
    return f"{number:.2f}" if number < 10 else f"{number:.1f}"
