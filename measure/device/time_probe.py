"""Probe plans timed: some real rounds on real text, and the seconds of every step in them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.stats import trim_mean

from specplan.cost_models.devices.measured.rows import ForwardRow, OpRow, PrefillRow, RoundRow, Row
from specplan.measure.workbench import PROFILE, TokenPrompt, Workbench
from specplan.runtime.executable import Executable, read_forward_variant
from specplan.runtime.generate import generate
from specplan.runtime.models.heads.drafter import Drafter
from specplan.runtime.requests import Request

EMITTED = 16
"""Tokens emitted per run and request."""
Samples = dict[tuple[str, str | None, int], list[float]]
"""Seconds by kind (forward, prefill, op, round), model or op, and width.

The kind of a forward that is not a pass of the whole stack ends with `:` and its variant.
"""


@dataclass(frozen=True)
class ProbeTimes:
    """The times of one run.

    Attributes:
        samples: seconds by step.
        seconds_per_round: wall-clock time, everything included.
    """

    samples: Samples = field(default_factory=dict)
    seconds_per_round: float = 0.0


def time_probe(
    bench: Workbench, executable: Executable, batch: int, context: int, seed: int
) -> ProbeTimes:
    """Run some rounds on texts of `context` tokens; every seed has other texts.

    A head reads the prompt in the first round, when the target's states are there: such a pass over
    the whole prompt is its prefill.
    """
    samples: Samples = defaultdict(list)
    observed, requests = 0.0, requests_of(bench, batch, context, seed)
    prompt = len(requests[0].prompt_tokens)
    heads = {name for name, model in bench.models.items() if isinstance(model, Drafter)}

    def observe(
        op: str, model: str | None, batch: int, width: int, context: int, seconds: float
    ) -> None:
        nonlocal observed
        if op == "prefill":
            samples["prefill", model, width].append(seconds)
            return
        observed += seconds
        if model in heads and width >= prompt - 1:
            samples["prefill", model, width].append(seconds)
            return
        kind, what = ("op", op) if model is None else (op, model)
        samples[kind, what, width].append(seconds)

    ran = generate(executable, requests, observer=observe)
    samples["round", None, 1].append(max(ran.decode_seconds - observed, 0.0) / ran.rounds)
    return ProbeTimes(samples, ran.seconds_per_round)


def requests_of(
    bench: Workbench, batch: int, context: int, seed: int, emitted: int = EMITTED
) -> list[Request]:
    """The requests of a run: real prompts, repeated or cut to `context` tokens."""
    longest = min(model.max_positions for model in bench.models.values()) - emitted
    size = max(min(context, longest), 1)
    prompts = bench.prompts(PROFILE)
    chosen = [prompts[(seed * batch + row) % len(prompts)].tokens for row in range(batch)]
    texts = [(tokens * (size // len(tokens) + 1))[-size:] for tokens in chosen]
    return [
        bench.request(TokenPrompt("", text), seed, max_new_tokens=emitted, grammar=None)
        for text in texts
    ]


def joined(runs: Sequence[ProbeTimes]) -> Samples:
    """The samples of several runs together."""
    every: Samples = defaultdict(list)
    for run in runs:
        for key, values in run.samples.items():
            every[key] += values
    return every


def rows_of(
    bench: Workbench, samples: Mapping[tuple[str, str | None, int], list[float]],
    batch: int, context: int,
) -> Iterator[Row]:  # fmt: skip
    """Rows of one pass: median (of ops, trimmed mean) and quartiles of each kind of sample."""
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
    """Number format of a model, as model shapes name it."""
    return str(bench.models[role].dtype).removeprefix("torch.")
