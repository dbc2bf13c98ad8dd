"""`specplan parallel`: how to split the target over the problem's devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from specplan.cli.options import JsonOption, ProblemArgument
from specplan.cli.output import print_json, print_table
from specplan.ir.errors import InfeasibleError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from specplan.cost_models.devices.parallel import SplitPrice


def parallel(problem: ProblemArgument, json: JsonOption = False) -> None:
    """Compare splits: tensor and pipeline parallelism, replicas, DP attention with EP."""
    document = parallel_document(problem)
    if json:
        print_json(document)
        return
    print(f"{document['device']}, {document['tokens']} tokens per request, without speculation")
    columns = ("split", ">requests", ">TPOT ms", ">tokens/s per user", ">per GPU", ">GB per GPU")
    print_table(
        columns,
        [
            (
                row["split"],
                str(row["requests"]),
                f"{1e3 * row['tpot']:.3g}",
                f"{row['per_user']:.3g}",
                f"{row['per_device']:.4g}",
                f"{row['memory'] / 1e9:.0f}",
            )
            for row in document["front"]
        ],
    )
    print(f"No other of {document['compared']} is better for a user and for the GPUs at once.")


def parallel_document(path: Path) -> dict[str, Any]:
    """The Pareto front of all splits over tokens/s per user and per device, as JSON data.

    Raises:
        UsageError: the device is not known from a data sheet.
        InfeasibleError: no split holds the model and its requests.
    """
    from specplan.cost_models.devices.device import device_count, load_device, one_device
    from specplan.cost_models.devices.parallel import pareto_front, search_splits
    from specplan.cost_models.devices.roofline import AnalyticDevice
    from specplan.cost_models.models.model_shape import ModelShape
    from specplan.problems import as_problem

    problem = as_problem(path)
    device = load_device(one_device(problem.device), problem.backend)
    if not isinstance(device, AnalyticDevice):
        raise UsageError(
            "splits are compared on devices with a data sheet",
            where="device",
            remedy="Name one of `specplan devices`, with a number before it: 8xh200.",
        )
    stored, work = problem.models.target, problem.workload
    shape = ModelShape.from_path(stored.path, name="target", **stored.formats)
    prompts = work.prompt_tokens
    longest = max(prompts) if isinstance(prompts, Sequence) else int(prompts or 0)
    tokens = longest + (work.output_tokens or 0) // 2
    requests = tuple(sorted({1, *work.batch_sizes, *(4**power for power in range(1, 6))}))
    count = device_count(problem.device)
    prices = search_splits(shape, device, count, requests, tokens)
    if not prices:
        raise InfeasibleError(
            f"no split of the target fits on {problem.device}",
            where="device",
            remedy="Take more devices, or weights in fewer bits (weight_format).",
        )
    return {
        "device": problem.device,
        "tokens": tokens,
        "compared": len(prices),
        "front": [_record(price) for price in pareto_front(prices)],
        "all": [_record(price) for price in prices],
    }


def _record(price: SplitPrice) -> dict[str, Any]:
    split = price.split
    return {
        "split": str(split),
        "tensor": split.tensor,
        "pipeline": split.pipeline,
        "replicas": split.replicas,
        "dp_attention": split.attention_copies,
        "requests": price.requests,
        "tpot": price.tpot,
        "per_user": price.per_user,
        "per_device": price.per_device,
        "memory": price.memory,
    }
