"""Bytes that torch's CPU allocator really gave, by its own events."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence

import torch
from torch.profiler import ProfilerActivity, profile

from specplan.ir.plan import Plan
from specplan.runtime.executable import Executable
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.requests import Request


def allocated(work: Callable[[], None]) -> tuple[int, int]:
    """Bytes left allocated after some work, and the most while it ran, from none before it."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        work()
    assert seen.profiler is not None and seen.profiler.kineto_results is not None
    events = sorted(
        (event.start_ns(), event.nbytes())
        for event in seen.profiler.kineto_results.events()
        if event.name() == "[memory]"
    )
    now = most = 0
    for _, size in events:
        now += size
        most = max(most, now)
    return now, most


def weights_of(models: Sequence[CausalModel]) -> int:
    """Bytes of every tensor that is alive because these models are."""
    seen: dict[int, int] = {}
    for model in models:
        waiting: list[object] = [model]
        known: set[int] = set()
        while waiting:
            item = waiting.pop()
            if id(item) in known or isinstance(item, type):
                continue
            known.add(id(item))
            if isinstance(item, torch.Tensor):
                storage = item.untyped_storage()
                seen[storage.data_ptr()] = storage.nbytes()
            elif getattr(type(item), "__module__", "").split(".")[0] in _OURS or isinstance(
                item, dict | list | tuple
            ):
                waiting += gc.get_referents(item)
    return sum(seen.values())


_OURS = ("specplan", "transformers", "torch")


def requests_for(
    plan: Plan, models: dict[str, CausalModel], batch: int, prompt: int, output: int
) -> list[Request]:
    """Prompts of one length, sampled unless the plan is for temperature 0 alone."""
    vocabulary = models["target"].vocab_size
    return [
        Request(
            prompt_tokens=tuple((7 * row + place) % vocabulary for place in range(prompt)),
            max_new_tokens=output,
            temperature=0.0 if plan.greedy_only else 0.8,
            seed=row,
        )
        for row in range(batch)
    ]


def peak_of_second_round(executable: Executable, requests: list[Request]) -> tuple[int, int]:
    """Tokens of the longest text, and the most bytes of a round that are given back in it."""
    session = executable.start(requests)
    session.prefill()
    session.step("decode")
    longest = max(session.lengths)

    def work() -> None:
        session.step("decode")

    _, most = allocated(work)
    return longest, most


def peak_of_rounds(
    plan: Plan, models: dict[str, CausalModel], batch: int, prompt: int, output: int, rounds: int
) -> tuple[int, int]:
    """Bytes of caches and texts, and the most of a prefill and some rounds, caches included."""
    from specplan.backends.eager.backend import EagerBackend

    executable = EagerBackend().compile(plan, models)
    executable.side_by_side = False  # the profiler sees this thread alone
    requests = requests_for(plan, models, batch, prompt, output)
    sessions = []
    caches, _ = allocated(lambda: sessions.append(executable.start(requests)))
    session = sessions[0]

    def work() -> None:
        session.prefill()
        for _ in range(rounds):
            session.step("decode")

    _, most = allocated(work)
    return caches, caches + most
