"""Time per output token, gain and throughput as pictures, from a bundle's report alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from specplan.planner.answer.names import PLAIN, SCHEDULE
from specplan.planner.answer.points import acceptance_entry, prompts_of
from specplan.planner.explain.numbers import counted
from specplan.planner.explain.what_if_words import spread_out
from specplan.report.canvas import (
    INK,
    LINES,
    MARKERS,
    WITH,
    WITHOUT,
    legend,
    new_axes,
    plain_logarithm,
    shared_legend,
    svg,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Report = Mapping[str, Any]
Point = Mapping[str, Any]
_ACCEPTANCES = (0.3, 0.5, 0.7, 0.8, 0.9)


def tpot_chart(explanation: Mapping[str, Any]) -> str | None:
    """TPOT over the batch size, with and without speculation; None for one batch size."""
    if len({point["batch"] for point in explanation["points"]}) < 2:
        return None
    prompts = spread_out(prompts_of(explanation), len(LINES))
    figure, axes = new_axes(len(prompts), height=3.0 if len(prompts) == 1 else 2.3)
    for place, prompt in zip(axes, prompts, strict=True):
        points = [one for one in explanation["points"] if one["prompt_tokens"] == prompt]
        batches = [one["batch"] for one in points]
        drawn: list[float] = []
        for key, colour, name in (("plain_tpot", WITHOUT, "without"), ("tpot", WITH, "with")):
            middle, low, high = ([1e3 * one[key][end] for one in points]
                                 for end in ("mean", "low", "high"))  # fmt: skip
            marker = MARKERS[name == "with"]
            place.plot(batches, middle, marker + "-", color=colour, label=name, markersize=4)
            place.fill_between(batches, low, high, color=colour, alpha=0.15, linewidth=0)
            drawn += low + high
        place.set(xscale="log", yscale="log", xlabel="requests", ylabel="TPOT, ms")
        place.xaxis.set_major_locator(_at(spread_out(batches, 6)))
        place.xaxis.set_minor_locator(_at([]))
        place.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        plain_logarithm(place.yaxis, drawn)
        _title(place, prompt, len(prompts))
    shared_legend(figure, axes)
    return svg(figure, "Time per output token by batch size, with and without speculation")


def length_chart(report: Report) -> str | None:
    """TPOT over draft tokens per step (K) of the drafter; None where one K was estimated."""
    from matplotlib.ticker import MaxNLocator

    explanation = report["explanation"]
    family = _same_drafter(report)
    lines: list[tuple[Point, dict[int, float]]] = []
    for index, point in enumerate(explanation["points"]):
        by_length = {0: 1e3 * point["plain_tpot"]["mean"]}
        for one in family:
            estimate = one["estimates"][index]
            count = _drafted(estimate)
            tpot = 1e3 * estimate["seconds_per_token"]["median"]
            by_length[count] = min(tpot, by_length.get(count, tpot))
        lines.append((point, by_length))
    if not lines or len(lines[0][1]) < 3:
        return None
    figure, (place,) = new_axes()
    drawn: list[float] = []
    for (point, by_length), colour, marker in zip(
        spread_out(lines, len(LINES)), LINES, MARKERS, strict=False
    ):
        lengths = sorted(by_length)
        times = [by_length[length] for length in lengths]
        place.plot(lengths, times, marker + "-", color=colour, label=_name(explanation, point),
                   markersize=3)  # fmt: skip
        own = point["draft_tokens"]
        if own in by_length:
            place.plot([own], [by_length[own]], "o", markersize=11, fillstyle="none", color=colour)
        drawn += times
    place.set(yscale="log", xlabel="draft tokens per step (K)", ylabel="TPOT, ms")
    place.xaxis.set_major_locator(MaxNLocator(integer=True))
    plain_logarithm(place.yaxis, drawn)
    legend(place)
    return svg(figure, "Time per output token by draft tokens per step; circles: with speculation")


def acceptance_chart(explanation: Mapping[str, Any]) -> str | None:
    """Gain over tokens per step, with today's marked; None where no break-even is known."""
    curves = [
        (point, entry["curve"])
        for point in explanation["points"]
        if (entry := acceptance_entry(explanation, point)) is not None and entry.get("curve")
    ]
    if not curves:
        return None
    import numpy as np

    figure, (place,) = new_axes(height=3.2)
    for (point, curve), colour, marker in zip(
        spread_out(curves, len(LINES)), LINES, MARKERS, strict=False
    ):
        tokens = [one["tokens"] for one in curve]
        gain, low, high = ([one["gain"][end] for one in curve] for end in ("mean", "low", "high"))
        place.plot(tokens, gain, "-", color=colour)
        place.fill_between(tokens, low, high, color=colour, alpha=0.12, linewidth=0)
        today = point["tokens_per_step"]["mean"]
        place.plot([today], [np.interp(today, tokens, gain)], marker, color=colour, markersize=7,
                   label=_name(explanation, point))  # fmt: skip
    place.axhline(1.0, color=WITHOUT, linewidth=1, linestyle="--")
    place.set(xlabel="tokens per step; marks: today's", ylabel="gain over no speculation")
    _acceptance_axis(place, explanation, [point for point, _ in curves])
    legend(place)
    return svg(figure, "Gain over no speculation by tokens per step, with today's marked")


def _acceptance_axis(place: Axes, explanation: Mapping[str, Any], points: Sequence[Point]) -> None:
    """Above, the acceptance of each draft token that gives so many tokens, for chains of one K."""
    lengths = {point["draft_tokens"] for point in points}
    parents = {tuple(part.get("parents") or ()) for part in explanation["acceptance"]}
    if len(lengths) != 1 or parents != {tuple(range(-1, min(lengths) - 1))}:
        return
    if any(part.get("may_end") for part in explanation["acceptance"]):
        return
    above = place.secondary_xaxis("top")
    tokens = [sum(rate**depth for depth in range(min(lengths) + 1)) for rate in _ACCEPTANCES]
    above.set_xticks(tokens, [f"{rate:g}" for rate in _ACCEPTANCES])
    above.set_xlabel("acceptance of each draft token", color=INK, fontsize=9)
    above.tick_params(colors=INK, labelsize=8)
    above.spines["top"].set_color(INK)


def pareto_chart(report: Report) -> str | None:
    """Tokens/s per user against tokens/s per device while decoding; None for one batch size."""
    explanation = report["explanation"]
    if len({point["batch"] for point in explanation["points"]}) < 2:
        return None
    devices = explanation["setting"]["devices"]
    prompts = spread_out(prompts_of(explanation), len(LINES))
    figure, axes = new_axes(len(prompts), height=3.0 if len(prompts) == 1 else 2.3)
    for place, prompt in zip(axes, prompts, strict=True):
        points = [
            (one, fastest)
            for one, fastest in zip(explanation["points"], _fastest(report), strict=True)
            if one["prompt_tokens"] == prompt
        ]
        batches = [one["batch"] for one, _ in points]
        for name, colour, style, times in (
            ("without", WITHOUT, "o-", [one["plain_tpot"]["mean"] for one, _ in points]),
            ("with", WITH, "s-", [one["tpot"]["mean"] for one, _ in points]),
            ("fastest at each batch size", LINES[2], "^:", [fastest for _, fastest in points]),
        ):
            users = [1.0 / seconds for seconds in times]
            shared = [b / seconds / devices for b, seconds in zip(batches, times, strict=True)]
            place.plot(users, shared, style, color=colour, label=name, markersize=4)
            if name == "with":
                for batch, x, y in zip(batches, users, shared, strict=True):
                    if batch in spread_out(batches, 6):
                        place.annotate(str(batch), (x, y), (4, 4), textcoords="offset points",
                                       fontsize=8, color=INK)  # fmt: skip
        per_device = "tokens/s per GPU" if devices > 1 else "tokens/s in all"
        place.set(xlabel="tokens/s per user", ylabel=per_device)
        place.set_ylim(bottom=0.0)
        _title(place, prompt, len(prompts))
    shared_legend(figure, axes)
    return svg(figure, "Tokens per second per user against tokens per second of the device")


def quality_chart(explanation: Mapping[str, Any]) -> str | None:
    """Speedup over the most that a plan loses, its front and the limit; None without a limit."""
    data = explanation.get("quality")
    if data is None or len(data["front"]) < 2:
        return None
    parts = data["measure"] not in ("kl", "held_out_loss")
    scale, unit = (100.0, ", %") if parts else (1.0, ", nats")
    figure, (place,) = new_axes()
    for best, colour, marker, name in (
        (False, WITHOUT, "o", "other plans"),
        (True, WITH, "s-", "none is faster and loses less"),
    ):
        rows = sorted(
            (scale * one["bound"], one["speedup"]) for one in data["front"] if one["best"] == best
        )
        if rows:
            place.plot(*zip(*rows, strict=True), marker, color=colour, label=name, markersize=4)
    place.axvline(scale * data["at_most"], color=INK, linestyle="--", linewidth=0.8, label="limit")
    place.set(xlabel=f"loss at most{unit}", ylabel="times as fast as no speculation")
    legend(place)
    return svg(figure, "Speed of plans against what they lose at most")


def what_if_chart(explanation: Mapping[str, Any]) -> str:
    """Gain over an assumed acceptance, a panel per drafter: the picture of an undecided answer."""
    rows = [row for row in explanation["what_if"] if row["acceptance"] is not None]
    drafters = list(dict.fromkeys(row["drafter"] for row in rows))
    figure, axes = new_axes(len(drafters), height=3.0)
    for place, drafter in zip(axes, drafters, strict=True):
        lines: dict[tuple[int, int], list[Mapping[str, Any]]] = {}
        for row in rows:
            if row["drafter"] == drafter:
                lines.setdefault((row["batch"], row["prompt_tokens"]), []).append(row)
        for (_, line), colour, marker in zip(
            spread_out(list(lines.items()), len(LINES)), LINES, MARKERS, strict=False
        ):
            rates, gains = ([row[key] for row in line] for key in ("acceptance", "gain"))
            place.plot(rates, gains, marker + "-", color=colour, markersize=4,
                       label=_name(explanation, line[0]))  # fmt: skip
        place.axhline(1.0, color=WITHOUT, linewidth=1, linestyle="--")
        place.set(xlabel=f'acceptance of "{drafter}"', ylabel="gain over no speculation")
    shared_legend(figure, axes)
    return svg(figure, "Gain over no speculation by acceptance of a draft token")


def _same_drafter(report: Report) -> list[Mapping[str, Any]]:
    """Candidates that draft as the plan does and have estimates: they differ in K alone."""
    explanation = report["explanation"]
    plan: Mapping[str, Any] | None = explanation["chosen"]
    if plan is not None and plan["method"] == SCHEDULE:
        plan = next((rule for rule in explanation["rules"] if rule["method"] != PLAIN), None)
    elif plan is not None and plan["method"] == PLAIN:
        plan = explanation["best_drafting"]
    if plan is None:
        return []
    priced = [one for one in report["candidates"] if one["estimates"]]
    same = [one for one in priced if one["method"] == plan["method"]
            and one["options"].get("draft") == plan["options"].get("draft")]  # fmt: skip
    family = {one["family"] for one in same if one["words"] == plan["words"]}
    return [one for one in same if one["family"] in family]


def _fastest(report: Report) -> list[float]:
    """The least TPOT of any plan that may be chosen, by operating point."""
    able = [one["estimates"] for one in report["candidates"]
            if one["estimates"] and not (one["refusal"] or one["unsupported"])]  # fmt: skip
    return [
        min((estimates[place]["seconds_per_token"]["median"] for estimates in able),
            default=point["tpot"]["mean"])
        for place, point in enumerate(report["explanation"]["points"])
    ]  # fmt: skip


def _drafted(estimate: Mapping[str, Any]) -> int:
    """Draft tokens that a step verifies."""
    widths = [part["width"] for part in estimate["breakdown"] if part["op"].startswith("accept")]
    return int(max(widths, default=0))


def _name(explanation: Mapping[str, Any], point: Point) -> str:
    """An operating point in a legend."""
    requests = counted(point["batch"], "request")
    several = len(prompts_of(explanation)) > 1
    return f"{requests}, prompt {point['prompt_tokens']}" if several else requests


def _title(place: Axes, prompt: int, panels: int) -> None:
    if panels > 1:
        place.set_title(f"prompt {prompt}", fontsize=9, color=INK)


def _at(places: Sequence[float]) -> Any:
    from matplotlib.ticker import FixedLocator

    return FixedLocator(places)
