"""Tokens per round of chains and trees, from three published rows per temperature."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from published_rows.mixture import beta_tokens, law_of
from published_rows.row import Row
from specplan.cost_models.acceptance.model import Shape
from specplan.planner.trees import AcceptanceTable, search_trees

RANKS = 128
CHAIN_DEPTHS = (8, 32)
WIDTH, DEPTH = 5, 8


@dataclass(frozen=True)
class Chains:
    """A mixture over contexts, and how further ranks share the misses.

    Attributes:
        alpha: mean acceptance of the first choice.
        correlation: of two acceptances in one round.
        decay: k candidates miss k^-decay as often as one.
    """

    alpha: float
    correlation: float
    decay: float

    @property
    def others(self) -> tuple[float, ...]:
        """Shares of the misses of ranks 1, 2, ..."""
        return tuple(rank**-self.decay - (rank + 1) ** -self.decay for rank in range(1, RANKS))

    def sequences(self, width: int, depth: int) -> float:
        """Tokens per round of `width` chains of `depth` below the root, bonus included."""
        parents = (*(-1,) * width, *range(width * (depth - 1)))
        ranks = (*range(width), *(0,) * (width * (depth - 1)))
        law = law_of(self.alpha, self.correlation, self.others)
        return 1.0 + float(law.reach(Shape.of(parents, ranks)).sum())

    def best_tree(self, nodes: int, depth: int) -> float:
        """Tokens per round of the best tree of `nodes` drafted nodes, bonus included."""
        law = law_of(self.alpha, self.correlation, self.others)
        table = AcceptanceTable.of_hazard(law.hazard, depth, RANKS)
        tree = search_trees(table, nodes, depth).tree(nodes, depth)
        return 1.0 + float(law.reach(Shape.of(tree.parents, tree.ranks)).sum())


@dataclass(frozen=True)
class SweepCost:
    """Step-cost ratios of the sweep: r = round(width, depth) + token x tokens per round.

    Attributes:
        round: of (width, depth), plain steps.
        token: plain steps per emitted token.
    """

    round: Callable[[int, int], float]
    token: float

    def speedup(self, tokens: float, width: int, depth: int) -> float:
        """Of a round that emits `tokens`."""
        return tokens / (self.round(width, depth) + self.token * tokens)

    def tokens(self, speedup: float, width: int, depth: int) -> float:
        """Tokens per round behind a speedup."""
        return speedup * self.round(width, depth) / (1.0 - self.token * speedup)


SHIPPED = {0.0: Chains(0.695, 0.099, 0.385), 0.6: Chains(0.60, 0.0, 0.50)}
"""From the rows that `calibration_of` names."""


def calibration_of(row: Row) -> bool:
    """Whether a row of the pair 7B <- 68M on C4 sets a constant: chains of 8 and 32, tokens 5x8."""
    if row.metric == "speedup":
        return row.get("width") == 1 and row.get("depth") in CHAIN_DEPTHS
    return (
        row.metric == "tokens_per_step"
        and row.setting.get("specinfer_width_x_depth") == f"{WIDTH}x{DEPTH}"
        and row.hardware.startswith("A100")
        and row.task == "C4"
        and "7B" in row.target
    )


def chains_of(rows: Sequence[Row], temperature: float, cost: SweepCost) -> Chains:
    """The constants of one temperature; the shipped ones where a named row is missing.

    Args:
        rows: published rows of the source.
        temperature: of the rows to use.
        cost: of the sweep's rounds at this temperature.
    """
    named = [row for row in rows if calibration_of(row) and row.get("temperature") == temperature]
    chains = {row.get("depth"): row.positive for row in named if row.metric == "speedup"}
    tree = next((row.positive for row in named if row.metric == "tokens_per_step"), None)
    short, long = (chains.get(depth) for depth in CHAIN_DEPTHS)
    if not short or not long or not tree:
        return SHIPPED[temperature]
    alpha, correlation = _mixture(
        cost.tokens(short, 1, CHAIN_DEPTHS[0]), cost.tokens(long, 1, CHAIN_DEPTHS[1])
    )
    return Chains(alpha, correlation, _decay(alpha, correlation, tree))


def _mixture(short: float, long: float) -> tuple[float, float]:
    """(alpha, correlation) with these tokens of the short and the long chain."""
    low, high = 0.0, 0.9
    for _ in range(30):
        correlation = (low + high) / 2.0
        alpha = _alpha(short, correlation)
        if beta_tokens(alpha, CHAIN_DEPTHS[1], correlation) < long:
            low = correlation
        else:
            high = correlation
    return _alpha(short, low), low


def _alpha(tokens: float, correlation: float) -> float:
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2.0
        if beta_tokens(middle, CHAIN_DEPTHS[0], correlation) < tokens:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0


def _decay(alpha: float, correlation: float, tokens: float) -> float:
    low, high = 0.0, 4.0
    for _ in range(40):
        middle = (low + high) / 2.0
        if Chains(alpha, correlation, middle).sequences(WIDTH, DEPTH) < tokens:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0
