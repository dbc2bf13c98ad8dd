"""The contenders of a comparison, and how one run of theirs is timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter

from specplan.backends.registry import round_backend
from specplan.backends.static.buckets import Bucket
from specplan.cost_models.forecast import Forecast
from specplan.ir.plan import Plan
from specplan.measure.bench.stock import Runner
from specplan.measure.workbench import TokenPrompt, Workbench
from specplan.runtime.executable import Executable
from specplan.runtime.generate import generate
from specplan.runtime.requests import Request
from specplan.runtime.sources.registry import learning_from_all
from specplan.runtime.sources.source import Source


@dataclass(frozen=True)
class Outcome:
    """One run over a group of prompts.

    Attributes:
        seconds: prompts included.
        first: seconds until the first token; None where it is not known.
        outputs: emitted tokens per prompt.
        rounds: of each request, summed; 0 where rounds are not known.
        prompts: seconds until the prompts are in the caches; None where it is not known.
    """

    seconds: float
    first: float | None
    outputs: tuple[tuple[int, ...], ...]
    rounds: int
    prompts: float | None = None


Timer = Callable[[Sequence[TokenPrompt]], Outcome]


@dataclass
class Contender:
    """One way to decode, and its runs.

    Attributes:
        name: for the table.
        run: one timed run over a group of prompts.
        forecast: of its speed, made before the runs; None without one.
        seconds: per group of prompts, one entry per repeat.
        first: seconds until the first token, per group, one entry per repeat.
        tokens: emitted per group.
        rounds: per request and group, summed over requests.
        outputs: tokens per prompt, in order.
    """

    name: str
    run: Timer
    forecast: Forecast | None = None
    seconds: list[list[float]] = field(default_factory=list)
    first: list[list[float]] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)
    outputs: list[tuple[int, ...]] = field(default_factory=list)

    @property
    def group_seconds(self) -> list[float]:
        """Median over repeats of each group's seconds."""
        return [median(times) for times in self.seconds]

    @property
    def first_seconds(self) -> list[float]:
        """Median over repeats of each group's seconds until the first token; empty if unknown."""
        return [median(times) for times in self.first if times]

    @property
    def tokens_per_second(self) -> float:
        """All tokens over all seconds, prompts included."""
        return sum(self.tokens) / sum(self.group_seconds)

    @property
    def tokens_per_round(self) -> float | None:
        """Emitted tokens per request and round; None for stock `transformers`."""
        return sum(self.tokens) / sum(self.rounds) if self.rounds else None

    def take(self, group: int, outcome: Outcome) -> None:
        """Note a run; outputs and rounds of a group are those of its first run."""
        if group == len(self.seconds):
            self.seconds.append([])
            self.first.append([])
            self.tokens.append(sum(len(tokens) for tokens in outcome.outputs))
            self.outputs += outcome.outputs
            if outcome.rounds:
                self.rounds.append(outcome.rounds)
        self.seconds[group].append(outcome.seconds)
        if outcome.first is not None:
            self.first[group].append(outcome.first)


def plan_timer(bench: Workbench, plan: Plan, served: Sequence[TokenPrompt] = ()) -> Timer:
    """Runs of a plan through the problem's backend; see `executable_timer`."""
    return executable_timer(bench, bench.compile(plan), served)


def compiled_timer(
    bench: Workbench, backend: str, loads: Sequence[tuple[int, int]], plan: Plan
) -> Timer:
    """Runs of a plan whose rounds a backend compiles, in the first run of each load; `compiled`."""
    return executable_timer(bench, compiled(bench, backend, loads, plan))


def compiled(
    bench: Workbench, backend: str, loads: Sequence[tuple[int, int]], plan: Plan
) -> Executable:
    """A plan whose rounds a backend compiles, in the first run of each load.

    Args:
        bench: the problem's models and settings.
        backend: its name.
        loads: batch sizes with prompt lengths.
        plan: one of the search for this backend.

    Raises:
        MissingCapabilityError: the backend cannot run here, or does not compile the plan.
    """
    buckets = [Bucket(batch, tokens + bench.output_tokens) for batch, tokens in loads]
    models = {name: bench.models[name] for name in plan.models_run}
    made = round_backend(backend).compile(plan, models, buckets=buckets)
    for batch, tokens in loads:  # what only some texts need would be compiled while it counts
        text = bench.request(TokenPrompt("", (0,) * tokens), bench.problem.seed, grammar=None)
        made.prepare([text] * batch)
    return made


def executable_timer(
    bench: Workbench, executable: Executable, served: Sequence[TokenPrompt] = ()
) -> Timer:
    """Runs of a compiled plan; no stop token ends a text early.

    A source that learns from past outputs must not know the output that is timed: when a prompt
    repeats, a new pass over all prompts begins, and sources forget what they learned in the last.

    Args:
        bench: the problem's models and settings.
        executable: runs them.
        served: prompts that are answered, untimed, before the first pass, if requests share a
            source; what it learns of them is known in every pass.
    """
    seen: set[str] = set()
    known: dict[str, Source] = {}
    shared = learning_from_all(executable.plan)

    def requests_of(prompts: Sequence[TokenPrompt]) -> list[Request]:
        return [bench.request(prompt, bench.problem.seed) for prompt in prompts]

    def begin(batch: int) -> None:
        """Give the sources the state in which every pass begins."""
        seen.clear()
        executable.forget()
        if known:
            executable.shared.update(deepcopy(known))
            return
        for first in range(0, len(served), batch):
            generate(executable, requests_of(served[first : first + batch]))
        known.update({name: deepcopy(executable.shared[name]) for name in shared})

    def run(prompts: Sequence[TokenPrompt]) -> Outcome:
        names = {prompt.id for prompt in prompts}
        if shared and (names & seen or (served and not known)):
            begin(len(prompts))
        seen.update(names)
        requests = requests_of(prompts)
        arrivals: list[float] = []
        start = perf_counter()
        output = generate(
            executable, requests, on_tokens=lambda *_: arrivals.append(perf_counter() - start)
        )
        seconds = perf_counter() - start
        outputs = tuple(item.tokens for item in output.completions)
        rounds = sum(item.rounds for item in output.completions)
        first = arrivals[0] if arrivals else None
        return Outcome(seconds, first, outputs, rounds, output.prefill_seconds)

    return run


def stock_timer(runner: Runner) -> Timer:
    """Runs of stock `transformers`."""

    def run(prompts: Sequence[TokenPrompt]) -> Outcome:
        start = perf_counter()
        outputs = tuple(runner(prompts))
        return Outcome(perf_counter() - start, None, outputs, 0)

    return run
