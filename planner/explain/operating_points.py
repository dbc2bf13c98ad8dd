"""What the screen tabulates: the problem in short, every operating point, and what numbers rest on.

All of it is JSON data of the explanation, so that a bundle's report can be shown without models.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.cells import split
from specplan.cost_models.devices.device import Device, device_count
from specplan.cost_models.devices.measured.compiled import CompiledDevice
from specplan.cost_models.devices.measured.device import MeasuredDevice
from specplan.cost_models.devices.roofline import DATA_SHEET
from specplan.cost_models.models.number_formats import RUN_FORMATS
from specplan.planner.explain.governing import decode_gain
from specplan.planner.explain.numbers import interval_data, seconds_data
from specplan.planner.search.candidates import Candidate, judged
from specplan.planner.search.comparing import gains
from specplan.planner.search.limits import unfit
from specplan.planner.search.search import SearchResult
from specplan.planner.search.what_if import listed_drafters


def setting_data(result: SearchResult) -> dict[str, Any]:
    """The problem in short.

    Returns:
        `target`, the name of its folder; `dtype`; `weight_format` and `kv_format`, of its
        matrices and caches where the problem states one, else None; `device` as the problem names
        it, and the number of `devices`; `backends`; `output_tokens`, None for a trace;
        `cached_prefix`, tokens of every prompt that need no prefill; `temperature`; and
        `unmeasured`, the listed drafters whose acceptance is not known.
    """
    facts = result.facts
    problem = facts.problem
    here, asked = problem.device == "measured", problem.models.target.dtype
    return {
        "target": problem.models.target.path.name,
        "dtype": asked if asked in RUN_FORMATS else facts.target.dtype,
        "weight_format": problem.models.target.weight_format,
        "kv_format": problem.models.target.kv_format,
        "device": facts.device.name if here else problem.device,
        "devices": device_count(problem.device),
        "backends": list(problem.all_backends),
        "output_tokens": problem.workload.output_tokens,
        "cached_prefix": problem.workload.cached_prefix,
        "temperature": problem.workload.temperature,
        "unmeasured": [str(one) for one in listed_drafters(facts) if one not in facts.profiles],
    }


def points_data(result: SearchResult, drafting: Candidate | None) -> list[dict[str, Any]]:
    """Every operating point, with and without speculation.

    Args:
        result: of the search.
        drafting: the plan with speculation, chosen or not; None where none has a price.

    Returns:
        Per batch size and prompt length: `method` and `words` of the round that runs there,
        `draft_tokens` that it verifies per step (K; 0 without speculation); `plain_tpot` and
        `tpot`, seconds per output token while decoding; `decode_gain`, how many times as fast;
        `request_gain`, the same of whole requests, prompts included; `plain_ttft` and `ttft`;
        `tokens_per_step`; and `memory_bytes` of all devices, `plain_memory_bytes` without
        speculation.
    """
    plain = result.plain
    with_drafts = plain if drafting is None else drafting
    assert with_drafts.estimate is not None and plain.estimate is not None, "both have a price"
    request_gains = split(
        gains(with_drafts.estimate, plain.estimate, "latency"), len(plain.estimates)
    )
    parts = {place: part for part, places in with_drafts.parts for place in places}
    points = []
    for place, (own, base) in enumerate(zip(with_drafts.estimates, plain.estimates, strict=True)):
        part = parts[place]
        tree = judged(part)
        points.append(
            {
                "batch": int(own.batch),
                "prompt_tokens": int(own.prompt_tokens),
                **part.named,
                "draft_tokens": 0 if tree is None else tree.nodes,
                "plain_tpot": seconds_data(base.seconds_per_token),
                "tpot": seconds_data(own.seconds_per_token),
                "decode_gain": decode_gain(own, base),
                "request_gain": interval_data(request_gains[place]),
                "plain_ttft": seconds_data(base.ttft),
                "ttft": seconds_data(own.ttft),
                "tokens_per_step": interval_data(own.tokens_per_round),
                "plain_memory_bytes": interval_data(base.memory.interval),
                "memory_bytes": interval_data(own.memory.interval),
            }
        )
    return points


def unfit_data(result: SearchResult) -> list[dict[str, Any]]:
    """Operating points at which a plan does not fit in memory, and what would make it fit.

    Returns:
        Those that are left out, as nothing fits there, and those at which the drafting models of
        the chosen plan do not fit and are not loaded (`drafting`): `batch`, `prompt_tokens`,
        `needed_bytes` and `allowed_bytes` of all devices, and `ways` to fit in words, each of which
        suffices alone; where none does, those that save most (`enough`).
    """
    chosen, plain = result.chosen, result.plain
    assert chosen.plan is not None and plain.plan is not None, "both have a price"
    cells = [chosen.estimates[place] for place in chosen.alone]
    without = [(int(one.batch), int(one.prompt_tokens)) for one in cells]
    entries = []
    for plan, points, drafting in (
        (plain.plan, result.left_out, False),
        (chosen.plan, without, True),
    ):
        for batch, prompt in points:
            one = unfit(result.facts, plan, batch, prompt)
            enough = [way for way in one.ways if way.enough]
            entries.append(
                {
                    "batch": batch,
                    "prompt_tokens": prompt,
                    "drafting": drafting,
                    "needed_bytes": one.needed,
                    "allowed_bytes": one.allowed,
                    "enough": bool(enough),
                    "ways": [way.words for way in enough or one.ways],
                }
            )
    return entries


def rules_data(candidate: Candidate) -> list[dict[str, Any]]:
    """Which round of a schedule runs where, in order; empty for a plan of one round.

    Each has its `condition`, None for the last, and `method`, `words`, `options` and
    `draft_tokens` of the round.
    """
    schedule = None if candidate.plan is None else candidate.plan.schedule
    if schedule is None or not candidate.by_cell:
        return []
    sizes = {}
    for part, _ in candidate.parts:
        tree = judged(part)
        sizes[part.method, part.words] = 0 if tree is None else tree.nodes
    pairs = [(str(guard.formula), guard.round) for guard in schedule.guards]
    rules = []
    for condition, name in _last_guards([*pairs, (None, schedule.otherwise)], candidate.options):
        options = dict(candidate.options[name])
        method, words, head = options.pop("method"), options.pop("words"), options.pop("head", "")
        rules.append(
            {
                "condition": condition,
                "method": method,
                "words": words,
                **({"head": head} if head else {}),
                "options": options,
                "draft_tokens": sizes[method, words],
            }
        )
    return rules


def _last_guards(
    pairs: Sequence[tuple[str | None, str]], parts: Mapping[str, Any]
) -> Iterator[tuple[str | None, str]]:
    """Condition and name of each part of a schedule.

    A part with a schedule of its own has several guards in a row, for rounds that are named after
    it (`r0_first`, `r0_rest`): the last of them has the condition of the part alone.
    """
    owners = [
        next(part for part in parts if name == part or name.startswith(f"{part}_"))
        for _, name in pairs
    ]
    for (condition, _), owner, following in zip(pairs, owners, [*owners[1:], None], strict=True):
        if owner != following:
            yield condition, owner


def basis_data(result: SearchResult, drafting: Candidate | None) -> list[dict[str, Any]]:
    """What the numbers rest on: times, then the acceptance of every drafter with a profile.

    Args:
        result: of the search.
        drafting: the plan with speculation, chosen or not; None where none has a price.

    Each has `of` (`times` or a drafter), `kind` (`measured`, `imported`, `assumed`, `data sheet`,
    `given`), `words`, for times under an engine's stack `stack`, the
    `date` of the measurement (ISO 8601, None where unknown or none was
    made), and `used`: whether the plan with speculation drafts with it.
    """
    facts = result.facts
    basis, name = facts.device.basis(facts.shapes.values()), facts.device.name
    times = {"kind": "measured", "words": f"{name} {basis}"}
    if basis == DATA_SHEET:
        times = {"kind": "data sheet", "words": name}
    elif basis.startswith(DATA_SHEET):
        stack = basis.removeprefix(f"{DATA_SHEET}; ")
        times = {"kind": "data sheet", "words": name, "stack": stack}
    elif basis == "was measured":
        times = {"kind": "measured", "words": name}
    if facts.capabilities is not None and facts.capabilities.device_words:
        times["words"] += f"; {facts.capabilities.device_words}"
    parts = () if drafting is None else drafting.parts
    used = {str(part.drafter) for part, _ in parts if part.drafter is not None}
    return [
        {"of": "times", **times, "date": _measured_on(facts.device), "used": True},
        *(
            {"of": str(drafter), **_acceptance(profile), "used": str(drafter) in used}
            for drafter, profile in facts.profiles.items()
        ),
    ]


def _measured_on(device: Device) -> str | None:
    """The day on which a device was measured; None for one that is computed."""
    return device.provenance.date if isinstance(device, MeasuredDevice | CompiledDevice) else None


def _acceptance(profile: AcceptanceProfile) -> dict[str, str | None]:
    day = profile.provenance.get("date") or None
    return {**_acceptance_words(profile), "date": None if day is None else str(day)}


def _acceptance_words(profile: AcceptanceProfile) -> dict[str, str]:
    if profile.assumption is not None:
        return {"kind": "assumed", "words": profile.assumption}
    if profile.positions:
        return {"kind": "measured", "words": f"on {profile.prompts} prompts"}
    words = profile.source
    if words.startswith("was imported "):
        return {"kind": "imported", "words": words.removeprefix("was imported ")}
    return {"kind": "given", "words": words.removeprefix("is ")}
