"""What an engine's module is given to write its files, and what it gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
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
    """

    table: Table
    plan: Plan
    paths: Mapping[str, str]
    loads: tuple[Load, ...]
    devices: int = 1
    dtype: str = "auto"
    sampling: Mapping[str, float] = field(default_factory=dict)

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
        lengths, most = self.structure.lengths, self.structure.largest_batch
        if len(lengths) < 2:
            return []
        return [(first, most if last is None else last, tokens) for first, last, tokens in lengths]

    @property
    def forced(self) -> Load:
        """The load at which acceptance is forced: the first at which most tokens are drafted."""
        longest = self.drafting.tokens
        for first, last, tokens in self.structure.lengths:
            for load in self.loads:
                if tokens == longest and first <= load.batch <= (last or load.batch):
                    return load
        return self.loads[0]


@dataclass(frozen=True)
class Forced:
    """How acceptance is forced, so that the prediction of time is tested apart from the drafter.

    Attributes:
        command: starts the engine with forced acceptance.
        measure: a load generator's command for one load, with `{batch}`, `{prompt_tokens}`,
            `{output_tokens}` and `{requests}` to fill in.
        read: where the engine tells how many tokens a round gave.
    """

    command: str
    measure: str
    read: str


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


def benchmark(program: str, *flags: str) -> str:
    """The command of `Forced.measure`, of load generators that descend from vLLM's."""
    return command_line(
        program,
        "--dataset-name random --random-input-len {prompt_tokens}",
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
