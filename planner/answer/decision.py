"""The decision in sentences: by how much it is faster, what was assumed, alternatives, its basis.

Every text is made from an explanation alone; the terminal, the report and the notebook show it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any, Literal, NamedTuple

from specplan.planner.answer.names import (
    EDITED,
    NO_SPECULATION,
    PLAIN,
    plan_name,
    size_name,
    spread,
    times,
)
from specplan.planner.answer.not_tried import not_tried_line
from specplan.planner.answer.quality import quality_lines
from specplan.planner.explain.numbers import age_words, bytes_words

MOST_ALTERNATIVES = 4
_LIKELY = 0.1
"""A rival with this probability of being the fastest ties with the chosen plan."""
_SURE = 0.9
_WORTH_NAMING = 0.0005
"""A measurement that would save less than this share of the time is not named."""
_MOST_BASIS = 4
_GAINS = {
    "latency": "{} faster than without speculation",
    "tpot": "{} faster decoding than without speculation, prefill aside",
    "throughput": "{} the throughput without speculation",
    "goodput": "{} the requests, or the speed where both serve all, without speculation",
}
Tone = Literal["", "good", "faint", "assumed", "missing"]
"""How a text is to be shown: `assumed` asks for attention, `missing` for measurements."""


class Line(NamedTuple):
    """A sentence and its tone."""

    text: str
    tone: Tone = ""


class Note(NamedTuple):
    """A text with a label, empty where it goes on with the label before."""

    label: str
    text: str
    tone: Tone = ""


def gain_lines(explanation: Mapping[str, Any]) -> Iterator[Line]:
    """By how much, or why there is no speculation."""
    verdict, gain = explanation["verdict"], explanation["speedup"]
    rival = explanation["best_drafting"]
    if explanation["chosen"]["method"] == EDITED:
        speed = f"{times(gain['mean'])} ({spread(gain)}, 90 % interval)"
        yield Line(f"Its speed over that without speculation: {speed}")
    elif verdict in ("speculate", "plain_refused"):
        text = _GAINS[explanation["objective"]].format(times(gain["mean"]))
        assumed = ", assumed acceptance" if explanation["chosen"].get("assumed") else ""
        yield Line(f"{text} ({spread(gain)}, 90 % interval{assumed})", "good")
        if verdict == "plain_refused":
            yield Line(f"Without speculation a limit is missed: {_limit(explanation['plain'])}.")
    elif rival is None:
        yield Line("No plan with speculation could be compared with it.", "assumed")
    elif verdict == "plain_only":
        yield Line(f"Every plan with speculation misses a limit: {_limit(rival)}.", "assumed")
        yield from _paying_points(explanation)
    else:
        error = ", within the error" if verdict == "plain_within_error" else ""
        yield Line(
            f"The best with speculation, {plan_name(rival)}, is estimated at "
            f"{times(rival['speedup']['mean'])} ({spread(rival['speedup'])}){error}."
        )
        yield Line('Below, "with" is that plan.', "faint")


def _limit(candidate: Mapping[str, Any]) -> str:
    """The limit that a plan misses; bytes with a unit, without the ends of intervals."""
    text = re.sub(r" \([^()]* to [^()]*\)", "", candidate["refusal"])
    return re.sub(r"([\d.]+e\+\d+) bytes", lambda match: bytes_words(float(match[1])), text)


def _paying_points(explanation: Mapping[str, Any]) -> Iterator[Line]:
    """Operating points that lose their speculation to others at which it misses a limit."""
    paying = [point for point in explanation["loads"] if point["method"] not in (None, PLAIN)]
    if paying:
        best = max(paying, key=lambda point: float(point["speedup"]["mean"]))
        where = f"{best['batch']} x {best['prompt_tokens']} (requests x prompt)"
        yield Line(
            f"It pays at {len(paying)} of {len(explanation['points'])} operating points, most at "
            f"{where} with {plan_name(best)}: {times(best['speedup']['mean'])}. "
            "Leave the others out to plan for these."
        )


def warnings(explanation: Mapping[str, Any]) -> Iterator[Line]:
    """The user's own drafters that could not be compared, and what was assumed."""
    unmeasured = explanation["setting"].get("unmeasured")
    if unmeasured:
        yield Line(
            f"Not compared, no acceptance is known: {', '.join(unmeasured)}. Measure it, or assume "
            f"it: acceptance: {{{unmeasured[0]}: 0.75}}, or prior (published figures)",
            "missing",
        )
    for drafter, text in explanation["assumed"].items():
        yield Line(f'Assumed, not measured: the acceptance of "{drafter}": {text}', "assumed")


def notes(
    explanation: Mapping[str, Any], *, whole: bool = False, today: date | None = None
) -> Iterator[Note]:
    """What stands below the numbers: alternatives, how sure the choice is, what it rests on.

    Args:
        explanation: from `explain`, with another verdict than `undecided`.
        whole: every alternative; else the best few.
        today: by the reader's clock, for the age of measurements.
    """
    chosen_among = ("Backends", backends(explanation)), ("", format_loss(explanation))
    for label, text in (("Capacity", capacity(explanation)), *chosen_among):
        if text:
            yield Note(label, text)
    for place, text in enumerate(quality_lines(explanation.get("quality"))):
        yield Note("" if place else "Quality", text)
    names = list(alternatives(explanation))
    if names:
        shown = names if whole else names[:MOST_ALTERNATIVES]
        yield Note("Instead", f"(over {NO_SPECULATION}) {' | '.join(shown)}")
    worth = schedule_worth(explanation)
    if worth:
        yield Note("", worth, "faint")
    if explanation["verdict"] != "plain_only":
        yield Note("Sure?", confidence(explanation))
    for place, line in enumerate(basis(explanation, today)):
        yield Note("" if place else "Based on", *line)
    counted = not_tried_line(explanation)
    if counted:
        yield Note("Not tried", f"{counted}   --show not-tried", "faint")


def standing(explanation: Mapping[str, Any]) -> Iterator[Line]:
    """In sentences what several draft lengths are worth, and how sure the choice is."""
    sure = "" if explanation["verdict"] == "plain_only" else confidence(explanation)
    for text in filter(None, (schedule_worth(explanation), sure)):
        yield Line(f"{text[0].upper()}{text[1:]}.")


def schedule_worth(explanation: Mapping[str, Any]) -> str:
    """What K by batch size gains over the best fixed K; empty where no such plan was chosen.

    Empty also where no speculation is the best fixed K: the headline has that gain.
    """
    single = explanation["best_single"]
    if single is None or single["gain"]["mean"] <= 1.0 or single["method"] == PLAIN:
        return ""
    worth = f"{single['gain']['mean'] - 1.0:.1%}".replace("%", " %")
    return f"K by batch size gains {worth} over {plan_name(single)} at every batch size"


def capacity(explanation: Mapping[str, Any]) -> str:
    """Requests per second within the limits, under the objective goodput; else empty."""
    if explanation["load"] is None:
        return ""
    own, plain = explanation["chosen"]["at_load"], explanation["plain"]["at_load"]
    return (
        f"{own['most']['mean']:.3g} requests/s within the limits; without speculation "
        f"{plain['most']['mean']:.3g}"
    )


def backends(explanation: Mapping[str, Any]) -> str:
    """The best of several backends, and what it gains over each other; empty where there is one."""
    parts = []
    for one in explanation["backends"]:
        if one["refusal"]:
            parts.append(f"{one['backend']}: no plan")
        elif one["chosen"]:
            parts.insert(0, f"{one['backend']} is the best")
        else:
            gain = times(one["gain"]["mean"])
            parts.append(f"{gain} over {one['backend']} with {plan_name(one)}")
    return " | ".join(parts)


def format_loss(explanation: Mapping[str, Any]) -> str:
    """What the number format of the chosen plan loses; empty where it is the first or the only."""
    for one in explanation["backends"]:
        lost = one.get("loss") if one["chosen"] else None
        if lost:
            return (
                f"{one['backend']} loses {lost['mean']:.2g} nats per token of held-out text "
                f"against {lost['against']}, at most {lost['bound']:.2g} "
                f"({100 * lost['risk']:g} % risk, {lost['samples']} texts)"
            )
    return ""


def alternatives(explanation: Mapping[str, Any]) -> Iterator[str]:
    """The best of every other family over no speculation, that itself last."""
    best = explanation["best_drafting"]
    named_above = best is not None and explanation["chosen"]["method"] == PLAIN
    several = len(explanation["points"]) > 1 and explanation["rules"]
    for one in explanation["runners_up"]:
        if one["method"] == PLAIN or (named_above and one["words"] == best["words"]):
            continue
        reason = ""
        if one["refusal"]:
            able = one.get("cause") != "backend"
            reason = " (misses a limit)" if able else " (the backend cannot run it)"
        everywhere = " at every batch size" if several and one["method"] != "schedule" else ""
        yield f"{plan_name(one)}{everywhere} {times(one['speedup']['mean'])}{reason}"
        several = False  # once is enough


def confidence(explanation: Mapping[str, Any]) -> str:
    """Which plans tie, what a wrong pick costs, and what leaves most open."""
    sure, chosen = explanation["confidence"], explanation["chosen"]
    if sure["probability_best"] > 0.995:
        return "no other plan comes within the error of the estimates"
    cost = f"expected cost of a wrong pick {_percent(sure['expected_regret'])}"
    tied = [one for one in sure["rivals"] if one["probability"] >= _LIKELY]
    text = f"very likely the fastest; {cost}"
    if sure["probability_best"] < _SURE and tied:
        text = f"{_tie(chosen, tied)}; {cost}"
    worth = [one for one in sure["measurements"] if one["regret_saved"] >= _WORTH_NAMING]
    if worth:
        kind = "times" if worth[0]["kind"] == "device" else "acceptance"
        what = f'{kind} of "{worth[0]["name"]}"'
        if worth[0]["name"] == "ops":
            what = "times outside of the models"
        text += (
            f". Largest uncertainty: {what} (worth at most {_percent(worth[0]['regret_saved'])})"
        )
    if sure["runs_would_tell"]:
        text += ". `specplan tune` settles it with runs"
    return text


def _tie(chosen: Mapping[str, Any], tied: Sequence[Mapping[str, Any]]) -> str:
    """Plans that the estimates cannot tell apart; K alone where they share a drafter."""
    plans = [chosen, *tied]
    sizes = [size_name(one) for one in plans]
    if len({one["method"] for one in plans}) == 1 and all(size.startswith("K=") for size in sizes):
        lengths = sorted(int(size.removeprefix("K=")) for size in sizes)
        if len(lengths) == 1 + lengths[-1] - lengths[0] > 2:
            return f"K={lengths[0]} to {lengths[-1]} tie"
        return f"K={', '.join(map(str, lengths[:-1]))} and {lengths[-1]} tie"
    same = [one["method"] for one in tied] == [chosen["method"]] * len(tied)
    others = ", ".join(size_name(one) if same else plan_name(one) for one in plans[1:])
    return f"ties with {others}"


def _percent(share: float) -> str:
    percent = 100 * share
    return "under 0.01 %" if percent < 0.01 else f"{percent:.{1 if percent < 1 else 2}g} %"


def basis(explanation: Mapping[str, Any], today: date | None = None) -> Iterator[Line]:
    """What the numbers of the chosen plan rest on, with the age of what was measured."""
    used = [one for one in explanation["basis"] if one["used"]]
    for one in used[:_MOST_BASIS]:
        what = "times" if one["of"] == "times" else f'acceptance of "{one["of"]}"'
        tone: Tone = "assumed" if one["kind"] == "assumed" else ""
        age = f" {age_words(one['date'], today)}" if one.get("date") else ""
        stack = f" ({one['stack']})" if one.get("stack") else ""
        yield Line(f"{what}: {one['kind']}{age}, {one['words']}{stack}", tone)
