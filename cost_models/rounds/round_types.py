"""The static types of a round, inferred once for everything that prices it."""

from __future__ import annotations

from functools import lru_cache

from specplan.ir.plan import Plan, Round
from specplan.ir.types.infer import RoundTypes, infer_round


@lru_cache(maxsize=64)
def round_types(plan: Plan, item: Round) -> RoundTypes:
    """`infer_round`, remembered for the plans priced last.

    Raises:
        InferenceError: the round is not well typed.
    """
    return infer_round(plan, item)
