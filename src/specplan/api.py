"""The public functions; the command line is a thin layer over them.

Nothing here imports torch before a function that runs models is called; without it such a function
raises `MissingCapabilityError`, whose remedy is the command that installs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specplan.progress import Progress, silent

if TYPE_CHECKING:
    from specplan.backends.bundle import Bundle
    from specplan.bundles.decoder import OnText, Prompt, Settings
    from specplan.cost_models.acceptance.drafters import Drafter
    from specplan.cost_models.acceptance.profile import AcceptanceProfile
    from specplan.cost_models.devices.device import Device
    from specplan.cost_models.devices.measured.device import MeasuredDevice
    from specplan.measure.bench.bench import Comparison
    from specplan.planner.method import Method
    from specplan.problems import ProblemLike
    from specplan.result import Result
    from specplan.runtime.generate import Generation


def optimize(
    problem: ProblemLike,
    *,
    out: Path | str | None = None,
    copy_weights: bool = False,
    progress: Progress = silent,
) -> Result:
    """Find the fastest decoding plan of a problem.

    What the problem leaves to be measured is measured on this machine first, or read from its
    `profiles` folder.

    Args:
        problem: a problem, the path of a problem file, or its content as a mapping.
        out: write a bundle to this folder.
        copy_weights: the bundle gets copies of the checkpoints that it runs.
        progress: called during everything that takes long.

    Raises:
        UsageError: the problem is broken, naming its key, or `out` holds something else, or weights
            are to be copied and `out` is None.
        UndecidedError: a bundle is to be written, and no acceptance is known of any drafter.
        InfeasibleError: no plan keeps the limits.
        MissingCapabilityError: measuring needs an extra, or no backend runs a plan, or compiles
            rounds, at all.
    """
    from specplan.gathering import find
    from specplan.problems import as_problem
    from specplan.result import Result

    checked = as_problem(problem)
    if out is not None or copy_weights:
        from specplan.bundles.writing import check_out

        check_out(checked, out, copy_weights=copy_weights)
    result = Result(find(checked, progress))
    if out is None:
        return result
    from specplan.bundles.writing import write_result
    from specplan.result import check_decided

    check_decided(result.search.undecided, "a bundle", "--out")

    return Result(result.search, write_result(result, Path(out), copy_weights=copy_weights))


def profile_device(
    problem: ProblemLike,
    *,
    passes: int | None = None,
    batches: Sequence[int] = (),
    contexts: Sequence[int] = (),
    progress: Progress = silent,
) -> MeasuredDevice:
    """Measure on this machine what the problem's candidates are priced by; goes on where it was.

    Of backends that compile rounds, some rounds are timed beside the interpreter's.

    Args:
        problem: a problem, the path of a problem file, or its content as a mapping.
        passes: over the grid, at least; None for the usual number.
        batches: batch sizes to measure at beside the problem's.
        contexts: contexts in tokens to measure at beside the problem's.
        progress: called after every visit.

    Raises:
        UsageError: the problem is broken, naming its key.
        MissingCapabilityError: running models needs an extra, or one of the problem's backends
            compiles no rounds here; all else is measured before.
    """
    from specplan.gathering import open_bench
    from specplan.problems import as_problem, compilers_of

    checked = as_problem(problem)
    bench, facts = open_bench(checked)
    from specplan.measure.device.profile import PASSES, measure_device

    return measure_device(
        bench,
        facts,
        progress=progress,
        passes=passes or PASSES,
        batches=batches,
        contexts=contexts,
        compilers=compilers_of(checked),
    )


def profile_acceptance(
    problem: ProblemLike,
    *,
    limit: int | None = None,
    precision: float | None = None,
    progress: Progress = silent,
) -> dict[Drafter, AcceptanceProfile]:
    """Measure what the target accepts from every drafter that the problem names no file for.

    Args:
        problem: with `workload.prompts`.
        limit: use only so many prompts.
        precision: stop when the 90 % intervals of tokens per round are within this part of their
            means; 0 for all prompts, None for the usual part.
        progress: called after every prompt.

    Raises:
        UsageError: the problem is broken, naming its key.
        MissingCapabilityError: running models needs an extra.
    """
    from specplan.gathering import open_bench
    from specplan.problems import as_problem

    bench, facts = open_bench(as_problem(problem))
    from specplan.measure.acceptance.profile import PRECISION, measure_acceptance

    wanted = PRECISION if precision is None else precision
    return measure_acceptance(bench, facts, progress=progress, limit=limit, precision=wanted)


def generate(
    bundle: Bundle | Path | str,
    prompts: Sequence[Prompt],
    settings: Settings | None = None,
    on_text: OnText | None = None,
) -> Generation:
    """Continue prompts with a bundle's plan; `Decoder` keeps it open for more than one call.

    Raises:
        UsageError: the bundle or a checkpoint has changed, or a prompt or setting is wrong.
        MissingCapabilityError: running models needs an extra.
    """
    from specplan.bundles.decoder import Decoder, Settings

    return Decoder(bundle).generate(prompts, settings or Settings(), on_text)


def bench(
    bundle: Bundle | Path | str,
    *,
    prompts: Path | str | None = None,
    batch: int = 1,
    limit: int | None = None,
    repeats: int = 3,
    kinds: bool = False,
    stock: bool = True,
    progress: Progress = silent,
) -> Comparison:
    """Compare a bundle's plan with plain decoding and stock `transformers`, in interleaved runs.

    A bundle with compiled rounds is run by them and by the interpreter.

    Args:
        bundle: a bundle or its folder.
        prompts: JSON Lines of prompts instead of those of the bundle's problem.
        batch: requests decoded together; one of the problem's batch sizes has a prediction.
        limit: use only so many prompts.
        repeats: runs of each group of prompts by each contender.
        kinds: run the best candidate of every other family too.
        stock: run `transformers.generate` too.
        progress: called after every run.

    Raises:
        UsageError: the bundle or a checkpoint has changed, or has no prompts.
        NothingToCompareError: there are fewer prompts than `batch`.
        MissingCapabilityError: running models needs an extra, or the compiled rounds are for other
            machines.
    """
    from specplan.bundles.contest import chosen_name, contestants, problem_of
    from specplan.bundles.writing import open_bundle
    from specplan.runtime import require_torch

    require_torch()
    from specplan.backends.bundle_executable import open_executable
    from specplan.backends.machine import check_machine
    from specplan.measure.bench.bench import compare
    from specplan.measure.workbench import Workbench

    opened = open_bundle(bundle)
    check_machine(opened)
    opened.check_models()
    workbench = Workbench(problem_of(opened, prompts))
    compiled = opened.executables is not None
    return compare(
        workbench,
        contestants(opened, batch, kinds=kinds),
        chosen=chosen_name(opened),
        compiled=open_executable(opened, workbench.models) if compiled else None,
        batch=batch,
        limit=limit,
        repeats=repeats,
        stock=stock,
        progress=progress,
    )


def explain(bundle: Bundle | Path | str) -> str:
    """Why a bundle's plan was chosen, in words.

    Raises:
        UsageError: the folder is no bundle, or a file has changed; says which.
    """
    from specplan.backends.bundle import Bundle, load_bundle
    from specplan.bundles.report import reading_report
    from specplan.planner.explain.words import explain_words

    opened = bundle if isinstance(bundle, Bundle) else load_bundle(bundle)
    with reading_report(opened):
        return "\n".join(explain_words(opened.report["explanation"]))


def problem_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a problem file."""
    from specplan.planner.problem.schema import problem_json_schema

    return problem_json_schema()


def list_methods() -> tuple[Method[Any], ...]:
    """Every drafting method, those of installed packages too, by name.

    Raises:
        UsageError: another package brings a broken method.
    """
    from specplan.planner.method import discover_methods

    return tuple(method for _, method in sorted(discover_methods().items()))


def list_devices() -> tuple[Device, ...]:
    """Every device known by name."""
    from specplan.cost_models.devices.device import list_devices, load_device

    return tuple(load_device(name) for name in list_devices())
