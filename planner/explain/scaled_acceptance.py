"""A plan's acceptance, were every hazard a factor higher or lower."""

from __future__ import annotations

from itertools import pairwise

from specplan.cost_models.acceptance.evidence.base import Drafting
from specplan.cost_models.acceptance.evidence.hazards import Hazards
from specplan.cost_models.acceptance.model import AcceptanceModel
from specplan.cost_models.formulas.closed_forms import accepted_at_least

Table = tuple[tuple[float, ...], ...]


def most_scale(drafting: Drafting) -> float:
    """The factor at which the likeliest depth of the plan's tree is certain to be accepted."""
    likeliest = max((sum(row) for row in _table(drafting)), default=0.0)
    return 1.0 / likeliest if likeliest > 0.0 else 1.0


def scaled_hazards(drafting: Drafting, scale: float) -> Hazards:
    """Hazards by depth and rank, all multiplied.

    At a scale of 1 the plan's tree accepts as much of every depth as by the profile itself, and
    the tokens per round have an interval as wide. Contexts are taken to be alike.
    """
    rows = tuple(tuple(scale * p for p in row) for row in _table(drafting))
    return Hazards(rows, _trials(drafting))


def _table(drafting: Drafting) -> Table:
    """Hazards by depth and rank that give this tree the profile's own acceptance by depth."""
    model = _model(drafting)
    width = max(drafting.ranks, default=0) + 1
    wanted = model.accepted_at_least(drafting.parents, drafting.ranks)
    plain = accepted_at_least(drafting.parents, drafting.ranks, model.hazard)
    rows = []
    wanted += (0.0,) * (len(plain) - len(wanted))  # depths that no trace reached
    levels = zip(pairwise((1.0, *wanted)), pairwise((1.0, *plain)), strict=False)
    for depth, ((above, here), (plain_above, plain_here)) in enumerate(levels, start=1):
        factor = 1.0
        if min(above, plain_above, plain_here) > 0.0:
            factor = (here / above) / (plain_here / plain_above)
        row = [model.hazard(depth, rank) * factor for rank in range(width)]
        most = max(1.0, sum(row))
        rows.append(tuple(p / most for p in row))
    return tuple(rows)


def _trials(drafting: Drafting) -> float | None:
    """Trials that give the tokens per round an interval as wide as the profile's own."""
    tree = drafting.parents, drafting.ranks
    own = _model(drafting).tokens_per_round(*tree)
    if own.high <= own.low:
        return None
    trials = 1000.0
    trial_tokens = Hazards(_table(drafting), trials).model.tokens_per_round(*tree)
    return trials * ((trial_tokens.high - trial_tokens.low) / (own.high - own.low)) ** 2


def _model(drafting: Drafting) -> AcceptanceModel:
    assert drafting.evidence is not None, "plans that draft have evidence"
    return drafting.evidence.model
