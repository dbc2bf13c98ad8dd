"""How fast are products of few rows by our own kernels, beside those of ONNX Runtime?

    python benchmarks/cpu_kernels.py [--hidden N] [--inner N] [--layers N] [--turns N] [--json]

A chain of products by matrices `[inner, hidden]` and `[hidden, inner]` of random numbers, as many
as the layers have, is opened twice as `specplan` opens rounds: with our kernels and without
them. Both share one pool of threads, and run in turns of 20 runs, of which the median counts; then
the median of turns. Numbers of 16 bits are read as such where ONNX Runtime reads float32; the
results are float32 sums in both.
"""

from __future__ import annotations

import argparse
import json
import time
from statistics import median
from typing import Any
from unittest.mock import patch

import torch
from onnx import TensorProto, helper

from specplan.backends.onnx_export.quantized import quantized_product
from specplan.backends.onnxruntime import packed_sessions
from specplan.backends.onnxruntime.cpu_kernels.building import kernels
from specplan.backends.onnxruntime.packed_sessions import PackedWeights
from specplan.backends.onnxruntime.sessions import open_session
from specplan.backends.onnxruntime.values import bind, elsewhere, run_bound
from specplan.measure.machine import hardware_name
from specplan.runtime.models.quantized import quantize

HALVES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
FORMS = (*HALVES, "Q8_0", "Q4_0")
ROWS = (1, 2, 4, 6, 9, 17, 33, 160)
RUNS = 20


def chain(form: str, options: argparse.Namespace) -> tuple[bytes, dict[str, torch.Tensor]]:
    """A graph from `x` `[M, hidden]` to `y`, and its weights by name."""
    draws, weights, nodes, given = torch.Generator().manual_seed(0), {}, [], "x"
    for layer in range(options.layers):
        for part, (rows, columns) in enumerate(
            [(options.inner, options.hidden), (options.hidden, options.inner)]
        ):
            weight = torch.randn(rows, columns, generator=draws) / columns**0.5
            weight = weight.to(HALVES.get(form, torch.bfloat16)).float()
            name = f"{layer}.{part}"
            if form in HALVES:
                weights[name] = weight
                nodes.append(helper.make_node("Gemm", [given, name], [f"y.{name}"], transB=1))
            else:
                matrix = quantize(weight, form)
                names = f"{name}.codes", f"{name}.scales"
                weights |= dict(zip(names, matrix[1:], strict=True))
                settings: dict[str, Any] = {**quantized_product(matrix.shape, matrix.codes.shape)}
                nodes.append(
                    helper.make_node(
                        "MatMulNBits", [given, *names], [f"y.{name}"], domain="com.microsoft",
                        **settings,
                    )
                )  # fmt: skip
            given = f"y.{name}"
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["m", options.hidden])
        for name in ("x", given)
    ]
    constants = [elsewhere(*one) for one in weights.items()]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], constants)
    sets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    code = helper.make_model(graph, opset_imports=sets, ir_version=10).SerializeToString()
    return code, weights


def opened(code: bytes, weights: dict[str, torch.Tensor], *, own: bool) -> Any:
    """A session, with our kernels or without them."""
    if kernels() is None:
        raise SystemExit("our kernels do not run here: no AVX-512 VNNI, or no C++ compiler")
    if own:
        return open_session(code, weights, packed=PackedWeights())
    with patch.object(packed_sessions, "kernels", lambda: None):
        return open_session(code, weights, packed=PackedWeights())


def timed(session: Any, binding: Any) -> float:
    """Median seconds of a run."""
    seconds = []
    for _ in range(RUNS):
        start = time.perf_counter()
        run_bound(session, binding)
        seconds.append(time.perf_counter() - start)
    return median(seconds)


def measured(form: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each number of rows."""
    code, weights = chain(form, options)
    numbers = 2 * options.layers * options.inner * options.hidden
    sessions = [opened(code, weights, own=own) for own in (True, False)]
    table = []
    for rows in ROWS:
        turns: list[list[float]] = [[], []]
        bindings = []
        for session in sessions:
            binding, inputs = session.io_binding(), torch.randn(rows, options.hidden)
            output = torch.empty(rows, options.hidden)
            bind(binding.bind_input, "x", inputs)
            bind(binding.bind_output, session.get_outputs()[0].name, output)
            bindings.append((session, binding, inputs, output))
        for turn in range(options.turns + 1):
            for seconds, (session, binding, *_) in zip(turns, bindings, strict=True):
                taken = timed(session, binding)
                if turn:  # the first one warms up
                    seconds.append(taken)
        ours, theirs = map(median, turns)
        table.append(
            {
                "form": form,
                "rows": rows,
                "ours_ms": 1e3 * ours,
                "theirs_ms": 1e3 * theirs,
                "ours_over_theirs": theirs / ours,
                "gigaflops": 2e-9 * rows * numbers / ours,
            }
        )
    return table


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Products of few rows by our own kernels.")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--inner", type=int, default=704)
    parser.add_argument("--layers", type=int, default=40)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    table = [row for form in FORMS for row in measured(form, options)]
    if options.json:
        print(json.dumps({"hardware": hardware_name(), **vars(options), "table": table}, indent=1))
        return 0
    print("| weights | rows | ours | ONNX Runtime | times as fast | GFLOP/s |")
    print("|---|---:|---:|---:|---:|---:|")
    for row in table:
        print(
            f"| {row['form']} | {row['rows']} | {row['ours_ms']:.2f} ms | {row['theirs_ms']:.2f} ms"
            f" | {row['ours_over_theirs']:.2f} | {row['gigaflops']:.0f} |"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
