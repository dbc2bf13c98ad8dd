"""Plans and problems in the words of a user: K, draft tokens, no speculation, step."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from specplan.planner.explain.numbers import counted, short
from specplan.planner.training.families import FAMILIES

PLAIN = "autoregressive"
NO_SPECULATION = "no speculation"
SCHEDULE = "schedule"
EDITED = "edited_plan"
"""Stands for the method of a plan that a person wrote or edited."""
_DRAFTERS = {
    "draft_model": "draft model",
    "eagle3": "head",
    "lookup_by_match": "prompt lookup by match",
    "lookup_or_draft": "draft model",
    "block_drafter": "block drafter",
    "mtp": "MTP modules",
}
"""Methods that have another name in the field; those with a draft of the problem go before it."""
_BEFORE = {"lookup_or_draft": "prompt lookup or"}
"""Methods in which something drafts before the draft of the problem does."""
_HEADS = {
    **{name: family.words for name, family in FAMILIES.items()},
    "kangaroo": "Kangaroo adapter",
    "multi_token": "multi-token heads",
}
"""Heads by the family of their checkpoint."""
_SIZE = re.compile(r"\b(?:chain|up to) (?:of )?(\d+)(?: tokens)?\b")
_BY = re.compile(r"\bby (\S+?)(, drawn)?$")
_AT_MOST = re.compile(r"^(batch|context) <= ([\d.]+)$")


def drafter_name(candidate: Mapping[str, Any]) -> str:
    """Who drafts: `EAGLE-3 head "eagle"`, `prompt lookup`."""
    before = _BEFORE.get(candidate["method"], "")
    return f"{before} {_own_name(candidate)}".lstrip()


def _own_name(candidate: Mapping[str, Any]) -> str:
    method, draft = candidate["method"], _draft(candidate)
    name = _HEADS.get(candidate.get("head", "")) or _DRAFTERS.get(method, method.replace("_", " "))
    return f'{name} "{draft}"' if draft else name


def _draft(candidate: Mapping[str, Any]) -> str | None:
    """The draft of the problem that it runs; by its words where its options are not at hand."""
    draft = candidate.get("options", {}).get("draft")
    if isinstance(draft, str):
        return draft
    named = candidate["method"] in _DRAFTERS or "head" in candidate
    by = _BY.search(str(candidate["words"])) if named else None
    return by[1] if by and "options" not in candidate else None


def _the(candidate: Mapping[str, Any]) -> str:
    """The drafter with its article; techniques such as prompt lookup have none."""
    name, before = _own_name(candidate), _BEFORE.get(candidate["method"], "")
    return f"{before} the {name}".lstrip() if name.endswith(('"', "modules")) else name


def size_name(candidate: Mapping[str, Any]) -> str:
    """How much it drafts per step: `K=6`, `tree of 63, depth 5`."""
    words, draft = str(candidate["words"]), _draft(candidate)
    if draft:
        words = re.sub(rf",? by {re.escape(draft)}\b", "", words)
    chain, how = _SIZE.match(words), ", drawn" if words.endswith(", drawn") else ""
    return f"K={chain[1]}{how}" if chain else re.sub(r"\bchain of (\d+)", r"K=\1", words)


def plan_name(candidate: Mapping[str, Any]) -> str:
    """A plan in a few words, such as `EAGLE-3 head "eagle" K=6`."""
    method, words = candidate["method"], str(candidate["words"])
    if method == PLAIN:
        return NO_SPECULATION
    if method == EDITED:
        return f'edited plan "{words}"'
    if method != SCHEDULE:
        return f"{drafter_name(candidate)} {size_name(candidate)}"
    draws = re.findall(r"\bchain of (\d+)\b|\btree of (\d+)\b", words)
    sizes = list(dict.fromkeys(one or other for one, other in draws))
    if f"{PLAIN} plain" in words:
        sizes.append("none")
    return f"K by batch size ({', '.join(sizes)})"


def advice(explanation: Mapping[str, Any]) -> str:
    """What to do, in a sentence without its gain."""
    chosen = explanation["chosen"]
    if chosen["method"] == PLAIN:
        return f"Use {NO_SPECULATION}."
    if chosen["method"] == EDITED:
        return f"Your {plan_name(chosen)}, which specplan did not choose."
    rules = explanation["rules"]
    if not rules:
        tokens = max((one["draft_tokens"] for one in explanation["points"]), default=0)
        drafts = size_name(chosen)
        if drafts.startswith("K=") and tokens:
            drafts = f"{counted(tokens, 'draft token')} per step ({drafts})"
        return f"Use {_the(chosen)}: {drafts}."
    drafting = [rule for rule in rules if rule["method"] != PLAIN]
    names = list(dict.fromkeys(map(_the, drafting)))
    one = len(names) == 1
    parts = [_rule(rule, one, place == 0, rules) for place, rule in enumerate(rules)]
    head = f"Use {names[0]}: " if one else "Use "
    return f"{head}{', '.join(parts)}."


def _rule(rule: Mapping[str, Any], one: bool, first: bool, rules: Any) -> str:
    """One stretch of a schedule; only the first says what is counted."""
    size = size_name(rule)
    count = size.removeprefix("K=") if size.startswith("K=") else size
    if rule["method"] == PLAIN:
        text = "none" if one else NO_SPECULATION
    elif one:
        text = counted(int(count), "draft token") if first and count.isdigit() else count
    else:
        text = f"{_the(rule)} with {size}"
    return f"{text} {_where(rule['condition'], first, rules)}"


def _where(condition: str | None, first: bool, rules: Any) -> str:
    """Where a rule applies; the last one above all bounds, where those are simple."""
    bounds = [_AT_MOST.match(rule["condition"] or "") for rule in rules[:-1]]
    simple = len({bound[1] for bound in bounds if bound} | {None} & set(bounds)) == 1
    if condition is None:
        return "above" if simple else "elsewhere"
    bound = _AT_MOST.match(condition)
    if bound is None:
        return f"where {condition}"
    unit = {"batch": "requests", "context": "tokens of context"}[bound[1]] if first else ""
    return f"up to {int(float(bound[2]))} {unit}".rstrip()


def times(number: float) -> str:
    """A gain: `2.9x`, with two decimals below 2."""
    return f"{number:.2f}x" if number < 1.995 else f"{number:.1f}x"


def spread(interval: Mapping[str, float]) -> str:
    """The ends of an interval, as `2.7-3.1x`."""
    digits = 2 if interval["mean"] < 1.995 else 1
    return f"{interval['low']:.{digits}f}-{interval['high']:.{digits}f}x"


def milliseconds(seconds: float) -> str:
    """A time in ms, three digits, without its unit."""
    number = 1e3 * seconds
    return short(number) if number < 10 else f"{number:.1f}" if number < 100 else f"{number:.0f}"


def problem_name(explanation: Mapping[str, Any]) -> str:
    """The problem in a line."""
    setting, points = explanation["setting"], explanation["points"]
    prompts = sorted({point["prompt_tokens"] for point in points})
    shown = map(str, prompts) if len(prompts) < 4 else (f"{prompts[0]}..{prompts[-1]}",)
    output = setting["output_tokens"]
    lengths = f"prompt {', '.join(shown)}" + (f" + {output}" if output else "")
    if setting.get("cached_prefix"):
        lengths += f", {setting['cached_prefix']} of the prompt cached"
    heat, parts_of = setting["temperature"], {"weights": "weight_format", "caches": "kv_format"}
    formats = {part: setting.get(key) for part, key in parts_of.items()}
    stated = "".join(f", {part} in {form}" for part, form in formats.items() if form)
    parts = [
        f"{setting['target']} {setting['dtype']}{stated}",
        setting["device"],
        ", ".join(setting["backends"]),
        lengths,
        "greedy" if heat == 0.0 else f"temperature {heat:g}",
    ]
    if explanation["objective"] != "latency":
        parts.append(f"objective: {explanation['objective']}")
    return " | ".join(parts)
