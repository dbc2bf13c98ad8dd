"""What would make a plan fit into less memory, and how many bytes each way saves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from specplan.cost_models.memory.plan_memory import PlanMemory, largest, plan_memory
from specplan.cost_models.memory.runtime import EAGER, Runtime
from specplan.cost_models.models.forward import splits_evenly
from specplan.cost_models.models.model_shape import ModelShape
from specplan.cost_models.models.number_formats import number_format
from specplan.ir.plan import Plan

_FP8_CACHE, _EIGHT_BITS, _FOUR_BITS, _MORE_DEVICES = 0.1, 0.2, 0.4, 1.0
"""What a remedy costs, as the part of the throughput that one would give for it: a rule of thumb
that puts them in order. Fewer requests or tokens cost the part that is left out."""
_MOST_DEVICES = 64
"""Devices that share each layer, at most."""


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
        return f"{self.words} (saves {self.saves / 1e9:.3g} GB)"


def remedies(need: Need, allowed: float, more_devices: bool = True) -> tuple[Remedy, ...]:
    """Ways to fit, those that suffice alone first, and of these the cheapest first.

    Args:
        need: what does not fit.
        allowed: bytes there are, on all devices of the runtime.
        more_devices: whether further devices may share the layers, each with as many bytes.

    Returns:
        Where none suffices, those that save most come first.
    """
    now = need.memory.total
    ways = [
        Remedy(words, now - total, total <= allowed, cost)
        for words, total, cost in (*_smaller(need, allowed), *_narrower(need))
        if total < now
    ]
    if more_devices and now > allowed:
        ways += _shared(need, allowed)
    return tuple(
        sorted(ways, key=lambda one: (not one.enough, one.cost if one.enough else -one.saves))
    )


def _shared(need: Need, allowed: float) -> Iterator[Remedy]:
    """The fewest devices that can share the layers of every model and hold all of it."""
    have = need.runtime.devices
    for count in range(have + 1, _MOST_DEVICES + 1):
        if not all(splits_evenly(need.shapes[name], count) for name in need.plan.models_run):
            continue
        total = replace(need, runtime=replace(need.runtime, devices=count)).memory.total
        if total * have <= allowed * count:
            saved = need.memory.total - total * have / count
            words = f"{count} of these devices sharing each layer"
            yield Remedy(words, saved, True, _MORE_DEVICES * (count / have - 1))
            return


def _smaller(need: Need, allowed: float) -> Iterator[tuple[str, float, float]]:
    """Fewer requests, or shorter outputs: as many as fit, or the least there can be."""

    def of_batch(batch: int) -> bool:
        return batch < need.batch and replace(need, batch=batch).memory.total <= allowed

    def of_text(output: int) -> bool:
        tokens = need.prompt_tokens + output
        return tokens < need.text_tokens and with_text(tokens) <= allowed

    def with_text(tokens: int) -> float:
        return float(replace(need, text_tokens=tokens).memory.total)

    if need.batch > 1:
        batch = max(largest(of_batch), 1)
        left = replace(need, batch=batch).memory.total
        yield f"batch {batch} instead of {need.batch}", left, 1.0 - batch / need.batch
    if need.text_tokens > need.prompt_tokens + 1:
        tokens = need.prompt_tokens + max(largest(of_text), 1)
        words = f"texts of {tokens} tokens instead of {need.text_tokens}"
        yield words, with_text(tokens), 1.0 - tokens / need.text_tokens


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
