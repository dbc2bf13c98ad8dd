"""`specplan parallel`: how to split the target over the problem's devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specplan.cli.options import JsonOption, ProblemArgument
from specplan.cli.output import print_json, print_table

if TYPE_CHECKING:
    from pathlib import Path

    from specplan.cost_models.devices.parallel import SplitPrice
    from specplan.cost_models.devices.pools import PoolPrice


def parallel(problem: ProblemArgument, json: JsonOption = False) -> None:
    """Compare splits: tensor and pipeline parallelism, replicas, DP attention with EP."""
    document = parallel_document(problem)
    if json:
        print_json(document)
        return
    print(f"{document['device']}, {document['tokens']} tokens per request, without speculation")
    _print_front(document["front"])
    print(f"No other of {document['compared']} is better for a user and for the GPUs at once.")
    if document["pools_front"]:
        print("\nPrompts included, read by the GPUs that decode or by a pool of their own")
        _print_pools(document["pools_front"])
    if document["drafted_front"]:
        print("\nWith speculation, each group of GPUs with its own best plan (TP and replicas)")
        _print_front(document["drafted_front"], "plan")


def _print_pools(front: list[dict[str, Any]]) -> None:
    columns = ("pools", ">requests", ">TPOT ms", ">TTFT ms", ">tokens/s per user", ">per GPU")
    print_table(
        columns,
        [
            (
                row["pools"],
                str(row["requests"]),
                f"{1e3 * row['tpot']:.3g}",
                f"{1e3 * row['ttft']:.3g}",
                f"{row['per_user']:.3g}",
                f"{row['per_device']:.4g}",
            )
            for row in front
        ],
    )


def _print_front(front: list[dict[str, Any]], *more: str) -> None:
    columns = ("split", ">requests", ">TPOT ms", ">tokens/s per user", ">per GPU", ">GB per GPU")
    print_table(
        (*columns, *more),
        [
            (
                row["split"],
                str(row["requests"]),
                f"{1e3 * row['tpot']:.3g}",
                f"{row['per_user']:.3g}",
                f"{row['per_device']:.4g}",
                f"{row['memory'] / 1e9:.0f}",
                *(row[name] for name in more),
            )
            for row in front
        ],
    )


def parallel_document(path: Path) -> dict[str, Any]:
    """The Pareto front of all splits over tokens/s per user and per device, as JSON data.

    Raises:
        UsageError: the device is not known from a data sheet.
        InfeasibleError: no split holds the model and its requests.
    """
    from specplan.cost_models.devices.parallel import pareto_front
    from specplan.planner.answer.splits import compared_splits
    from specplan.problems import as_problem
    from specplan.sweeping import drafted_splits

    problem = as_problem(path)
    splits = compared_splits(problem, pools=True)
    drafted = dict(drafted_splits(problem, splits))
    return {
        "device": splits.device,
        "tokens": splits.tokens,
        "compared": len(splits.prices),
        "front": [_record(price) for price in pareto_front(splits.prices)],
        "drafted_front": [
            {**_record(price), "plan": drafted[price]} for price in pareto_front(list(drafted))
        ],
        "pools_front": [_pool_record(price) for price in pareto_front(splits.pools)],
        "all": [_record(price) for price in splits.prices],
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


def _pool_record(price: PoolPrice) -> dict[str, Any]:
    pools = price.pools
    return {
        "pools": str(pools),
        "prefill_devices": pools.reading * pools.groups,
        "decode_devices": pools.decode.devices,
        "requests": price.requests,
        "request_rate": price.rate,
        "tpot": price.tpot,
        "ttft": price.ttft,
        "per_user": price.per_user,
        "per_device": price.per_device,
    }
