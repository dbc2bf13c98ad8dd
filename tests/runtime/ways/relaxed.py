"""By the criterion of TensorRT-LLM; 0.2501 has no ties with distributions of small fractions."""

from __future__ import annotations

from collections.abc import Callable

from tests.runtime.exact import Probabilities
from tests.runtime.exact_ways import passing_ways


def near(top: int, delta: float) -> Callable[[Probabilities, int], bool]:
    """Among the first choices, and at most delta below the first."""

    def passes(probs: Probabilities, token: int) -> bool:
        ranked = sorted(range(len(probs)), key=lambda x: (-probs[x], x))[:top]
        return token in ranked and float(probs[token]) >= float(max(probs)) - delta

    return passes


WAYS = passing_ways(near(2, 0.2501))
PARAMETERS = {"top": 2, "delta": 0.2501}
DEFAULT = passing_ways(near(10, 0.6))
