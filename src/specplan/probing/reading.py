"""Importing a probe: acceptance profiles, measured times, and a problem that uses both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specplan.backends.engines.probe import Point
from specplan.backends.engines.probe_results import ArmResults, ProbeResults, read_results
from specplan.ir.files import check_destination
from specplan.probing.writing import facts_of

if TYPE_CHECKING:
    from specplan.cost_models.acceptance.profile import AcceptanceProfile
    from specplan.cost_models.devices.engine_runs import ServedRun
    from specplan.planner.facts import ProblemFacts

PROBLEM, PROFILES, STORED = "problem.yaml", "profiles", "import.json"
"""Of an import: the problem, the folder of measured times, and what was understood."""


@dataclass(frozen=True)
class ProbeImport:
    """What a probe measured, as files for the next `optimize`.

    Attributes:
        folder: of the files.
        results: what was read.
        profiles: the acceptance profiles by drafter.
        served: per arm and operating point, as it is stored.
    """

    folder: Path
    results: ProbeResults
    profiles: Mapping[str, AcceptanceProfile]
    served: Mapping[str, Mapping[Point, ServedRun]]

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON; times in seconds."""
        from specplan.importing import understood

        return {
            "kind": "probe import",
            "schema_version": 1,
            "engine": self.results.title,
            "prompts": self.results.prompts,
            "missing": list(self.results.missing),
            "problem": str(self.folder / PROBLEM),
            "acceptance": {
                name: {"profile": str(_profile_path(self.folder, name)), "words": understood(one)}
                for name, one in self.profiles.items()
            },
            "points": [
                {"arm": arm, **asdict(point), **_times(run)}
                for arm, runs in self.served.items()
                for point, run in runs.items()
            ],
        }


def import_probe(folder: Path | str, out: Path | str) -> ProbeImport:
    """Acceptance profiles, measured times, and a problem that uses both, of a probe's results.

    A step with drafts takes the same time whatever is accepted. It is measured on random tokens, of
    exact lengths; the time of an output token is that of a step over the tokens that a step gives
    on real text.

    Args:
        folder: of the probe, with its results.
        out: the folder to write; it may hold an earlier import.

    Raises:
        UsageError: a run has not finished, failed or is of another server; or what the problem
            names is no longer there.
    """
    import yaml

    from specplan.ir.files import staged, write_atomic, write_json_atomic
    from specplan.planner.problem.loading import problem_from_dict

    destination = Path(out).resolve()
    check_destination(destination, STORED, "import of a probe")
    results = read_results(Path(folder).resolve())
    problem = problem_from_dict(results.problem)
    facts = facts_of(problem, None)
    profiles = {arm.name: _profile(facts, results, arm) for arm in results.arms if arm.drafter}
    served = {arm.name: _on_text(arm, profiles.get(arm.name)) for arm in results.arms}
    with staged(destination) as staging:
        for name, profile in profiles.items():
            profile.save(_profile_path(staging, name))
        _remember(facts, staging, results, served)
        data = problem.model_dump(mode="json", exclude_defaults=True)
        data |= {"schema_version": problem.schema_version, "profiles": PROFILES}
        own = {name: _profile_path(Path(), name).name for name in profiles}
        data["acceptance"] = data.get("acceptance", {}) | own
        write_atomic(staging / PROBLEM, yaml.safe_dump(data, sort_keys=False))
        done = ProbeImport(destination, results, profiles, served)
        write_json_atomic(staging / STORED, done.as_dict())
    return done


def _profile_path(folder: Path, drafter: str) -> Path:
    return folder / f"{drafter}.json"


def _profile(facts: ProblemFacts, results: ProbeResults, arm: ArmResults) -> AcceptanceProfile:
    from specplan.cost_models.acceptance.drafter_texts import read_drafter
    from specplan.cost_models.acceptance.importers.base import ImportRequest
    from specplan.cost_models.acceptance.importers.registry import read_profile
    from specplan.planner.drafters.profiles import acceptance_key

    assert arm.prompts is not None, "an arm with a drafter drafts on prompts"
    key = acceptance_key(facts.problem, facts.shapes, read_drafter(arm.drafter))
    request = ImportRequest(key, draft_tokens=arm.draft_tokens, rounds=arm.prompt_steps)
    profile = read_profile(arm.prompts, request)
    provenance = {**profile.provenance, "engine": results.title, "prompts": results.prompts}
    return replace(profile, provenance=provenance)


def _on_text(arm: ArmResults, profile: AcceptanceProfile | None) -> Mapping[Point, ServedRun]:
    """The runs of an arm as they would be on real text, as many tokens being accepted there."""
    if profile is None:
        return arm.runs
    chain = tuple(range(-1, arm.draft_tokens - 1)), (0,) * arm.draft_tokens
    tokens = profile.tokens_per_round(*chain).mean
    return {point: _with_tokens(run, tokens) for point, run in arm.runs.items()}


def _with_tokens(run: ServedRun, tokens: float) -> ServedRun:
    first, length = run.first_token_seconds or 0.0, run.tokens_per_round
    assert length is not None, "a run that drafts counts its tokens"
    seconds = first + (run.request_seconds - first) * length / tokens
    return replace(run, request_seconds=seconds, tokens_per_round=tokens)


def _times(run: ServedRun) -> dict[str, float | None]:
    first = run.first_token_seconds or 0.0
    per_token = (run.request_seconds - first) / max(run.output_tokens - 1.0, 1.0)
    return {
        "ttft": run.first_token_seconds,
        "tpot": per_token,
        "tokens_per_step": run.tokens_per_round,
        "step": per_token * (run.tokens_per_round or 1.0),
    }


def _remember(
    facts: ProblemFacts,
    folder: Path,
    results: ProbeResults,
    served: Mapping[str, Mapping[Point, ServedRun]],
) -> None:
    """Store the measured times where the problem in the folder looks for them."""
    from specplan.ir.text.parser import parse_plan
    from specplan.planner.measured.served import remember_served, served_plan

    problem = facts.problem.model_copy(update={"profiles": folder / PROFILES})
    here = replace(facts, problem=problem)
    for arm in results.arms:
        plan = parse_plan(arm.plan)
        for run in served[arm.name].values():
            remember_served(here, served_plan(here, run, plan, arm.method, arm.words), run)
