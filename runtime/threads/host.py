"""The host of requests that branch: texts of one request, in one batch over one prefix.

Between rounds the entry says which threads there are by now (`specplan.runtime.threads`). New ones
join the batch; what their prompts share with a text that runs is copied from its caches, not read
again. Rounds know nothing of it, so that every thread gets the tokens of a request of its own.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from specplan.ir.errors import UsageError
from specplan.ir.plan import Plan
from specplan.ir.tables.builtin import BUILTIN
from specplan.runtime.continuous import Server
from specplan.runtime.executable import Executable
from specplan.runtime.generate import Completion, FinishReason, Generation, OnTokens, Row
from specplan.runtime.requests import Request
from specplan.runtime.service import BatchLimits, WallTimer
from specplan.runtime.threads import THREADS, Branches, Thread
from specplan.runtime.tokenizer import Tokenizer

ROOM = 4
"""Outputs of a request's length that a thread's prompt may hold beside the request's own."""


@dataclass(frozen=True)
class Branched:
    """The output of a request that branched.

    Attributes:
        text: joined.
        threads: in the order in which they began.
        finish_reason: "length" where some thread ran out of tokens, else "stop".
        rounds_by_name: that the batch ran.
        rows: requests of all rounds together: what one text after another would have run.
        shared: prompt tokens that were copied instead of read.
        prefill_seconds: reading prompts, all told.
        decode_seconds: rounds.
    """

    text: str
    threads: tuple[Thread, ...]
    finish_reason: FinishReason
    rounds_by_name: dict[str, int]
    rows: int
    shared: int
    prefill_seconds: float
    decode_seconds: float

    @property
    def rounds(self) -> int:
        """Rounds that the batch ran."""
        return sum(self.rounds_by_name.values())

    @property
    def completion(self) -> Completion:
        """The same as one completion, whose tokens are those of all threads."""
        tokens = tuple(token for one in self.threads for token in one.tokens)
        return Completion(tokens, self.text, self.finish_reason, self.rounds)


def generate_branched(
    executable: Executable, requests: Sequence[Request], tokenizer: Tokenizer
) -> Generation:
    """Run requests that branch, one after the other, as the plan declares; see `branch`."""
    every = [branch(executable, request, tokenizer) for request in requests]
    return Generation(
        completions=tuple(one.completion for one in every),
        rounds=sum(one.rounds for one in every),
        rounds_by_name=dict(sum((Counter(one.rounds_by_name) for one in every), Counter())),
        prefill_seconds=sum(one.prefill_seconds for one in every),
        decode_seconds=sum(one.decode_seconds for one in every),
    )


def branches_of(plan: Plan) -> Branches:
    """What a plan's statement `threads` declares.

    Raises:
        UsageError: it has none.
    """
    if plan.threads is None:
        raise UsageError(
            "the plan has no threads",
            where=f"plan {plan.name}",
            remedy="Write `threads 8 by=labels(path=...)`, or another entry.",
        )
    entry = plan.threads.by
    declared = BUILTIN.find("threads", entry.name)
    assert declared is not None, "the verifier knows all entries"
    made: Branches = THREADS[entry.name].branches(**declared.arguments(entry))
    return made


def branch(
    executable: Executable,
    request: Request,
    tokenizer: Tokenizer,
    branches: Branches | None = None,
    *,
    rows: int | None = None,
    capacity: int | None = None,
    on_tokens: OnTokens | None = None,
) -> Branched:
    """Run a request that branches, and join its texts.

    Args:
        executable: a plan, compiled for `eager`.
        request: its prompt, and the settings of every thread; a thread's seed is the request's and
            its number.
        tokenizer: of the target.
        branches: by default what the plan declares.
        rows: threads that run at once at most; by default as many as the plan declares, or 8.
        capacity: tokens of the longest thread, prompt included.
        on_tokens: called as tokens come, with the number of the thread.

    Raises:
        UsageError: the plan declares no threads, or one does not fit the models or `capacity`.
        MissingCapabilityError: requests cannot join a batch of this plan between rounds.
    """
    plan = executable.plan
    if rows is None:
        rows = 8 if plan.threads is None else plan.threads.count
    host = _Host(executable, rows, request, tokenizer, branches or branches_of(plan), on_tokens)
    size = 2 * len(request.prompt_tokens) + (1 + ROOM) * request.max_new_tokens
    host.capacity = size if capacity is None else capacity
    try:
        host.run_threads()
    finally:
        host.release()
    return host.result()


class _Host(Server):
    """A batch of one request's threads."""

    def __init__(
        self,
        executable: Executable,
        rows: int,
        request: Request,
        tokenizer: Tokenizer,
        branches: Branches,
        on_tokens: OnTokens | None,
    ) -> None:
        super().__init__(executable, BatchLimits(running=rows), WallTimer(), on_tokens)
        self.request, self.tokenizer, self.branches = request, tokenizer, branches
        self._begun: dict[str, tuple[Thread, Row]] = {}
        self._names: Counter[str] = Counter()

    @property
    def threads(self) -> tuple[Thread, ...]:
        """Those that have begun, as they are now."""
        return tuple(
            replace(
                thread,
                tokens=tuple(row.tokens),
                text="".join(row.pieces),
                ended=row.reason is not None,
            )
            for thread, row in self._begun.values()
        )

    def run_threads(self) -> None:
        """Run until no thread is left; the first one is read alone, so that others copy from it."""
        self._begin()
        while self.waiting or self._running:
            now, later = self.clock.now(), deque[tuple[float, Row]]()
            while self.session is None and len(self.waiting) > 1:
                later.appendleft(self.waiting.pop())
            joined = self._admit(now)
            if later:
                self.waiting += later
                joined += self._admit(now)
            ready = self.clock.now()
            if self._running:
                self._step(joined, ready - now, ready)
                self._names[self._round or ""] += 1
            self._begin()

    def _begin(self) -> None:
        """Let the threads wait that the entry says begin now."""
        for thread in self.branches.begin(self.threads):
            if thread.name not in self._begun:
                number = len(self._begun)
                row = Row(number, self._request(thread, number), self.tokenizer)
                self._begun[thread.name] = thread, row
                self.waiting.append((self.clock.now(), row))

    def _request(self, thread: Thread, number: int) -> Request:
        after: Sequence[int] | str = thread.after
        if isinstance(after, str):
            after = self.tokenizer.encode(after, special=False)
        given = self.request
        most = given.max_new_tokens if thread.most is None else thread.most
        return replace(
            given,
            prompt_tokens=(*given.prompt_tokens, *after),
            max_new_tokens=most,
            seed=given.seed + number,
            stop_tokens=(*given.stop_tokens, *thread.stop_tokens),
            stop_strings=(*given.stop_strings, *thread.stops),
        )

    def result(self) -> Branched:
        """What came of it."""
        reasons = {row.reason for _, row in self._begun.values()}
        return Branched(
            text=self.branches.join(self.threads),
            threads=self.threads,
            finish_reason="length" if "length" in reasons else "stop",
            rounds_by_name=dict(self._names),
            rows=sum(one.running for one in self.steps),
            shared=self.shared,
            prefill_seconds=sum(one.read_seconds for one in self.steps),
            decode_seconds=sum(one.seconds for one in self.steps),
        )
