"""One pass corrects a window of guesses, and verifies runs of tokens that windows showed before.

Lookahead decoding (Fu et al. 2024, arXiv 2402.02057). A window is W columns of Jacobi iterations:
its top row is the last token and W - 1 guesses after it, and below each stand the tokens of the
N - 2 iterations before, so that every column with the token that this pass gives it is an N-gram
that the target may write. Those N-grams go to a pool; the pool's N-grams after the last token are
verified in the same pass, and so each pass runs W (N - 1) tokens of the window besides the drafted
ones. After each round the window moves on by one column, however many tokens were accepted, as in
the released code.

Different from there: N-grams of the pool are merged where they begin alike and cut to a number of
tokens; the window begins with one constant token rather than random ones of the prompt; the pool
always learns the text too (its option `POOL_FROM_PROMPT`). At a temperature above 0 the window
continues by best tokens, and drafts are certain proposals, judged by the recursive rule, which
keeps the target's distribution.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from specplan.ir.plan import Plan
from specplan.ir.values import print_atom
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Option, Options
from specplan.planner.templates.plan_text import draft_and_verify
from specplan.planner.templates.profiled_by_running import ProfiledByRunning

CAPACITY = 65536


@dataclass(frozen=True)
class LookaheadOptions(Options):
    """How much is guessed (W, N), and how much of the pool is verified."""

    reads = "{window} columns, {ngram}-grams, {nodes} verified"

    window: Annotated[int, Option("columns of guesses")]
    ngram: Annotated[int, Option("tokens of a run that the pool learns")]
    nodes: Annotated[int, Option("tokens of the pool that are verified")]


class Lookahead(ProfiledByRunning[LookaheadOptions]):
    """Needs nothing besides the target but compute to spare."""

    summary = "runs of tokens that the target's own parallel guesses showed before"
    paper = "Fu et al. 2024, arXiv 2402.02057"
    differs = (
        "N-grams of the pool are merged where they begin alike, the window begins with one "
        "constant token, and one device runs it all."
    )
    memory = "65,536 runs of each request, 600 bytes each, and a window of 17 bytes per token"
    shape = "dynamic tree"
    sources = ("lookahead",)
    by_name = False
    family = "window and pool"
    shapes = ((2, 3, 3), (3, 3, 4), (5, 3, 6), (5, 4, 8), (8, 4, 12), (10, 5, 16), (15, 5, 24))

    def plan(self, facts: ProblemFacts, options: LookaheadOptions) -> Plan:
        """Look up, run both, accept, teach the pool, move the window on."""
        columns, order, nodes = options.window, options.ngram, options.nodes
        parents, following = _window(columns, order)
        size, window = len(parents), print_atom(parents)
        newest = tuple(range(size - columns, size))
        drafted = f"""%t0 = root
update @pool %t0 last={order}
%c = lookup @pool %t0 at=%t0 match=[1, 1] children={nodes} length={order - 1} nodes={nodes}
%w = load @window"""
        move = f"""%f = pick %w of=all nodes={print_atom(newest)}
%x = grow %w at=%f logits=%m
update @pool %x last={order}
%n = relabel %w other=%x map={print_atom(following)}
store @window %n"""
        states = (
            f"@pool = source phrases(order={order}, width={nodes}, capacity={CAPACITY})",
            f"@window = value tree(nodes={size}, depth={columns + order - 3}, parents={window}, "
            "init=0)",
        )
        return draft_and_verify(facts, self, drafted, nodes, beside="%w", after=move, states=states)


def _window(columns: int, order: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Parents of a window's nodes, and which node of the grown window each is in the next round.

    The guesses after the last token come first, then row by row the older iterations, which hang
    below the last token and the guesses. Grown, a window has a last row more. A row becomes the one
    above it; of the row below the guesses all but the first token are the next round's guesses.

    Args:
        columns: W.
        order: N, at least 3.
    """
    guesses = columns - 1
    parents = [*range(-1, guesses - 1)]
    parents += [*range(-1, guesses)]
    parents += range(guesses, guesses + columns * (order - 3))
    following = [*range(columns, guesses + columns)]
    following += range(guesses + columns, guesses + columns * (order - 1))
    return tuple(parents), tuple(following)


METHOD = Lookahead()
