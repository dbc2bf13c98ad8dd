"""Visits to probe plans: some real rounds on real text, and the seconds of everything in them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.stats import trim_mean

from specplan.cost_models.devices.measured.rows import ForwardRow, OpRow, PrefillRow, RoundRow, Row
from specplan.measure.workbench import PROFILE, Workbench
from specplan.runtime.executable import Executable, read_forward_variant
from specplan.runtime.generate import generate
from specplan.runtime.requests import Request

EMITTED = 16
"""Tokens emitted per visit and request."""
Samples = dict[tuple[str, str | None, int], list[float]]
"""Seconds by kind (forward, prefill, op, round), model or op, and width.

The kind of a forward that is not a pass of the whole stack goes on with `:` and its variant.
"""


@dataclass(frozen=True)
class Visit:
    """What one visit saw.

    Attributes:
        samples: seconds by what took them.
        seconds_per_round: wall-clock time, everything included.
    """

    samples: Samples = field(default_factory=dict)
    seconds_per_round: float = 0.0


def visit(bench: Workbench, executable: Executable, batch: int, context: int, seed: int) -> Visit:
    """Run some rounds on texts of `context` tokens, other ones with every seed."""
    samples: Samples = defaultdict(list)
    spent = 0.0

    def observe(
        op: str, model: str | None, batch: int, width: int, context: int, seconds: float
    ) -> None:
        nonlocal spent
        if op == "prefill":
            samples["prefill", model, width].append(seconds)
            return
        spent += seconds
        if model is None:
            samples["op", op, width].append(seconds)
        else:
            samples[op, model, width].append(seconds)

    requests = requests_of(bench, batch, context, seed)
    result = generate(executable, requests, observer=observe)
    samples["round", None, 1].append(max(result.decode_seconds - spent, 0.0) / result.rounds)
    return Visit(samples, result.seconds_per_round)


def requests_of(bench: Workbench, batch: int, context: int, seed: int) -> list[Request]:
    """The requests of a visit."""
    workload = bench.problem.workload
    return [
        Request(
            prompt_tokens=tokens,
            max_new_tokens=EMITTED,
            temperature=workload.temperature,
            top_k=workload.top_k,
            top_p=workload.top_p,
            seed=seed,
        )
        for tokens in _texts(bench, batch, context, seed)
    ]


def gathered(visits: Sequence[Visit]) -> Samples:
    """The samples of several visits together."""
    every: Samples = defaultdict(list)
    for one in visits:
        for key, values in one.samples.items():
            every[key] += values
    return every


def rows_of(
    bench: Workbench, samples: Mapping[tuple[str, str | None, int], list[float]],
    batch: int, context: int,
) -> Iterator[Row]:  # fmt: skip
    """One pass: median (of ops, trimmed mean) and quartiles of each kind of sample."""
    for (kind, what, width), values in samples.items():
        low, middle, high = (float(q) for q in np.quantile(values, (0.25, 0.5, 0.75)))
        if kind == "op":  # some work only now and then, as a commit that moves: the mean counts
            middle = float(trim_mean(values, 0.1))
            low, high = min(low, middle), max(high, middle)
        time: dict[str, Any] = {"seconds": middle, "low": low, "high": high}
        time |= {"runs": len(values), "passes": (middle,), "batch": batch}
        if kind == "round":
            yield RoundRow(**time)
        elif kind == "op":
            yield OpRow(op=str(what), width=width, **time)
        else:
            role = str(what)
            time |= {"model": bench.models[role].digest, "dtype": dtype_name(bench, role)}
            if kind == "prefill":
                yield PrefillRow(tokens=width, **time)
            else:
                layers, logits, skip = read_forward_variant(kind.partition(":")[2])
                time |= {"layers": layers, "logits": logits, "skip": skip}
                yield ForwardRow(tokens=width, context=context, **time)


def dtype_name(bench: Workbench, role: str) -> str:
    """Number format that a model runs in, as model shapes name it."""
    return str(bench.models[role].dtype).removeprefix("torch.")


def _texts(bench: Workbench, batch: int, context: int, seed: int) -> list[tuple[int, ...]]:
    """Real prompts, repeated or cut to `context` tokens; other ones at every visit."""
    longest = min(model.max_positions for model in bench.models.values()) - EMITTED
    size = max(min(context, longest), 1)
    prompts = bench.prompts(PROFILE)
    chosen = [prompts[(seed * batch + row) % len(prompts)].tokens for row in range(batch)]
    return [(tokens * (size // len(tokens) + 1))[-size:] for tokens in chosen]
