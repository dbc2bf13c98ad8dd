"""The screen of a problem: what to do, numbers, alternatives, their basis, what is next."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

from specplan.cli.screen.names import (
    NO_SPECULATION,
    PLAIN,
    advice,
    plan_name,
    problem_name,
    size_name,
    spread,
    times,
)
from specplan.cli.screen.not_tried import not_tried_line
from specplan.cli.screen.tables import numbers
from specplan.planner.explain.choice import memory_words
from specplan.planner.explain.numbers import age_words, bytes_words

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

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


@dataclass(frozen=True)
class Context:
    """What a screen has to know of the command that shows it.

    Attributes:
        problem: the words of a command line that name the problem or the bundle.
        steps: commands to go on with.
        today: the day of the reader, for the age of measurements; None shows their days alone.
    """

    problem: str
    steps: Sequence[str] = ()
    today: date | None = None


def decided(
    explanation: Mapping[str, Any], console: Console, context: Context, *, whole: bool = False
) -> Iterator[RenderableType]:
    """The parts of the screen, in order.

    Args:
        explanation: from `explain`, with another verdict than `undecided`.
        console: on which it will be printed.
        context: of the command.
        whole: every operating point and alternative.
    """
    from rich.padding import Padding

    yield _text(problem_name(explanation), "dim")
    yield ""
    yield _text(advice(explanation), "bold")
    yield from _gain(explanation)
    yield from _warnings(explanation)
    yield ""
    for part in numbers(explanation, console, whole=whole):
        yield Padding(part, (0, 0, 0, 2))
    grid = len({point["prompt_tokens"] for point in explanation["points"]}) > 1
    for words in memory_words(explanation):
        yield _text(words, "yellow")
    if (whole or not grid) and any(point["batch"] > 1 for point in explanation["points"]):
        yield _text(
            "  Tokens/s count decoding alone; TTFT is that of requests that all arrive at once.",
            "dim",
        )
    yield ""
    yield _labelled(_notes(explanation, whole, context.today))
    for place, step in enumerate(context.steps):
        line = _text("Next       " if place == 0 else " " * 11, "bold").append(
            step, "not bold cyan"
        )
        line.no_wrap = True  # a command stays whole, to be copied
        yield line


def _text(text: str, style: str = "") -> Text:
    from rich.text import Text

    return Text(text, style=style)


def _labelled(notes: Iterator[tuple[str, str, str]]) -> RenderableType:
    """Labels at the left, what they say wrapped at the right."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True, min_width=9)
    table.add_column(overflow="fold")
    for label, text, style in notes:
        table.add_row(_text(label, "bold"), _text(text, style))
    return table


def _gain(explanation: Mapping[str, Any]) -> Iterator[Text]:
    """By how much, or why there is no speculation."""
    verdict, gain = explanation["verdict"], explanation["speedup"]
    rival = explanation["best_drafting"]
    if verdict in ("speculate", "plain_refused"):
        text = _GAINS[explanation["objective"]].format(times(gain["mean"]))
        assumed = ", assumed acceptance" if explanation["chosen"].get("assumed") else ""
        yield _text(f"{text} ({spread(gain)}, 90 % interval{assumed})", "bold green")
        if verdict == "plain_refused":
            yield _text(f"Without speculation a limit is missed: {_limit(explanation['plain'])}.")
    elif rival is None:
        yield _text("No plan with speculation could be compared with it.", "yellow")
    elif verdict == "plain_only":
        yield _text(f"Every plan with speculation misses a limit: {_limit(rival)}.", "yellow")
        yield from _paying_points(explanation)
    else:
        error = ", within the error" if verdict == "plain_within_error" else ""
        yield _text(
            f"The best with speculation, {plan_name(rival)}, is estimated at "
            f"{times(rival['speedup']['mean'])} ({spread(rival['speedup'])}){error}."
        )
        yield _text('Below, "with" is that plan.', "dim")


def _limit(candidate: Mapping[str, Any]) -> str:
    """The limit that a plan misses; bytes with a unit, without the ends of intervals."""
    text = re.sub(r" \([^()]* to [^()]*\)", "", candidate["refusal"])
    return re.sub(r"([\d.]+e\+\d+) bytes", lambda match: bytes_words(float(match[1])), text)


def _paying_points(explanation: Mapping[str, Any]) -> Iterator[Text]:
    """Operating points that lose their speculation to others at which it misses a limit."""
    paying = [point for point in explanation["loads"] if point["method"] not in (None, PLAIN)]
    if paying:
        best = max(paying, key=lambda point: float(point["speedup"]["mean"]))
        where = f"{best['batch']} x {best['prompt_tokens']} (requests x prompt)"
        yield _text(
            f"It pays at {len(paying)} of {len(explanation['points'])} operating points, most at "
            f"{where} with {plan_name(best)}: {times(best['speedup']['mean'])}. "
            "Leave the others out to plan for these."
        )


def _warnings(explanation: Mapping[str, Any]) -> Iterator[Text]:
    """The user's own drafters that could not be compared, and what was assumed."""
    unmeasured = explanation["setting"]["unmeasured"]
    if unmeasured:
        yield _text(
            f"Not compared, no acceptance is known: {', '.join(unmeasured)}. Measure it, or assume "
            f"it: acceptance: {{{unmeasured[0]}: 0.75}}, or prior (published figures)",
            "red",
        )
    for drafter, text in (explanation.get("assumed") or {}).items():
        yield _text(f'Assumed, not measured: the acceptance of "{drafter}": {text}', "yellow")


def _notes(
    explanation: Mapping[str, Any], whole: bool, today: date | None
) -> Iterator[tuple[str, str, str]]:
    """Label, text and style of every note."""
    yield from _served(explanation)
    yield from _backends(explanation)
    names = list(_alternatives(explanation))
    if names:
        shown = names if whole else names[:MOST_ALTERNATIVES]
        yield "Instead", f"(over {NO_SPECULATION}) {' | '.join(shown)}", ""
    single = explanation.get("best_single")
    if single is not None and single["gain"]["mean"] > 1.0:
        worth = f"{single['gain']['mean'] - 1.0:.1%}".replace("%", " %")
        yield (
            "",
            f"K by batch size gains {worth} over {plan_name(single)} at every batch size",
            "dim",
        )
    if explanation["verdict"] != "plain_only":
        yield "Sure?", _confidence(explanation), ""
    yield from _basis(explanation, today)
    counted = not_tried_line(explanation)
    if counted:
        yield "Not tried", counted, "dim"


def _served(explanation: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Under the objective goodput: requests per second within the limits."""
    if explanation.get("load") is None:
        return
    own, plain = explanation["chosen"]["at_load"], explanation["plain"]["at_load"]
    yield (
        "Capacity",
        f"{own['most']['mean']:.3g} requests/s within the limits; without speculation "
        f"{plain['most']['mean']:.3g}",
        "",
    )


def _backends(explanation: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    parts = []
    for one in explanation.get("backends", ()):
        if one["refusal"]:
            parts.append(f"{one['backend']}: no plan")
        elif one["chosen"]:
            parts.insert(0, f"{one['backend']} is the best")
        else:
            parts.append(f"{one['backend']}: {times(one['gain']['mean'])} with {plan_name(one)}")
    if parts:
        yield "Backends", " | ".join(parts), ""


def _alternatives(explanation: Mapping[str, Any]) -> Iterator[str]:
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


def _confidence(explanation: Mapping[str, Any]) -> str:
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
    if sure.get("runs_would_tell"):
        text += ". `specplan tune` settles it with runs"
    return text


def _tie(chosen: Mapping[str, Any], tied: Sequence[Mapping[str, Any]]) -> str:
    """Plans that the estimates cannot tell apart; K alone where they share a drafter."""
    draft = {"options": {"draft": chosen["options"].get("draft")}}
    plans = [chosen, *({**one, **draft} for one in tied)]
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


def _basis(explanation: Mapping[str, Any], today: date | None) -> Iterator[tuple[str, str, str]]:
    """What the numbers of the chosen plan rest on, with the age of what was measured."""
    used = [one for one in explanation["basis"] if one["used"]]
    for place, one in enumerate(used[:_MOST_BASIS]):
        what = "times" if one["of"] == "times" else f'acceptance of "{one["of"]}"'
        style = "yellow" if one["kind"] == "assumed" else ""
        age = f" {age_words(one['date'], today)}" if one.get("date") else ""
        text = f"{what}: {one['kind']}{age}, {one['words']}"
        yield "Based on" if place == 0 else "", text, style
