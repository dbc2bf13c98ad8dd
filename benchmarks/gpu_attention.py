"""Tree attention against the libraries: fraction of a measured copy's bandwidth, and ratios.

    python benchmarks/gpu_attention.py --out attention.json

Heads are those of Llama 3 8B (32 on 8, 128 wide, bfloat16). Contenders are our kernel,
`scaled_dot_product_attention` with a mask (in the form that the runtime uses), FlexAttention,
compiled, and FlashInfer where it is installed. The floor of a case is the bytes of its keys and
values over the bandwidth of a copy; beside it stands what the planner predicts. A contender that
fails is named with its error; cases for which no time is left are named too.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from gpu_timing import (
    CACHES_BYTES,
    LLAMA_8B,
    copy_bandwidth,
    device_called,
    llama_shape,
    seconds_per_call,
)
from torch import Tensor

from specplan.backends.kernels import ops
from specplan.cost_models.models.forward import forward_ops
from specplan.ir.files import write_json_atomic
from specplan.runtime.models.attention import additive_mask, grouped_attention

Attend = Callable[[Tensor, Tensor], Tensor]
"""From keys and values `[B, H_kv, S, D]` to `[B, H, T, D]`."""


@dataclass(frozen=True)
class Case:
    """One load.

    Attributes:
        batch: rows.
        context: slots before the tree.
        tree: nodes.
    """

    batch: int
    context: int
    tree: int


def flexed(case: Case) -> bool:
    """Whether FlexAttention is measured: it compiles for longer than all the rest takes."""
    return case.tree == 64 and case.batch == 8


@dataclass(frozen=True)
class Heads:
    """Query heads, key/value heads and their width."""

    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128


class Inputs:
    """Tensors of a case: a random tree behind a random context, in several caches.

    Args:
        case: the load.
        heads: of the model.
        device: where it is.
        dtype: of queries and caches.
    """

    def __init__(self, case: Case, heads: Heads, device: torch.device, dtype: torch.dtype) -> None:
        torch.manual_seed(0)
        self.case, self.heads, self.device, self.dtype = case, heads, device, dtype
        self.slots = case.context + case.tree
        shape = (case.batch, heads.kv_heads, self.slots, heads.head_dim)
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        self.query = torch.randn(case.batch, heads.heads, case.tree, heads.head_dim, **made)
        first = torch.empty(shape, **made)
        self.bytes = 2 * first.numel() * first.element_size()
        copies = 1 if device.type != "cuda" else max(1, -(-CACHES_BYTES // self.bytes))
        self.caches = [
            (torch.randn(shape, **made), torch.randn(shape, **made)) for _ in range(copies)
        ]
        self.prefix = torch.full((case.batch,), case.context, device=device)
        self.seen = ancestors(case.tree).to(device)[None]
        self.scale = heads.head_dim**-0.5

    def mask(self) -> Tensor:
        """Bool `[1, T, S]`."""
        context = self.seen.new_ones(1, self.case.tree, self.case.context)
        return torch.cat([context, self.seen], 2)


def ancestors(nodes: int) -> Tensor:
    """Bool `[N, N]` of a random tree: which nodes are one's ancestors, oneself included."""
    chance = random.Random(0)
    seen = torch.eye(nodes, dtype=torch.bool)
    for node in range(1, nodes):
        seen[node] |= seen[chance.randrange(max(0, node - 8), node)]
    return seen


def ours(inputs: Inputs) -> Attend:
    return lambda keys, values: ops.tree_attention(
        inputs.query, keys, values, inputs.prefix, inputs.seen, None, inputs.scale
    )


def with_mask(inputs: Inputs) -> Attend:
    group = inputs.heads.heads // inputs.heads.kv_heads
    mask = additive_mask(inputs.mask(), group, inputs.dtype)

    def attend(keys: Tensor, values: Tensor) -> Tensor:
        mixed, _ = grouped_attention(None, inputs.query, keys, values, mask, inputs.scale)
        return mixed.transpose(1, 2)

    return attend


def flex(inputs: Inputs) -> Attend:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    context, seen = inputs.case.context, inputs.seen[0]

    def sees(batch: Tensor, head: Tensor, query: Tensor, slot: Tensor) -> Tensor:
        return (slot < context) | seen[query, (slot - context).clamp(min=0)]

    device = inputs.device
    blocks = create_block_mask(sees, None, None, inputs.case.tree, inputs.slots, device=str(device))
    run: Any = (
        torch.compile(flex_attention, dynamic=True) if device.type == "cuda" else flex_attention
    )
    return lambda keys, values: run(
        inputs.query, keys, values, block_mask=blocks, scale=inputs.scale, enable_gqa=True
    )


def flashinfer(inputs: Inputs) -> Attend:
    """Ragged prefill with a custom mask (FlashInfer 0.6); its planning is not timed."""
    import flashinfer as library

    case, heads = inputs.case, inputs.heads
    room = torch.empty(256 << 20, dtype=torch.uint8, device=inputs.device)
    wrapper = library.BatchPrefillWithRaggedKVCacheWrapper(room, "NHD")
    rows = torch.arange(case.batch + 1, dtype=torch.int32, device=inputs.device)
    wrapper.plan(
        rows * case.tree,
        rows * inputs.slots,
        heads.heads,
        heads.kv_heads,
        heads.head_dim,
        custom_mask=inputs.mask().expand(case.batch, -1, -1).flatten(),
        sm_scale=inputs.scale,
        q_data_type=inputs.dtype,
    )
    query = inputs.query.transpose(1, 2).flatten(0, 1).contiguous()
    # Its caches are laid out slot by slot: the same bytes, in its own order.
    own = {
        keys.data_ptr(): tuple(it.transpose(1, 2).flatten(0, 1) for it in (keys, values))
        for keys, values in inputs.caches
    }

    def attend(keys: Tensor, values: Tensor) -> Tensor:
        attended: Tensor = wrapper.run(query, *own[keys.data_ptr()])
        return attended.view(case.batch, case.tree, heads.heads, heads.head_dim).transpose(1, 2)

    return attend


CONTENDERS: dict[str, Callable[[Inputs], Attend]] = {
    "specplan": ours,
    "sdpa": with_mask,
    "flex": flex,
    "flashinfer": flashinfer,
}


def cases() -> Iterator[Case]:
    """The most telling ones first, as time may run out."""
    for batch, context in ((1, 8192), (1, 65536), (8, 8192), (64, 8192), (8, 65536)):
        for tree in (64, 16):
            yield Case(batch, context, tree)
    for batch, context in ((1, 1024), (64, 1024), (1, 8192), (1, 65536), (64, 65536)):
        for tree in (1, 128):
            yield Case(batch, context, tree)


def measure(inputs: Inputs, bandwidth: float, names: Sequence[str]) -> dict[str, Any]:
    """Seconds of every contender, or why there are none, and how far its numbers are from ours."""
    row: dict[str, Any] = {**asdict(inputs.case), "floor_seconds": inputs.bytes / bandwidth}
    row |= {"seconds": {}, "errors": {}, "difference": {}}
    our_output = ours(inputs)(*inputs.caches[0]).float()
    for name in names:
        try:
            attend = CONTENDERS[name](inputs)
            difference = (attend(*inputs.caches[0]).float() - our_output).abs().max()
            calls = [partial(attend, *pair) for pair in inputs.caches]
            row["seconds"][name] = seconds_per_call(calls, inputs.device)
            row["difference"][name] = float(difference)
        except Exception as error:  # a library may refuse a shape: say so and go on
            row["errors"][name] = f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"
    times = row["seconds"]
    if "specplan" in times:
        row["fraction_of_copy"] = row["floor_seconds"] / times["specplan"]
        others = [seconds for name, seconds in times.items() if name != "specplan"]
        row["ratio_to_best"] = min(others) / times["specplan"] if others else None
    return row


def predicted_seconds(case: Case, device: str) -> float | None:
    """What the planner takes one layer's attention to last; None without a data sheet."""
    sheet = device_called(device)
    if sheet is None:
        return None
    shape = llama_shape(LLAMA_8B, "target")
    layer = forward_ops(shape, case.batch, case.tree, case.context, layers=(0, 1))
    (attention,) = [op for op in layer if op.name == "attention"]
    return float(sheet.kernels.seconds(attention))


def table(rows: list[dict[str, Any]]) -> str:
    """One line per case."""
    lines = [
        "batch context tree   floor us  predicted  " + "".join(f"{name:>11}" for name in CONTENDERS)
    ]
    lines[0] += "   of copy  to best"
    for row in rows:
        line = f"{row['batch']:5} {row['context']:7} {row['tree']:4}"
        predicted = row.get("predicted_seconds")
        line += f"{row['floor_seconds'] * 1e6:11.1f}"
        line += f"{predicted * 1e6:11.1f}  " if predicted else f"{'-':>11}  "
        for name in CONTENDERS:
            seconds = row["seconds"].get(name)
            line += f"{seconds * 1e6:11.1f}" if seconds else f"{'-':>11}"
        for key in ("fraction_of_copy", "ratio_to_best"):
            line += f"{row[key]:9.2f}" if row.get(key) else f"{'-':>9}"
        lines.append(line)
    errors = {f"{name}: {text}" for row in rows for name, text in row["errors"].items()}
    return "\n".join([*lines, *sorted(errors)])


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=180.0)
    options = parser.parse_args()
    device = torch.device("cuda")
    bandwidth = copy_bandwidth(device)
    name_of_device = torch.cuda.get_device_name()
    start, rows, left_out = perf_counter(), [], []
    for case in cases():
        if perf_counter() - start > options.seconds:
            left_out.append(case)
            continue
        try:
            inputs = Inputs(case, Heads(), device, torch.bfloat16)
        except torch.OutOfMemoryError:
            left_out.append(case)
            continue
        names = [name for name in CONTENDERS if name != "flex" or flexed(case)]
        row = measure(inputs, bandwidth, names)
        rows.append(row | {"predicted_seconds": predicted_seconds(case, name_of_device)})
        del inputs
        torch.cuda.empty_cache()
    document = {
        "device": name_of_device,
        "torch": torch.__version__,
        "copy_bytes_per_second": bandwidth,
        "rows": rows,
        "left_out": [asdict(case) for case in left_out],
    }
    write_json_atomic(options.out, document)
    print(f"{document['device']}, torch {torch.__version__}, copy {bandwidth / 1e12:.2f} TB/s")
    print(table(rows))
    for case in left_out:
        print(f"not measured (time or memory): {case}")


if __name__ == "__main__":
    main()
