"""What would make a plan fit into less memory, and how many bytes each way saves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from specplan.cost_models.memory.plan_memory import EAGER, PlanMemory, Runtime, largest, plan_memory
from specplan.cost_models.models.model_shape import ModelShape
from specplan.cost_models.models.number_formats import number_format
from specplan.ir.plan import Plan

_FP8_CACHE, _EIGHT_BITS, _FOUR_BITS, _MORE_DEVICES = 0.1, 0.2, 0.4, 1.0
"""What a remedy costs, as the part of the throughput that one would give for it: a rule of thumb
that puts them in order. Fewer requests or tokens cost the part that is left out."""


@dataclass(frozen=True, slots=True)
class Need:
    """What a plan is asked to hold.

    Attributes:
        plan: the plan.
        shapes: by the model's name in the plan.
        batch: requests.
        text_tokens: prompt and output of the longest request.
        prompt_tokens: longest prompt.
        runtime: what runs it.
    """

    plan: Plan
    shapes: Mapping[str, ModelShape]
    batch: int
    text_tokens: int
    prompt_tokens: int
    runtime: Runtime = EAGER

    @property
    def memory(self) -> PlanMemory:
        """All of it."""
        return plan_memory(
            self.plan, self.shapes, self.batch, self.text_tokens, self.prompt_tokens, self.runtime
        )

    def with_text(self, tokens: int) -> Need:
        """The same with shorter texts, prompts cut with them."""
        prompt = min(self.prompt_tokens, max(tokens - 1, 1))
        return replace(self, text_tokens=tokens, prompt_tokens=prompt)


@dataclass(frozen=True, slots=True)
class Remedy:
    """One way to need less.

    Attributes:
        words: what to do.
        saves: bytes.
        enough: whether it alone makes the plan fit.
        cost: puts remedies in order, see above.
    """

    words: str
    saves: float
    enough: bool
    cost: float

    def __str__(self) -> str:
        return f"{self.words} (saves {self.saves:.4g} bytes)"


def remedies(need: Need, allowed: float) -> tuple[Remedy, ...]:
    """Ways to fit, those that suffice alone first, and of these the cheapest first.

    Args:
        need: what does not fit.
        allowed: bytes there are.

    Returns:
        Where none suffices, those that save most come first.
    """
    now = need.memory.total
    found = [
        Remedy(words, now - total, total <= allowed, cost)
        for words, total, cost in (*_smaller(need, allowed), *_narrower(need))
        if total < now
    ]
    more = -(-now // allowed) * need.runtime.devices
    if need.runtime.devices == 1 and now > allowed:
        words = f"{more:.0f} of these devices sharing each layer"
        found.append(Remedy(words, now - now / more, True, _MORE_DEVICES * (more - 1)))
    return tuple(
        sorted(found, key=lambda one: (not one.enough, one.cost if one.enough else -one.saves))
    )


def _smaller(need: Need, allowed: float) -> Iterator[tuple[str, float, float]]:
    """Fewer requests, shorter texts: as many as fit, or one."""

    def of_batch(batch: int) -> bool:
        return batch < need.batch and replace(need, batch=batch).memory.total <= allowed

    def of_text(tokens: int) -> bool:
        return tokens < need.text_tokens and need.with_text(tokens).memory.total <= allowed

    if need.batch > 1:
        batch = max(largest(of_batch), 1)
        left = replace(need, batch=batch).memory.total
        yield f"batch {batch} instead of {need.batch}", left, 1.0 - batch / need.batch
    if need.text_tokens > 2:
        tokens = max(largest(of_text), 2)
        left = need.with_text(tokens).memory.total
        words = f"texts of {tokens} tokens instead of {need.text_tokens}"
        yield words, left, 1.0 - tokens / need.text_tokens


def _narrower(need: Need) -> Iterator[tuple[str, float, float]]:
    """Fewer bytes per number: caches in fp8, matrices in 8 or 4 bits."""
    fp8 = number_format("fp8")

    def total(shapes: Mapping[str, ModelShape]) -> float:
        return float(replace(need, shapes=shapes).memory.total)

    yield (
        "caches in fp8 (kv_format: fp8)",
        total({name: replace(shape, kv_format=fp8) for name, shape in need.shapes.items()}),
        _FP8_CACHE,
    )
    for words, name, cost in (
        ("weights in 8 bits (weight_format: int8)", "int8", _EIGHT_BITS),
        ("weights in 4 bits (weight_format: int4)", "int4-g128", _FOUR_BITS),
    ):
        form = number_format(name)
        yield (
            words,
            total(
                {
                    role: replace(shape, formats=shape.formats.with_matrices(form))
                    for role, shape in need.shapes.items()
                }
            ),
            cost,
        )
