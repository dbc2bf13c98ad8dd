"""One arena: nothing that is needed at once overlaps, and what is not needed is used again."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from specplan.cost_models.memory.buffers import Buffer
from specplan.cost_models.memory.plan_memory import plan_memory as all_memory
from specplan.cost_models.models.model_shape import ModelShape
from specplan.ir.plan import Plan
from specplan.passes.pipeline import run_passes
from specplan.passes.plan_memory import ALIGNMENT, Arena, _placed, plan_memory
from tests.cost_models.public_shapes import llama, shape
from tests.passes.plans import read

SHAPES = {
    "target": shape("llama-2-7b"),
    "draft": ModelShape.from_config(llama(2048, 4, 16, 16, 5632, 32000), name="draft"),
}
ROW = 32000 * 4


def lowered(name: str) -> Plan:
    return run_passes(read(name))


def arena_of(name: str, batch: int = 4, text: int = 1000) -> Arena:
    (arena,) = plan_memory(lowered(name), SHAPES, batch, text)
    return arena


def test_a_drafted_chain() -> None:
    """Four drafts, one after the other: each one's rows take the place of those before."""
    arena = arena_of("draft_chain", batch=2, text=100)
    rows = [one for one in arena.placed if one.buffer.name.startswith("rows")]
    assert [one.buffer.size for one in rows] == [2 * ROW] * 4 + [2 * 5 * ROW]
    laws = [one for one in arena.placed if one.buffer.name.startswith("laws")]
    assert [one.buffer.size for one in laws] == [2 * count * ROW for count in (1, 2, 3, 4)]
    judging = next(one for one in arena.placed if one.buffer.name.startswith("judging"))
    assert judging.buffer.size == 4 * 2 * 5 * ROW
    # at the end: laws of four nodes, rows of five, and four copies of these
    assert arena.alive_at_once == (4 + 5 + 4 * 5) * 2 * ROW
    assert arena.size == arena.alive_at_once
    assert arena.without_reuse > 1.5 * arena.size


def test_the_table() -> None:
    """At once: logits of a row in float32 and in bfloat16, its hidden state, and 8780 bytes.

    The last are five int64, two rotary factors of 128 and the residual stream of 4096 in bfloat16,
    and a truth value and a bfloat16 for each of 12 slots.
    """
    head, columns, *lines = arena_of("autoregressive", batch=1, text=10).table()
    assert head == (
        "memory of round decode, batch 1, texts of 10 tokens: 209,024 bytes in one arena, "
        "299,648 without reuse, 208,972 at once"
    )
    assert columns.split() == ["offset", "bytes", "steps", "buffer"]
    assert lines[-1].split() == ["0", "128,000", "1-2", "rows", "%v1"]


def test_the_memory_that_is_priced_is_what_is_alive_at_once() -> None:
    """The price counts what a runtime holds; fragments and alignment are all that an arena adds."""
    for name in ("draft_chain", "static_tree", "early_exit_verified", "prompt_lookup"):
        plan = lowered(name)
        (arena,) = plan_memory(plan, SHAPES, 8, 3000)
        parts = {part.name: part.bytes for part in all_memory(plan, SHAPES, 8, 3000, 2).parts}
        priced = parts["activations"] + parts["logits and laws"]
        assert arena.alive_at_once <= priced
        assert arena.alive_at_once == priced or arena.alive_at_once > 0.5 * priced
        assert arena.size <= 1.1 * arena.alive_at_once


@st.composite
def some_buffers(draw: st.DrawFn) -> list[Buffer]:
    found = []
    for number in range(draw(st.integers(0, 12))):
        first = draw(st.integers(0, 20))
        size = draw(st.integers(1, 5000))
        found.append(Buffer(str(number), size, first, first + draw(st.integers(0, 9))))
    return found


@given(some_buffers())
def test_nothing_that_is_needed_at_once_overlaps(buffers: list[Buffer]) -> None:
    placed = tuple(_placed(buffers))
    assert [one.buffer for one in placed] == buffers
    arena = Arena("any", 1, 1, placed)
    for one, other in combinations(placed, 2):
        apart = one.buffer.last < other.buffer.first or other.buffer.last < one.buffer.first
        assert apart or one.end <= other.offset or other.end <= one.offset
    assert all(one.offset % ALIGNMENT == 0 for one in placed)
    assert arena.alive_at_once <= arena.size <= arena.without_reuse
