"""Plans that a person wrote or edited: verified, priced beside the search, and bundled.

The search runs as for `specplan optimize`; its own choice stays among the candidates, and the
edited plan takes the place of the chosen one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from specplan.cost_models.acceptance.drafters import Drafter, Drawn, Model, OwnRounds
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.estimate import Estimate
from specplan.cost_models.quality.certificate import check_certified
from specplan.cost_models.rounds.pricing import Unpriced
from specplan.ir.capabilities import Capabilities
from specplan.ir.errors import InfeasibleError, MissingCapabilityError, UsageError
from specplan.ir.files import model_digest
from specplan.ir.plan import Plan
from specplan.ir.rules.verify import check_plan
from specplan.ir.types.infer import infer_round
from specplan.ir.types.value_types import TreeType
from specplan.planner.answer.names import EDITED
from specplan.planner.method import discover_methods
from specplan.planner.problem.schema import Problem
from specplan.planner.search.candidates import Candidate, judged
from specplan.planner.search.limits import unsupported, with_price
from specplan.planner.search.search import SearchResult
from specplan.planner.search.settings import PLAIN, pricer_of, without_loads
from specplan.problems import ProblemLike, as_problem, each_variant
from specplan.progress import Progress, silent
from specplan.result import Result

if TYPE_CHECKING:
    from specplan.backends.bundle import Bundle
    from specplan.cost_models.quality.certificate import Certificate
    from specplan.measure.bench.bench import Comparison
    from specplan.planner.facts import ProblemFacts


def price_edited(plan: Plan, problem: ProblemLike, progress: Progress = silent) -> Result:
    """The result of a search whose choice is a person's plan.

    Acceptance is that of the drafter whose profile prices the rounds; where there is none, the
    rounds are run on the problem's prompts.

    Args:
        plan: any plan of the problem's models; it is verified here.
        problem: a problem, the path of a problem file, or its content as a mapping; of several
            backends the first is taken.
        progress: called during everything that takes long.

    Raises:
        UsageError: the plan breaks a rule of the language, runs a model that the problem does not
            name or another checkpoint, or has no price; or the problem is broken.
        InfeasibleError: the plan misses a limit of the problem, or every plan does.
        MissingCapabilityError: the backend does not run the plan, or measuring needs an extra.
    """
    from specplan.gathering import find

    checked = each_variant(as_problem(problem))[0]
    check_plan(plan)
    _check_roles(plan, {"target", *checked.models.by_role})
    searched = find(checked, progress)
    _check_digests(plan, searched.facts)
    refusal = unsupported(searched.facts, plan)
    if refusal is not None:
        raise MissingCapabilityError(
            f"backend {checked.backend} does not run the plan: {refusal}",
            where=f"plan {plan.name}",
            remedy="Edit the plan, or name another backend; `specplan lint` says which run it.",
        )
    known, drafter, price = _priced(searched, plan, progress)
    edited = Candidate(EDITED, EDITED, {}, plan.name, drafter=drafter, plan=plan)
    edited = with_price(known, edited, price)
    if edited.refusal is not None:
        raise InfeasibleError(
            edited.refusal, where=f"plan {plan.name}", remedy="Loosen the limit, or edit the plan."
        )
    candidates = (*searched.candidates, edited)
    return Result(replace(searched, facts=known, candidates=candidates, chosen=edited, what_if=()))


def _check_roles(plan: Plan, roles: set[str]) -> None:
    missing = [name for name in plan.models_run if name not in roles]
    if missing:
        raise UsageError(
            f"the problem has no model called {', '.join(missing)}",
            where=f"plan {plan.name}",
            remedy=f"It has {', '.join(sorted(roles))}; add it to models.drafts, or rename it.",
        )


def _check_digests(plan: Plan, facts: ProblemFacts) -> None:
    for model in plan.models:
        shape = facts.shapes.get(model.name)
        if model.digest and shape is not None and model.digest != shape.digest:
            raise UsageError(
                f"the problem's {model.name} is not the checkpoint the plan was made for",
                where=f"plan {plan.name}",
                remedy="Name that checkpoint, or take digest= out of the plan.",
            )


def _priced(
    searched: SearchResult, plan: Plan, progress: Progress
) -> tuple[ProblemFacts, Drafter | None, Estimate]:
    """The plan's price, who drafts, and the facts with the acceptance that it rests on.

    Raises:
        UsageError: no acceptance is known that prices it.
    """
    facts = searched.facts
    pricer = without_loads(pricer_of(facts), searched.left_out)
    for drafter, profile in _acceptances(searched, plan):
        price = pricer.estimate(plan, profile)
        if not isinstance(price, Unpriced):
            return facts, drafter, price
    own = OwnRounds.of(plan)
    if facts.problem.workload.prompts is None:
        raise UsageError(
            f"no acceptance that is known prices the rounds of plan {plan.name}",
            where="workload.prompts",
            remedy="Give prompts, on which its rounds are run.",
        )
    profile = _measured(facts, plan, progress)
    price = pricer.estimate(plan, profile)
    if isinstance(price, Unpriced):
        raise UsageError(
            f"the plan has no price: {price}",
            where=f"plan {plan.name}",
            remedy="Measure the device for what the plan runs, or edit the plan.",
        )
    return replace(facts, profiles={**facts.profiles, own: profile}), own, price


def _acceptances(
    searched: SearchResult, plan: Plan
) -> Iterator[tuple[Drafter | None, AcceptanceProfile | None]]:
    """Profiles that may price a plan, the likeliest first; None for one that drafts nothing."""
    profiles = searched.facts.profiles
    tree = _judged(plan)
    if tree is None or not tree.nodes:
        yield None, None
        return
    known = [one for one in searched.candidates if one.priced and one.plan is not None]
    same = [one.drafter for one in known if one.plan == plan]
    ops, own = _ops(plan), OwnRounds.of(plan)
    alike = [one.drafter for one in known if one.plan is not None and _ops(one.plan) == ops]
    others = [name for name in plan.models_run if name != "target"]
    alone = len(others) == 1 and not any("lookup" in of_round for of_round in ops)
    models: list[Drafter | None] = [Model(others[0])] if alone else []
    if alone and tree.drawn:
        models.insert(0, Drawn(others[0]))
    for drafter in dict.fromkeys([*same, own, *models, *alike]):
        if drafter in profiles and (drafter == own or not isinstance(drafter, OwnRounds)):
            assert drafter is not None
            yield drafter, profiles[drafter]


def _ops(plan: Plan) -> tuple[tuple[str, ...], ...]:
    """Keywords of the ops of each round, in order."""
    return tuple(
        tuple(step.op.keyword for step in infer_round(plan, item).steps) for item in plan.rounds
    )


def _judged(plan: Plan) -> TreeType | None:
    return judged(Candidate(EDITED, EDITED, {}, "", plan=plan))


def _measured(facts: ProblemFacts, plan: Plan, progress: Progress) -> AcceptanceProfile:
    from specplan.gathering import open_bench

    bench, known = open_bench(facts.problem)
    from specplan.measure.acceptance.profile import measure_rounds

    profile = measure_rounds(bench, known, plan, progress=progress)
    runs = facts.capabilities
    all_trips = isinstance(runs, Capabilities) and runs.all_trips
    return profile.with_all_trips() if all_trips else profile


def write_edited(
    plan: Plan,
    problem: ProblemLike,
    out: Path,
    progress: Progress = silent,
    certified: Certificate | None = None,
) -> Bundle:
    """Write the bundle of a person's plan; see `price_edited`.

    Args:
        plan: any plan of the problem's models; one that promises a bounded loss has a certificate.
        problem: as there.
        out: folder of the bundle.
        progress: called during everything that takes long.
        certified: what shows that the plan keeps its promise.

    Raises:
        UsageError: `out` holds something else than a bundle.
    """
    from specplan.bundles.writing import check_out, write_result

    checked = as_problem(problem)
    check_out(checked, out)
    check_certified(plan, certified, _digests(checked, plan), f"plan {plan.name}")
    return write_result(price_edited(plan, checked, progress), out, certified=certified)


def _digests(problem: Problem, plan: Plan) -> dict[str, str]:
    """Of the checkpoints that a plan runs, where it promises what a certificate has to show."""
    if plan.assumptions.law.name != "bounded":
        return {}
    named = problem.models.by_role
    return {role: model_digest(named[role].path) for role in plan.models_run if role in named}


def bench_edited(
    plan: Plan,
    problem: ProblemLike,
    *,
    batch: int = 1,
    limit: int | None = None,
    repeats: int = 3,
    stock: bool = True,
    progress: Progress = silent,
) -> Comparison:
    """Compare a person's plan with plain decoding, without a prediction.

    Args:
        plan: it is verified here.
        problem: names the models and the prompts.
        batch: requests decoded together.
        limit: use only so many prompts.
        repeats: runs of each group of prompts.
        stock: run `transformers.generate` too.
        progress: called after every run.

    Raises:
        UsageError: the plan breaks a rule, or runs a model or a checkpoint that is not there.
        NothingToCompareError: there are fewer prompts than `batch`.
    """
    checked = as_problem(problem)
    check_plan(plan)
    _check_roles(plan, {"target", *checked.models.by_role})
    from specplan.gathering import open_bench

    bench, facts = open_bench(checked)
    from specplan.measure.bench.bench import compare
    from specplan.planner.templates.plan_text import plain_plan

    _check_digests(plan, facts)
    plain = plain_plan(facts, discover_methods()[PLAIN])
    return compare(
        bench,
        {PLAIN: (plain, None), f"{EDITED}: {plan.name}": (plan, None)},
        chosen=f"{EDITED}: {plan.name}",
        batch=batch,
        limit=limit,
        repeats=repeats,
        stock=stock,
        progress=progress,
    )


def problem_of_models(
    models: Mapping[str, Path], prompts: Path, batch: int, output_tokens: int = 128
) -> Problem:
    """A problem that only names models and prompts, for running plans on them.

    Raises:
        UsageError: a folder is no checkpoint, or there is no target.
    """
    if "target" not in models:
        raise UsageError(
            "no checkpoint is named for target", where="--model", remedy="Add --model target=DIR."
        )
    drafts = [{"name": n, "path": str(p.resolve())} for n, p in models.items() if n != "target"]
    return as_problem(
        {
            "schema_version": 1,
            "models": {"target": {"path": str(models["target"].resolve())}, "drafts": drafts},
            "device": "cpu-generic",
            "workload": {
                "batch_sizes": [batch],
                "prompt_tokens": 1,  # nothing is priced
                "output_tokens": output_tokens,
                "prompts": str(prompts.resolve()),
            },
        }
    )
