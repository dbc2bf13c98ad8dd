"""The generate loop: a static batch of requests, any executable, one round after the other.

The loop knows rounds, not methods. It picks the round by the plan's schedule, hands tokens on as
they come, and ends requests whose text contains a stop string; stop tokens and length limits are
the session's own affair.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Literal, TypeAlias

from specplan.ir.errors import SpecplanError, UsageError
from specplan.ir.plan import Plan
from specplan.ir.schedule import select_round
from specplan.runtime.executable import Executable, Observer, Session, StepResult
from specplan.runtime.requests import Request
from specplan.runtime.tokenizer import StopStrings, StreamDecoder, Tokenizer

FinishReason: TypeAlias = Literal["stop", "stop_string", "length"]

OnTokens: TypeAlias = Callable[[int, tuple[int, ...], tuple[str, ...]], None]
"""Called after each round as (row, new tokens, the new text of each). Text lags while it may still
become a stop string or is half a character. A last call with no tokens and one text may follow."""


@dataclass(frozen=True)
class Completion:
    """The output of one request.

    Attributes:
        tokens: emitted tokens, a stop token included; they end with the token that completed a
            stop string.
        text: without the stop token or stop string; None when there was no tokenizer.
        finish_reason: "stop" for a stop token, "stop_string", or "length".
        rounds: rounds in which this request took part.
        tokens_per_round: emitted tokens over rounds; the tail of a round that a stop string cut
            off does not count.
    """

    tokens: tuple[int, ...]
    text: str | None
    finish_reason: FinishReason
    rounds: int

    @property
    def tokens_per_round(self) -> float:
        """Emitted tokens per round, bonus included; 0 when no round ran."""
        return len(self.tokens) / self.rounds if self.rounds else 0.0


@dataclass(frozen=True)
class Generation:
    """The output of a batch.

    Attributes:
        completions: one per request, in order.
        rounds: rounds that ran.
        rounds_by_name: number of runs of each round.
        prefill_seconds: from the start until the prompts are in the caches.
        decode_seconds: from there to the end.
        first_seconds: of them, those of the first round, in which heads read the prompt.
    """

    completions: tuple[Completion, ...]
    rounds: int
    rounds_by_name: dict[str, int]
    prefill_seconds: float
    decode_seconds: float
    first_seconds: float = 0.0

    @property
    def emitted(self) -> int:
        """Tokens emitted in all."""
        return sum(len(item.tokens) for item in self.completions)

    @property
    def seconds_per_round(self) -> float:
        """Wall-clock time of a round, prompts left out."""
        return self.decode_seconds / max(self.rounds, 1)

    @property
    def seconds_per_later_round(self) -> float:
        """Of a round behind the first, if there is one."""
        if self.rounds < 2:
            return self.seconds_per_round
        return (self.decode_seconds - self.first_seconds) / (self.rounds - 1)

    @property
    def tokens_per_round(self) -> float:
        """Emitted tokens per request and round in which it took part."""
        rounds = sum(item.rounds for item in self.completions)
        return self.emitted / rounds if rounds else 0.0

    @property
    def decode_tokens_per_second(self) -> float:
        """Emitted tokens per second of decoding."""
        return self.emitted / self.decode_seconds if self.decode_seconds > 0 else 0.0


class Row:
    """One request in progress, with the text that it has so far.

    Args:
        index: of the request, for `OnTokens`.
        request: what is continued.
        tokenizer: for text and stop strings; None for tokens alone.
    """

    def __init__(self, index: int, request: Request, tokenizer: Tokenizer | None) -> None:
        self.index = index
        self.request = request
        self.tokens: list[int] = []
        self.rounds = 0
        self.pieces: list[str] = []
        self.reason: FinishReason | None = None
        self.decoder = StreamDecoder(tokenizer, request.prompt_tokens) if tokenizer else None
        self.watch = StopStrings(request.stop_strings)

    def take(self, tokens: Sequence[int], on_tokens: OnTokens | None) -> None:
        """Add a round's tokens, up to the one that completes a stop string."""
        taken, shown = [], []
        for token in tokens:
            taken.append(token)
            shown.append("")
            if token in self.request.stop_tokens:
                self.reason = "stop"
                break
            if self.decoder is not None:
                shown[-1] = self.watch.feed(self.decoder.feed(token))
            if self.watch.stopped:
                self.reason = "stop_string"
                break
        self.tokens += taken
        self._show(tuple(taken), tuple(shown), on_tokens)

    def close(self, on_tokens: OnTokens | None) -> None:
        """Emit the text that was held back."""
        self.reason = self.reason or "length"
        if self.decoder is not None and self.reason != "stop_string":
            shown = self.watch.feed(self.decoder.flush())
            if self.watch.stopped:
                self.reason = "stop_string"
            else:
                shown += self.watch.flush()
            self._show((), (shown,), on_tokens)

    def _show(
        self, tokens: tuple[int, ...], texts: tuple[str, ...], on_tokens: OnTokens | None
    ) -> None:
        self.pieces += texts
        if on_tokens is not None and (tokens or any(texts)):
            on_tokens(self.index, tokens, texts)

    def completion(self) -> Completion:
        """The result."""
        text = None if self.decoder is None else "".join(self.pieces)
        return Completion(tuple(self.tokens), text, self.reason or "length", self.rounds)


def generate(
    executable: Executable,
    requests: Sequence[Request],
    *,
    tokenizer: Tokenizer | None = None,
    on_tokens: OnTokens | None = None,
    observer: Observer | None = None,
    capacity: int | None = None,
) -> Generation:
    """Continue every request until it stops.

    Args:
        executable: a compiled plan.
        requests: run together as one batch; an empty batch gives an empty result.
        tokenizer: needed for text and stop strings.
        on_tokens: called as tokens come.
        observer: called for each op, prefill included.
        capacity: tokens of text per row to reserve memory for.

    Raises:
        UsageError: stop strings without a tokenizer.
        SpecplanError: the plan's rounds stopped emitting.
    """
    check_stop_strings(requests, tokenizer)
    rows = [Row(index, request, tokenizer) for index, request in enumerate(requests)]
    if not rows:
        return Generation((), 0, {}, 0.0, 0.0)
    begin = perf_counter()
    session = executable.start(requests, capacity)
    try:
        session.prefill(observer)
        ready = perf_counter()
        names: Counter[str] = Counter()
        first = ready
        for name, active, step in steps(executable.plan, session, observer):
            first = first if names else perf_counter()
            names[name] += 1
            hand_on(session, [(place, rows[place]) for place in active], step, on_tokens)
        for row in rows:
            if row.reason is None:
                row.close(on_tokens)
        end = perf_counter()
    finally:
        session.release()
    return Generation(
        completions=tuple(row.completion() for row in rows),
        rounds=names.total(),
        rounds_by_name=dict(names),
        prefill_seconds=ready - begin,
        decode_seconds=end - ready,
        first_seconds=first - ready,
    )


def check_stop_strings(requests: Sequence[Request], tokenizer: Tokenizer | None) -> None:
    """Refuse stop strings without a tokenizer.

    Raises:
        UsageError: some request has them.
    """
    if tokenizer is None and any(request.stop_strings for request in requests):
        raise UsageError(
            "stop strings need a tokenizer", where="generate", remedy="Pass tokenizer=."
        )


def hand_on(
    session: Session, rows: Sequence[tuple[int, Row]], step: StepResult, on_tokens: OnTokens | None
) -> int:
    """Hand the tokens of a round on.

    Args:
        session: the batch.
        rows: those that took part, by their places in the batch.
        step: what the round emitted.
        on_tokens: called as tokens come.

    Returns:
        How many tokens the round emitted.
    """
    for place, row in rows:
        row.rounds += 1
        row.take(step.tokens[place], on_tokens)
        if row.reason == "stop_string":
            session.finish(place)
        elif session.done[place]:
            row.close(on_tokens)
    return sum(len(step.tokens[place]) for place, _ in rows)


def steps(
    plan: Plan, session: Session, observer: Observer | None = None
) -> Iterator[tuple[str, list[int], StepResult]]:
    """Run rounds, as the plan's schedule picks them, until no row needs more tokens.

    Args:
        plan: what the session runs.
        session: a batch after its prefill.
        observer: called for each op.

    Yields:
        The round's name, the rows that took part, and what they emitted. A row may be finished
        before the next.

    Raises:
        SpecplanError: the plan's rounds stopped emitting.
    """
    prompts = list(session.lengths)
    name: str | None = None
    idle, patience, written = 0, max(prompts) + 16, sum(prompts)
    while active := [row for row, done in enumerate(session.done) if not done]:
        lengths = session.lengths
        name = select_round(
            plan,
            batch=len(active),
            context=max(lengths[row] for row in active),
            emitted=max(now - then for now, then in zip(lengths, prompts, strict=True)),
            current=name,
        )
        result = session.step(name, observer)
        yield name, active, result
        before, written = written, sum(session.lengths)
        idle = 0 if written > before else idle + 1
        if idle > patience:
            raise emits_nothing(plan, name, idle)


def emits_nothing(plan: Plan, name: str, idle: int) -> SpecplanError:
    """The error of a plan whose rounds stopped emitting."""
    return SpecplanError(
        f"round '{name}' emitted nothing {idle} times in a row",
        where=f"plan {plan.name}",
        remedy="Check that it accepts and emits, and that pending= lets it catch up.",
    )
