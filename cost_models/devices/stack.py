"""The software that launches kernels: what it adds to, and takes from, what a device could do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib import resources
from importlib.resources.abc import Traversable

from specplan.cost_models.devices.figures import read_figures
from specplan.ir.errors import UsageError
from specplan.ir.files import stems

DEFAULT = "graph"
ENGINE_STACKS = {
    "vllm": "vllm",
    "ray_serve": "vllm",
    "dynamo": "vllm",
    "sglang": "sglang",
    "tensorrt_llm": "tensorrt-llm",
}
"""The stack of each serving engine that has one; Ray Serve and Dynamo run vLLM."""


@dataclass(frozen=True)
class Stack:
    """A serving or decoding stack. The plain constructor is one that costs nothing.

    Attributes:
        name: how the user calls it, after the `@` of a device.
        dispatch_seconds: host time to start one kernel; 0 where kernels are captured in a graph.
            A forward takes the longer of device and host time.
        kernels_per_layer: small kernels per layer besides matrix products, attention and
            collectives: norms, rotary positions, activations, residuals.
        elementwise_fusion: part of the traffic of unfused elementwise kernels that is left.
        kernels_per_mixture: small kernels per mixture of experts besides its router and products:
            choosing, sorting and scaling tokens, quantising them, adding up what experts return.
        captured_tokens: most tokens of a forward that runs from a captured graph; a longer one
            takes `dispatch_seconds` per kernel. 0 where there is no such limit.
        seconds_per_step: host time of an engine's step that hides behind nothing: scheduling,
            inputs, handing tokens over. Once per round, whatever runs in it.
        seconds_per_forward: host time of a forward that hides behind nothing: inputs, sampling;
            of a draft step, too.
        seconds_per_sequence: the same per sequence of the batch: scheduling, detokenising.
        acceptance_seconds: acceptance of a round's draft tokens: sampling from the target's logits,
            the acceptance rule, and the host's part of both.
        acceptance_seconds_per_sequence: the same per sequence of the batch.
        compute_efficiency: factor on the device's, of matrix products.
        memory_efficiency: factor on the device's, of matrix products.
        attention_efficiency: factor on the device's bandwidth in attention.
        attention_vector_efficiency: part of the float32 peak that attention reaches where it uses
            no matrix units; 0 where it does.
        attention_block_share: most of the bandwidth that one block of an attention kernel draws
            that splits no context, in shares of one processor; 0 where contexts are split.
        attention_blocks: blocks resident per processor in kernels whose last wave of blocks may
            be part empty; 0 where they balance the work.
        collective_latency: factor on the device's latency of an all-reduce.
        dequantise_operations: float32 operations per weight that is stored narrower than it is
            multiplied.
        windowed_caches: 1 where layers with a sliding window cache no more tokens than it.
        graph_bytes: memory of one captured graph on a GPU, without its workspace.
        reserve_bytes: memory of the framework on a GPU: its context and kernels.
        relative_error: added in quadrature to the device's.
        sources: where each figure comes from, by attribute.
        basis: versions of an engine, dates of the runs that set the figures, and the error on runs
            that did not; "" for a stack that is no engine's.
    """

    name: str
    dispatch_seconds: float = 0.0
    kernels_per_layer: float = 0.0
    kernels_per_mixture: float = 0.0
    elementwise_fusion: float = 0.0
    captured_tokens: float = 0.0
    seconds_per_step: float = 0.0
    seconds_per_forward: float = 0.0
    seconds_per_sequence: float = 0.0
    acceptance_seconds: float = 0.0
    acceptance_seconds_per_sequence: float = 0.0
    compute_efficiency: float = 1.0
    memory_efficiency: float = 1.0
    attention_efficiency: float = 1.0
    attention_vector_efficiency: float = 0.0
    attention_block_share: float = 0.0
    attention_blocks: float = 0.0
    collective_latency: float = 1.0
    dequantise_operations: float = 0.0
    windowed_caches: float = 0.0
    graph_bytes: float = 0.0
    reserve_bytes: float = 0.0
    relative_error: float = 0.0
    sources: Mapping[str, str] = field(default_factory=dict)
    basis: str = ""

    @classmethod
    def from_yaml(cls, text: str, where: str = "stack file") -> Stack:
        """Read a stack file; each figure there is `{value: ..., source: ...}`.

        Raises:
            UsageError: not YAML, an unknown key, a figure without a source.
        """
        known = [item.name for item in fields(cls) if item.name not in ("name", "sources", "basis")]
        figures = read_figures(text, where, "stack", known)
        return cls(
            name=figures.name, sources=figures.sources, basis=figures.basis, **figures.values
        )


IDEAL = Stack("ideal")
"""Costs nothing: the roofline of the device alone."""


def list_stacks() -> tuple[str, ...]:
    """Names of the stack files that ship with specplan, sorted."""
    return stems(_folder())


def load_stack(name: str) -> Stack:
    """A shipped stack by name.

    Raises:
        UsageError: there is none.
    """
    if name not in list_stacks():
        raise UsageError(f"no stack {name!r}", remedy=f"Known stacks: {', '.join(list_stacks())}.")
    return Stack.from_yaml((_folder() / f"{name}.yaml").read_text(encoding="utf-8"), where=name)


def stack_of(backend: str) -> str:
    """The stack that a problem's backend, `NAME` or `NAME@VERSION`, launches kernels by."""
    return ENGINE_STACKS.get(backend.partition("@")[0], DEFAULT)


def _folder() -> Traversable:
    return resources.files("specplan.cost_models.devices") / "stacks"
