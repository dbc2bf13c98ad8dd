"""By the criterion of TensorRT-LLM; 0.2501 has no ties with laws of small fractions."""

from __future__ import annotations

from collections.abc import Callable

from tests.runtime.exact import Law
from tests.runtime.exact_ways import passing_ways


def near(top: int, delta: float) -> Callable[[Law, int], bool]:
    """Among the first choices, and at most delta below the first."""

    def passes(law: Law, token: int) -> bool:
        ranked = sorted(range(len(law)), key=lambda x: (-law[x], x))[:top]
        return token in ranked and float(law[token]) >= float(max(law)) - delta

    return passes


WAYS = passing_ways(near(2, 0.2501))
PARAMETERS = {"top": 2, "delta": 0.2501}
DEFAULT = passing_ways(near(10, 0.6))
