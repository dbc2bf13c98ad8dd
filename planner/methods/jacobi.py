"""The target guesses a block of tokens and corrects all of them at once until they stand.

Jacobi decoding (Santilli et al. 2023, arXiv 2305.10427): greedy decoding is the solution of a
triangular system of equations, y_i = argmax p(. | y_1 .. y_i-1), and every pass over a guess of
all y_i is one Jacobi iteration, which settles at least the next token. Blocks follow one another as
in Gauss-Seidel iteration (the paper's GS-Jacobi); a block as long as the output is its parallel
Jacobi decoding. Other than there, settled tokens leave the block at once, so that no pass is spent
on them, and no last pass only finds that nothing changed any more: the pass that settles a block
gives the token after it as well.

At a temperature above 0 a guess is a certain proposal, accepted with the target's probability of
it, which keeps the target's law; what is left of a block is kept where the target draws what the
block says, else a new block begins.

The paper's hybrid, blocks for the first tokens and plain decoding for the rest, is two rounds and a
schedule by the tokens emitted. What is accepted of its blocks is taken from the same profile as
without an end; where that knows the order of its rounds, from the first tokens alone. In a batch
the request that has emitted most ends the blocks for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from specplan.cost_models.acceptance.drafters import Drafter
from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Options, own_rounds
from specplan.planner.templates.merged_rounds import first_then
from specplan.planner.templates.plan_text import judge, plain_plan, single_round_plan
from specplan.planner.templates.profiled_by_running import ProfiledByRunning

BLOCKS = (2, 3, 4, 6, 8, 16, 32)
FIRST = (16, 32, 64)
FIRST_BLOCKS = (4, 8, 16)
"""Blocks that are also tried for the first tokens alone."""
FIRST_GUESS = 0
"""The token that a new block is filled with; the paper pads."""


@dataclass(frozen=True)
class JacobiOptions(Options):
    """How far ahead is guessed.

    Attributes:
        block: tokens of a block.
        first: tokens of an output after which plain decoding goes on; None for blocks throughout.
    """

    block: int
    first: int | None = None

    @property
    def words(self) -> str:
        """`blocks of 8`, `blocks of 8 for the first 32 tokens`."""
        until = "" if self.first is None else f" for the first {self.first} tokens"
        return f"blocks of {self.block}{until}"


class Jacobi(ProfiledByRunning[JacobiOptions]):
    """Needs nothing beside the target; pays where later tokens hang little on earlier ones."""

    name: ClassVar[str] = "jacobi"
    summary: ClassVar[str] = "the target corrects a block of its own guesses, pass after pass"
    paper: ClassVar[str] = "Santilli et al. 2023, arXiv 2305.10427"
    memory: ClassVar[str] = "the guesses, 17 bytes per token of the block and request"
    sources: ClassVar[tuple[str, ...]] = ("jacobi",)
    family: ClassVar[str] = "blocks of guesses"
    domains: ClassVar[Mapping[str, str]] = {
        "block": "tokens of a block",
        "first": "tokens after which plain decoding goes on, or none",
    }

    def settings(self, models: Sequence[str]) -> Iterator[JacobiOptions]:
        """Blocks of 2 to 32 tokens; some of these for the first 16 to 64 tokens."""
        yield from map(JacobiOptions, BLOCKS)
        for block in FIRST_BLOCKS:
            for first in FIRST:
                yield JacobiOptions(block, first)

    def plan(self, facts: ProblemFacts, options: JacobiOptions) -> Plan:
        """Blocks, and plain decoding after the first tokens where the options say so."""
        blocks = self._blocks(facts, options.block)
        if options.first is None:
            return blocks
        plain = plain_plan(facts, self.name)
        return first_then(blocks, options.first, plain, ("blocks", "plain"))

    def _blocks(self, facts: ProblemFacts, block: int) -> Plan:
        """Verify the guesses, correct them, keep what is left; begin a new block when none is."""
        body = "%g = load @guess\n" + judge("%g", block, rule=None if facts.greedy else "recursive")
        body += f"""
%n = relabel %g logits=%l
%r = reroot %n %e
%left = measure %r count
%empty = compute "left < 1" left=%left
%w = when %empty otherwise=[%r] {{
  %tip = pick %r of=leaves
  %x = place %r at=%tip tokens=[{FIRST_GUESS}] upto={block}
  yield %x
}}
store @guess %w"""
        guess = f"@guess = value tree(nodes={block}, depth={block}, init={FIRST_GUESS})"
        return single_round_plan(facts, self.name, (), body, states=[guess])

    def drafter(self, facts: ProblemFacts, options: JacobiOptions) -> Drafter | None:
        """The rounds of blocks throughout: those for the first tokens are the first of them."""
        return own_rounds(facts, self, replace(options, first=None))


METHOD = Jacobi()
