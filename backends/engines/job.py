"""What an engine's module is given to write its files, and what it gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

from specplan.backends.engines.structure import Drafting, Structure, read_structure
from specplan.backends.engines.table import Table
from specplan.cost_models.intervals import Interval
from specplan.ir.plan import Plan


@dataclass(frozen=True)
class Load:
    """What is predicted for one load.

    Attributes:
        batch: requests decoded together.
        prompt_tokens: of each request.
        output_tokens: of each request.
        tokens_per_round: of one request, the bonus included.
        tokens_per_second: of the whole batch, prompts included.
    """

    batch: int
    prompt_tokens: int
    output_tokens: int
    tokens_per_round: Interval
    tokens_per_second: Interval


@dataclass(frozen=True)
class Job:
    """A plan that the engine expresses, and where it is to run.

    Attributes:
        table: of the engine's version.
        plan: verified, and refused by nothing in the table.
        paths: folder of each model by its role in the plan.
        loads: what is predicted, one for each load of the workload; empty for a probe, of which
            nothing is predicted.
        devices: that share every layer (tensor parallelism).
        dtype: number type of the target's weights, or "auto".
        sampling: `temperature`, `top_k` (0: off) and `top_p`; empty for greedy decoding.
        weights: formats that weights are priced in though they are stored otherwise, by role.
        caches: formats of KV caches where the problem states them, by role.
        running: requests decoded together at most, where the problem states it.
        step_tokens: prompt tokens that one step reads at most, where the problem states it.
        assumed: what else the prices assume and no setting makes so, one sentence each.
    """

    table: Table
    plan: Plan
    paths: Mapping[str, str]
    loads: tuple[Load, ...]
    devices: int = 1
    dtype: str = "auto"
    sampling: Mapping[str, float] = field(default_factory=dict)
    weights: Mapping[str, str] = field(default_factory=dict)
    caches: Mapping[str, str] = field(default_factory=dict)
    running: int | None = None
    step_tokens: int | None = None
    assumed: tuple[str, ...] = ()

    @cached_property
    def structure(self) -> Structure:
        """What the plan asks for."""
        return read_structure(self.plan)

    @property
    def drafting(self) -> Drafting:
        """The round that drafts most."""
        return self.structure.longest

    @property
    def target(self) -> str:
        """Folder of the target."""
        return self.paths["target"]

    @property
    def draft(self) -> str:
        """Folder of what drafts beside the target."""
        return self.paths[self.drafting.models[0]]

    @property
    def ranges(self) -> list[tuple[int, int, int]]:
        """First and last batch size, and tokens drafted there; empty for one length for all."""
        most = self.most_requests
        ranges = [
            (first, most if last is None else min(last, most), tokens)
            for first, last, tokens in self.structure.lengths
            if first <= most
        ]
        return ranges if len(ranges) > 1 else []

    @property
    def most_requests(self) -> int:
        """Requests decoded together at most: no more than the plan was priced for, and fit."""
        priced = max((load.batch for load in self.loads), default=self.structure.largest_batch)
        most = min(self.structure.largest_batch, priced)
        return most if self.running is None else min(self.running, most)

    def quantizes(self, role: str) -> str:
        """The engine's word for rounding a model's weights as it loads them; "" to leave them."""
        return self.table.quantizes.get(self.weights.get(role, ""), "")

    def cache(self, role: str) -> str:
        """The engine's word for the format of a model's KV cache; "" for its own choice."""
        return self.table.caches.get(self.caches.get(role, ""), "")

    def formats(self, role: str, weights: str, cache: str) -> dict[str, str]:
        """The settings of these names for a model's weights and KV cache, where any is needed."""
        words = {weights: self.quantizes(role), cache: self.cache(role)}
        return {name: word for name, word in words.items() if word}

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the prices assume and the files do not bring about, one sentence each."""
        formats = tuple(
            f"Predicted with the weights of {self.paths[role]} in {form}: serve a checkpoint in it."
            for role, form in self.weights.items()
            if not self.quantizes(role)
        )
        return (*formats, *self.assumed)

    @property
    def form(self) -> str:
        """The form of the drafter's checkpoint (`checkpoints.FORMS`)."""
        return self.table.form(self.drafting)

    @property
    def forces(self) -> bool:
        """Whether the engine can force the predicted acceptance with this drafter."""
        return bool(self.loads) and self.table.forces(self.drafting)

    def drafted_at(self, batch: int) -> int:
        """Tokens drafted at a batch size."""
        for first, last, tokens in self.structure.lengths:
            if first <= batch and (last is None or batch <= last):
                return tokens
        return self.drafting.tokens

    @cached_property
    def acceptance_rates(self) -> tuple[float, ...]:
        """Probability that the first i + 1 drafted tokens are all accepted, for each i.

        Drafts of every length of the schedule get the tokens that are predicted for it. Between two
        lengths each further token is accepted with one probability, given those before it, where
        rates that only fall allow that.
        """
        predicted: dict[int, list[float]] = {}
        for load in self.loads:
            predicted.setdefault(self.drafted_at(load.batch), []).append(load.tokens_per_round.mean)
        lengths = sorted(set(predicted) - {0}) or [self.drafting.tokens]
        most = [predicted.get(length, [1.0]) for length in lengths]
        sums = [0.0, *(sum(tokens) / len(tokens) - 1.0 for tokens in most)]
        more = [after - before for before, after in pairwise([0, *lengths])]
        steps = zip(pairwise(sums), more, strict=True)
        means = [(after - before) / count for (before, after), count in steps]
        rates: list[float] = []
        for mean, count, following in zip(means, more, [*means[1:], 0.0], strict=True):
            last = rates[-1] if rates else 1.0
            part = _geometric(last, count, mean * count)
            # a stretch that falls too low for the next one is level
            rates += part if part[-1] >= following else [min(max(mean, 0.0), last)] * count
        return (*rates, *[0.0] * (self.drafting.tokens - len(rates)))


def _geometric(last: float, count: int, total: float) -> list[float]:
    """`count` numbers below `last`, each the same part of the one before, that sum to `total`."""
    low, high = 0.0, 1.0
    for _ in range(60):
        part = (low + high) / 2.0
        large = last * sum(part**power for power in range(1, count + 1)) > total
        low, high = (low, part) if large else (part, high)
    return [last * low**power for power in range(1, count + 1)]


@dataclass(frozen=True)
class Forced:
    """How acceptance is forced, so that the prediction of time is tested apart from the drafter.

    Attributes:
        command: starts the engine with forced acceptance; with `{tokens}`, of a round with the
            bonus, or `{accepted}`, without it, to fill in where they differ by the load.
        measure: a load generator's command for one load, with `{batch}`, `{prompt_tokens}`,
            `{output_tokens}` and `{requests}` to fill in.
        read: where the engine tells how many tokens a round gave.
    """

    command: str
    measure: str
    read: str

    def at(self, load: Load) -> tuple[str, str]:
        """The two commands for one load."""
        tokens = max(load.tokens_per_round.mean, 1.0)
        command = self.command.format(tokens=round(tokens, 3), accepted=round(tokens - 1.0, 3))
        measure = self.measure.format(
            batch=load.batch,
            prompt_tokens=load.prompt_tokens,
            output_tokens=load.output_tokens,
            requests=_REQUESTS * load.batch,
        )
        return command, measure


_REQUESTS = 8
"""Requests of a load generator for each that runs at once."""


@dataclass(frozen=True)
class Emission:
    """What an engine is started with.

    Attributes:
        documents: data by file name (`.json` or `.yaml`), each checked against its schema.
        texts: other files by name.
        command: starts the engine; run in the folder of the files.
        script: name of the file that holds the command; empty for none.
        forced: how to force acceptance there; None where the engine has no such switch.
        notes: for the user, one sentence each.
    """

    documents: Mapping[str, Any] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    script: str = "serve.sh"
    forced: Forced | None = None
    notes: tuple[str, ...] = ()


def benchmark(program: str, *flags: str, dataset: str = "random") -> str:
    """The command of `Forced.measure`, of load generators that descend from vLLM's."""
    return command_line(
        program,
        f"--dataset-name {dataset} --random-input-len {{prompt_tokens}}",
        " ".join(["--random-output-len {output_tokens}", *flags]),
        "--max-concurrency {batch} --num-prompts {requests}",
    )


def in_format(text: str) -> str:
    """A text that `str.format` gives back as it is."""
    return text.replace("{", "{{").replace("}", "}}")


def command_line(*parts: str, environment: Mapping[str, str] | None = None) -> str:
    """A shell command over several lines, one part on each."""
    given = [f"{name}={value}" for name, value in (environment or {}).items()]
    return " \\\n  ".join([*given, *parts])
