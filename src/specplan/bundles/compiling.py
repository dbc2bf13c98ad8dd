"""A bundle's rounds for the shapes of its workload: compiled here, or as sources of engines."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specplan.backends.bundle import Bundle, load_bundle, write_executables, write_kernels
from specplan.bundles.report import reading_report
from specplan.bundles.writing import open_bundle
from specplan.cost_models.models.number_formats import cache_formats
from specplan.cost_models.placement import streamed_layers
from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.ir.files import check_destination, name_of, staged
from specplan.ir.text.printer import print_plan
from specplan.passes.bucket import COMPILE_SECONDS, BatchLoad, Buckets, bucket
from specplan.progress import Progress, silent

if TYPE_CHECKING:
    from specplan.backends.kernels.fused_parts import Heads
    from specplan.backends.tensorrt.sources import RoundSource


def compile_bundle(
    bundle: Bundle | Path | str, *, turns: int = 7, progress: Progress = silent
) -> Bundle:
    """Compile a bundle's rounds for this machine, where that makes them faster.

    Rounds are compiled for shapes out of the bundle's workload (`specplan.passes.bucket`), by every
    backend that can here. Each shape is run by all of them and by the interpreter in turns, and
    keeps the fastest. What is compiled already is kept when the run is stopped, and used by the
    next one.

    Args:
        bundle: a bundle, or its folder; it is replaced by one with executables.
        turns: interleaved runs per shape.
        progress: told of every shape.

    Returns:
        The bundle, with executables for shapes that gain by them.

    Raises:
        MissingCapabilityError: no backend that compiles rounds can run here; says what they lack.
        UsageError: the bundle or a checkpoint has changed since it was written; says which; or
            layers of a model are read from its files in every pass.
    """
    from specplan.runtime import require_torch

    require_torch()
    from specplan.backends.static.buckets import Bucket
    from specplan.measure.bench.lowering import Lowering

    opened = open_bundle(bundle)
    opened.check_models()
    if streamed_layers(opened.problem):
        raise UsageError(
            "layers are read from files in every pass, which a compiled round does not do",
            where=str(opened.folder),
            remedy="Run the bundle as it is, or plan without placement.",
        )
    home = opened.folder.parent / f".{opened.folder.name}.compiling"
    lowering = Lowering(opened, home / made_for(opened), turns, progress)
    if not lowering.backends:
        raise MissingCapabilityError("; ".join(lowering.notes), where=str(opened.folder))
    shapes = [Bucket(batch, text) for batch, text in buckets_of(opened).shapes]
    written = write_executables(opened, lowering.executables(shapes), lowering.fastest())
    shutil.rmtree(home, ignore_errors=True)
    return written


def made_for(opened: Bundle) -> str:
    """Name for the rounds that are compiled of a bundle: none of another plan goes by it."""
    from specplan.backends.machine import this_machine
    from specplan.measure.machine import versions

    models = {name: (one.digest, one.dtype) for name, one in opened.models.items()}
    about = (*sorted(models.items()), *sorted(cache_formats(opened.problem).items()))
    text = repr((print_plan(opened.plan), about, this_machine(), versions()))
    return name_of(text)


def build_cubins(
    bundle: Bundle | Path | str, architectures: Sequence[str] = (), *, progress: Progress = silent
) -> tuple[Bundle, tuple[str, ...]]:
    """Build the GPU kernels that a bundle's rounds launch, and store them in it.

    On a GPU of one of these architectures its rounds then run with them, and need no compiler.

    Args:
        bundle: a bundle, or its folder; it is replaced by one with kernels.
        architectures: such as sm_90; all that there are kernels for when empty.
        progress: told of every kernel.

    Returns:
        The bundle, and what of its rounds has no kernel and runs as tensor ops.

    Raises:
        MissingCapabilityError: triton is not installed, or the plan has no kernels.
        UsageError: an architecture is unknown, or the bundle or a checkpoint has changed.
    """
    from specplan.backends.kernels.build import build_kernels
    from specplan.backends.kernels.plan_kernels import variants_for
    from specplan.backends.kernels.variants import ARCHITECTURES

    opened = bundle if isinstance(bundle, Bundle) else load_bundle(bundle)
    opened.check_models()
    models = _heads(opened)
    chosen, needed = tuple(architectures) or ARCHITECTURES, variants_for(opened.plan, models)
    if not needed:
        sizes = ", ".join(f"{name}: {it.size} in {it.dtype}" for name, it in models.items())
        raise MissingCapabilityError(
            f"the rounds launch none of our kernels (heads of {sizes})",
            where=str(opened.folder),
            remedy="Attention has kernels for heads of 64 and 128, in float32 and below.",
        )
    with tempfile.TemporaryDirectory(prefix="specplan-") as work:
        build_kernels(Path(work) / "kernels", needed, chosen, progress)
        written = write_kernels(opened, chosen, Path(work) / "kernels")
    plain = (
        f"attention of {name}: no kernel for heads of {heads.size} in {heads.dtype}"
        + (" with a sliding window" if heads.windowed else "")
        for name, heads in models.items()
        if not heads.attended
    )
    return written, tuple(plain)


def _heads(bundle: Bundle) -> dict[str, Heads]:
    """What kernels depend on of the models of a bundle whose rounds make graphs.

    Raises:
        MissingCapabilityError: they make none; names the op.
    """
    from specplan.backends.machine import bundle_heads
    from specplan.backends.static.graph_capabilities import UNCOMPILED

    refused = UNCOMPILED.refusals(bundle.plan)
    if refused:
        raise MissingCapabilityError(str(refused[0]), where=str(bundle.folder))
    return bundle_heads(bundle)


def lower_for_tensorrt(
    bundle: Bundle | Path | str, out: Path | str
) -> tuple[tuple[RoundSource, ...], bool]:
    """Write a bundle's rounds as ONNX that TensorRT takes, with their weights and a build script.

    One round for each shape that `specplan compile` would compile. Where trtexec, or the Python
    package `tensorrt`, is there, the engines are built too.

    Args:
        bundle: a bundle, or its folder.
        out: folder to be made; it may hold earlier sources.

    Returns:
        The rounds, and whether their engines were built.

    Raises:
        MissingCapabilityError: a package for ONNX is missing, or TensorRT does not take a round:
            names the operator and the op of the plan that it comes from.
        UsageError: the bundle or a checkpoint has changed since it was written; says which.
    """
    from specplan.backends.registry import round_backend
    from specplan.runtime import require_torch

    require_torch()
    missing = round_backend("onnxruntime").available()
    if missing is not None:
        raise MissingCapabilityError(missing, where="TensorRT sources")
    from specplan.backends.bundle_executable import load_models
    from specplan.backends.static.buckets import Bucket
    from specplan.backends.tensorrt.sources import INDEX, build_engines, write_sources
    from specplan.measure.bench.lowering import workload_requests

    folder = Path(out).resolve()
    check_destination(folder, INDEX, "TensorRT sources")
    opened = open_bundle(bundle)
    opened.check_models()
    models = load_models(opened)
    workload, size = opened.problem["workload"], models["target"].vocab_size
    buckets = [Bucket(batch, text) for batch, text in buckets_of(opened).shapes]
    batches = {bucket: workload_requests(workload, bucket, size, 1) for bucket in buckets}
    with staged(folder) as staging:
        rounds = write_sources(opened.plan, models, batches, staging)
    return rounds, build_engines(folder)


def buckets_of(bundle: Bundle) -> Buckets:
    """The shapes that are worth compiling, by what was estimated of the chosen plan.

    Every load of the workload is taken to be asked for as often. Where nothing was estimated, a
    round is taken to last as long as its batch is large.
    """
    from specplan.bundles.contest import problem_of

    workload = problem_of(bundle).workload
    output = workload.output_tokens or 128
    longest = max(workload.lengths, default=128) + output
    with reading_report(bundle):
        estimated = bundle.report.get("explanation", {}).get("chosen", {}).get("by_batch", ())
        loads = [
            BatchLoad(
                int(entry["batch"]),
                round(entry["prompt_tokens"]) + output if workload.lengths else longest,
                float(entry["seconds_per_round"]["mean"]),
            )
            for entry in estimated
        ] or [BatchLoad(batch, longest, float(batch)) for batch in workload.batch_sizes]
        return bucket(loads, len(bundle.plan.rounds) * COMPILE_SECONDS)
