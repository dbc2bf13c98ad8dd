"""`specplan parallel`: how to split the target over the problem's devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
        _print_front(document["pools_front"])
    if document["drafted_front"]:
        print("\nWith speculation, each group of GPUs with its own best plan (TP and replicas)")
        _print_front(document["drafted_front"])


_COLUMNS: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "split": ("split", str),
    "pools": ("pools", str),
    "requests": (">requests", str),
    "tpot": (">TPOT ms", lambda value: f"{1e3 * value:.3g}"),
    "ttft": (">TTFT ms", lambda value: f"{1e3 * value:.3g}"),
    "per_user": (">tokens/s per user", lambda value: f"{value:.3g}"),
    "per_device": (">per GPU", lambda value: f"{value:.4g}"),
    "memory": (">GB per GPU", lambda value: f"{value / 1e9:.0f}"),
    "plan": ("plan", str),
}
"""Head of a column and how its values are written, by their key in the document."""


def _print_front(front: list[dict[str, Any]]) -> None:
    """The values of a front that have a column."""
    columns = {key: column for key, column in _COLUMNS.items() if key in front[0]}
    rows = [tuple(show(row[key]) for key, (_, show) in columns.items()) for row in front]
    print_table(tuple(head for head, _ in columns.values()), rows)


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
