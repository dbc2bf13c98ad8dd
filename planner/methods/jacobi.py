"""The target guesses a block of tokens and corrects all of them at once until they stand.

Jacobi decoding (Santilli et al. 2023, arXiv 2305.10427): greedy decoding is the solution of a
triangular system of equations, y_i = argmax p(. | y_1 .. y_i-1), and every pass over a guess of
all y_i is one Jacobi iteration, which settles at least the next token. Blocks follow one another as
in Gauss-Seidel iteration (the paper's GS-Jacobi); a block as long as the output is its parallel
Jacobi decoding. Here settled tokens leave the block at once, so that no pass is spent on them, and
no last pass only finds that nothing changed any more: the pass that settles a block gives the token
after it as well.

At a temperature above 0 a guess is a certain proposal, accepted with the target's probability of
it, which keeps the target's distribution; the rest of a block stays where the target draws what the
block says, else a new block begins.

The paper's hybrid, blocks for the first tokens and plain decoding for the rest, is two rounds and a
schedule by the tokens emitted. The acceptance of its blocks comes from the same profile as without
an end; where that knows the order of its rounds, from the first tokens alone. In a batch the
request that has emitted most ends the blocks for all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from specplan.cost_models.acceptance.drafters import Drafter
from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Option, Options, own_rounds
from specplan.planner.templates.merged_rounds import first_then
from specplan.planner.templates.plan_text import draft_and_verify, plain_plan
from specplan.planner.templates.profiled_by_running import ProfiledByRunning

BLOCKS = (2, 3, 4, 6, 8, 16, 32)
FIRST_GUESS = 0
"""The token that a new block is filled with; the paper pads."""


@dataclass(frozen=True)
class JacobiOptions(Options):
    """How far ahead is guessed."""

    reads = "blocks of {block}{end}"

    block: Annotated[int, Option("tokens of a block")]
    first: Annotated[int | None, Option("tokens after which plain decoding goes on, or none")] = (
        None
    )

    @property
    def end(self) -> str:
        """Where blocks end."""
        return "" if self.first is None else f" for the first {self.first} tokens"


class Jacobi(ProfiledByRunning[JacobiOptions]):
    """Needs nothing besides the target; pays where later tokens depend little on earlier ones."""

    summary = "the target corrects a block of its own guesses, pass after pass"
    paper = "Santilli et al. 2023, arXiv 2305.10427"
    differs = (
        "Settled tokens leave the block at once, and no last pass checks that nothing changed."
    )
    memory = "the guesses, 17 bytes per token of the block and request"
    sources = ("jacobi",)
    by_name = False
    family = "blocks of guesses"
    shapes = (
        *((block,) for block in BLOCKS),
        *((block, first) for block in (4, 8, 16) for first in (16, 32, 64)),
    )

    def plan(self, facts: ProblemFacts, options: JacobiOptions) -> Plan:
        """Blocks, and plain decoding after the first tokens where the options say so."""
        blocks = self._blocks(facts, options.block)
        if options.first is None:
            return blocks
        return first_then(blocks, options.first, plain_plan(facts, self), ("blocks", "plain"))

    def _blocks(self, facts: ProblemFacts, block: int) -> Plan:
        """Verify the guesses, correct them, keep the rest; begin a new block when none is left."""
        correct = f"""%n = relabel %g logits=%l
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
        return draft_and_verify(
            facts, self, "%g = load @guess", block, tree="%g", after=correct, states=(guess,)
        )

    def drafter(self, facts: ProblemFacts, options: JacobiOptions) -> Drafter | None:
        """The rounds of blocks throughout: those for the first tokens are the first of them."""
        return own_rounds(facts, self, replace(options, first=None))


METHOD = Jacobi()
