"""What a probe printed: the runs of each arm, read from `results/` and checked one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from specplan.backends.engines.probe import KIND, PLAIN, SCHEMA_VERSION, STATEMENT, Point
from specplan.cost_models.devices.engine_runs import ServedRun, read_benchmark, read_counters
from specplan.cost_models.foreign_file import Source
from specplan.ir.errors import UsageError
from specplan.ir.files import read_document

_AGAIN = "Run probe.sh again: it goes on where it stopped. Then import again."
_REMEDY = "Give the folder that `specplan emit --probe` wrote, or its results folder."


@dataclass(frozen=True)
class ArmResults:
    """What was measured of one server.

    Attributes:
        name: of the arm.
        drafter: who drafts; "" for no speculation.
        draft_tokens: per step (K).
        method: that wrote the plan.
        words: the plan's setting.
        plan: as text.
        prompts: the result on real text; None for no speculation.
        prompt_steps: steps of it that verified drafts; None where the engine does not count them.
        runs: of each operating point, on random tokens.
    """

    name: str
    drafter: str
    draft_tokens: int
    method: str
    words: str
    plan: str
    prompts: Path | None
    prompt_steps: float | None
    runs: Mapping[Point, ServedRun]


@dataclass(frozen=True)
class ProbeResults:
    """All that a probe measured.

    Attributes:
        title: of the engine, with its version.
        prompts: what the drafters drafted on, in words.
        problem: as JSON data.
        arms: those that were run.
        missing: names of those that were not.
    """

    title: str
    prompts: str
    problem: Mapping[str, Any]
    arms: tuple[ArmResults, ...]
    missing: tuple[str, ...]


def read_results(folder: Path) -> ProbeResults:
    """The results of a probe.

    Args:
        folder: of the probe, or its `results`.

    Raises:
        UsageError: nothing was run, a run has not finished or failed in part, or the server that
            answered was another than the probe's.
    """
    statement = folder / STATEMENT
    results = folder / "results" if (folder / "results").is_dir() else folder
    document = read_document(statement, "probe", SCHEMA_VERSION, _REMEDY, KIND)
    try:
        points = [Point(**point) for point in document["points"]]
        arms = [arm for arm in document["arms"] if (results / arm["name"]).is_dir()]
        read = tuple(_arm(results, document["result_suffix"], arm, points) for arm in arms)
        prompts = document["prompts"]
        measured = ProbeResults(
            title=f"{document['title']} {document['version']}",
            prompts=prompts if isinstance(prompts, str) else f"{prompts} prompts of yours",
            problem=document["problem"],
            arms=read,
            missing=tuple(a["name"] for a in document["arms"] if a not in arms),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"this is not a probe folder (no {error})", where=str(statement), remedy=_REMEDY
        ) from error
    if not read:
        raise UsageError(
            "nothing has been measured yet",
            where=str(results),
            remedy="Run probe.sh on the machine that has the device and the engine.",
        )
    return measured


def _arm(results: Path, suffix: str, arm: Mapping[str, Any], points: list[Point]) -> ArmResults:
    folder = results / arm["name"]
    tokens, speculates = int(arm["draft_tokens"]), arm["name"] != PLAIN
    prompts = steps = None
    if speculates:
        source, counters = _run(folder, "prompts", suffix)
        _check_draft_tokens(source, tokens)
        run = read_benchmark(source)
        _check_requests(source, run.requests, None)
        prompts = source.path
        served = read_counters(*counters, batch=1.0)
        if served.tokens_per_round is not None:
            steps = (served.output_tokens - 1.0) * served.requests / served.tokens_per_round
    return ArmResults(
        name=arm["name"],
        drafter=arm["drafter"],
        draft_tokens=tokens,
        method=arm["method"],
        words=arm["words"],
        plan=arm["plan"],
        prompts=prompts,
        prompt_steps=steps,
        runs={point: run for point, run in _timings(folder, suffix, tokens, points)},
    )


def _timings(
    folder: Path, suffix: str, tokens: int, points: list[Point]
) -> Iterator[tuple[Point, ServedRun]]:
    for point in points:
        source, counters = _run(folder, point.name, suffix)
        _check_draft_tokens(source, tokens)
        run = read_benchmark(source, float(point.batch))
        _check_requests(source, run.requests, point.requests)
        counted = read_counters(*counters, batch=float(point.batch)).tokens_per_round
        length = None if not tokens else counted or run.tokens_per_round
        if tokens and length is None:
            raise source.error(
                "neither it nor /metrics counts accepted tokens, so the server did not speculate",
                f"Start the server as {folder.name}/serve.sh does, and run it again.",
            )
        yield point, replace(run, tokens_per_round=length)


def _run(folder: Path, name: str, suffix: str) -> tuple[Source, tuple[Source, Source]]:
    """The result of a run, and the scrapes of `/metrics` after and before it."""
    paths = [folder / f"{name}.{end}" for end in (suffix, "after.txt", "before.txt")]
    for path in paths:
        if not path.is_file() or not path.stat().st_size:
            raise UsageError(
                f'the run {name} of "{folder.name}" has not finished',
                where=str(path),
                remedy=_AGAIN,
            )
    result, after, before = map(Source, paths)
    if not result.documents:
        raise result.error("the result is no JSON: it was cut off", f"Remove it. {_AGAIN}")
    return result, (after, before)


def failed_requests(source: Source) -> int:
    """Requests that failed in the last run of a result; 0 where it does not say."""
    failed = [int(source.number(one, "failed")) for one in source.objects("failed")]
    return failed[-1] if failed else 0


def _check_requests(source: Source, completed: int, wanted: int | None) -> None:
    lost = failed_requests(source)
    if wanted is not None:
        lost = max(lost, wanted - completed)
    if lost > 0:
        log = source.path.with_suffix(".log").name
        raise source.error(
            f"{lost} of {completed + lost} requests failed",
            f"See {log} and server.log beside it for the reason, remove {source.path.stem}.* "
            f"and {source.path.parent.name}/finished. {_AGAIN}",
        )


def draft_lengths(source: Source) -> list[int]:
    """Draft tokens per step (K) of the server that answered; empty where a result does not say."""
    rates = "spec_decode_per_position_acceptance_rates"
    lengths = [len(one[rates]) for one in source.objects(rates) if one[rates]]
    for name, root in (("speculative_num_steps", 0), ("speculative_num_draft_tokens", 1)):
        lengths += [int(one[name]) - root for one in source.objects(name) if one[name]]
    return lengths


def _check_draft_tokens(source: Source, tokens: int) -> None:
    """Refuse a result of a server that drafts otherwise than the probe's."""
    lengths = draft_lengths(source)
    if lengths and tokens not in lengths:
        wanted = f"{tokens} draft tokens per step" if tokens else "no speculation"
        raise source.error(
            f"the server drafted {lengths[0]} tokens per step, and the probe asks for {wanted}",
            f"Start the server as {source.path.parent.name}/serve.sh does, remove these results, "
            "and run probe.sh again.",
        )
