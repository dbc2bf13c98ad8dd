"""What plans serve at a load, and up to which load one is better: as data and in words.

Every number here is modelled (`planner/serving/capacity.py`), and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from specplan.cost_models.intervals import Interval
from specplan.planner.explain.break_even_words import pays_words
from specplan.planner.explain.numbers import about, few, seconds_words, short
from specplan.planner.explain.priced_break_even import PricedBreakEven, priced_break_even
from specplan.planner.search.candidates import Candidate
from specplan.planner.search.comparing import speedup
from specplan.planner.search.objectives import Load
from specplan.planner.search.search import SearchResult
from specplan.planner.serving.at_load import MODELLED, at_load

POINTS = 65
RANGE = 100.0
"""The least load looked at is the most that either plan bears over this."""

_BOUNDS = {
    "limits": "more would exceed a limit",
    "device": "with more in flight it serves no more",
    "memory": "batches above {largest} do not fit in memory",
    "running": "the server takes no more requests at a time",
    "batch_sizes": "at batch {largest}, the largest given; beyond it nothing is known",
}


def load_data(result: SearchResult, drafting: Candidate | None) -> dict[str, Any] | None:
    """The load, and where the plan that drafts is better than plain decoding; None without a load.

    Args:
        result: of the search.
        drafting: the chosen plan, or the best that drafts where plain decoding is chosen.
    """
    load = result.facts.objective
    if not isinstance(load, Load):
        return None
    crossing = None if drafting is None else break_even_load(load, drafting, result.plain)
    point = None
    if crossing is not None and drafting is not None:
        point = {
            "unknown": "request_rate",
            "unit": "requests/s",
            **drafting.named,
            "now": None,
            "always": crossing.always,
            "never": crossing.never,
            **asdict(crossing),
        }
    return {"request_rate": load.request_rate, "basis": MODELLED, "break_even": point}


def break_even_load(load: Load, candidate: Candidate, plain: Candidate) -> PricedBreakEven | None:
    """At which loads a candidate is better than plain decoding.

    Args:
        load: whose limits count; other rates than its own are looked at.
        candidate: with a price.
        plain: plain decoding, with a price.

    Returns:
        Up to the most load that either bears; None where neither serves anything.
    """
    assert candidate.estimate is not None and plain.estimate is not None
    most = max(at_load(load, c.estimate).most.mean for c in (candidate, plain) if c.estimate)
    if most <= 0.0:
        return None
    rates = np.geomspace(most / RANGE, most, POINTS).tolist()
    gains = [speedup(candidate, plain, replace(load, request_rate=rate)) for rate in rates]

    def curve(end: str) -> Any:
        return np.array([getattr(gain, end) for gain in gains])

    return priced_break_even(rates, Interval(curve("mean"), curve("low"), curve("high")))


def load_words(explanation: Mapping[str, Any]) -> Iterator[str]:
    """What the chosen plan serves, what it and plain decoding bear, and where it is better."""
    load = explanation["load"]
    if load is None:
        return
    chosen, plain = explanation["chosen"]["at_load"], explanation["plain"]["at_load"]
    yield (
        f"At {load['request_rate']:g} requests/s, {load['basis']}: "
        f"{about(chosen['goodput'], short)} requests/s are served within the limits."
    )
    several = len(chosen["by_prompt"]) > 1
    for at in few(chosen["by_prompt"]):
        where = f"With prompts of {at['prompt_tokens']} tokens alone: " if several else "There are "
        yield f"{where}{_served(at)}."
    text = f"It bears up to {about(chosen['most'], short)} requests/s ({_bound(chosen)})"
    if explanation["chosen"]["method"] != explanation["plain"]["method"]:
        text += f", plain decoding up to {about(plain['most'], short)} ({_bound(plain)})"
    yield f"{text}."
    point = load["break_even"]
    if point is not None:
        name = f"{point['method']}, {point['words']},"
        if point["words"] == explanation["chosen"]["words"]:
            name = "it"
        yield (
            f"By load {name} is better than plain decoding (in seconds where both serve all, else "
            f"in requests): {pays_words(point)}."
        )


def _served(at: Mapping[str, Any]) -> str:
    """Requests in flight and their times, at one length of prompts."""
    if at["in_flight"] is None:
        return f"more requests than it bears ({_of_length(at)})"
    times = {
        "a request takes": "seconds",
        "its first token": "ttft",
        "a token": "seconds_per_token",
    }
    texts = [f"{_open(at['in_flight'], short)} requests in flight"]
    texts += [f"{words} {_open(at[key], seconds_words)}" for words, key in times.items()]
    return ", ".join(texts) + ("" if at["whole"] else "; that exceeds a limit")


def _bound(served: Mapping[str, Any]) -> str:
    """What stands in the way of more, at each length of prompts where they differ."""
    texts = {_of_length(at): None for at in served["by_prompt"]}
    return "; ".join(texts)


def _of_length(at: Mapping[str, Any]) -> str:
    return _BOUNDS[at["bound"]].format(largest=at["largest_batch"] or 0)


def _open(interval: Mapping[str, float | None], words: Callable[[float], str]) -> str:
    """An interval that may be open above, where the slow end does not bear the load."""
    mean, low, high = (interval[end] for end in ("mean", "low", "high"))
    assert mean is not None and low is not None
    return f"{words(mean)} ({words(low)} to {'more' if high is None else words(high)})"
