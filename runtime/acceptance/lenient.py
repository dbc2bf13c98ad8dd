"""Rule `lenient`: speculative sampling that lets a drafted token pass too easily.

`token` with l q(x) in place of q(x) in the comparison: accept with probability min(1, p(x) / (l
q(x))), 0 < l <= 1; at the first rejection draw from norm((p - q)+), as `token` does. Lossy below l
= 1: no token is emitted with more than p / l, and what is lost is the mass of min(p / l, q) above
p. At l = 1, and for distributions of temperature 0, it is `token`.

Source: Leviathan et al. 2022, arXiv 2211.17192, appendix on lenience. Its variant for first choices
(accept where p(x) >= l max p, printed there with the sign turned round) is `top_beta` with the
tolerance -ln l and a width of the whole vocabulary.
"""

from __future__ import annotations

from torch import Tensor

from specplan.runtime.acceptance.token import judge_chain, judge_chain_reference
from specplan.runtime.acceptance.tree import DraftedTree, Judged

TARGET = "probabilities"
"""What `target` holds."""


def accept(tree: DraftedTree, target: Tensor, uniforms: Tensor, *, lenience: float = 0.5) -> Judged:
    """Judge a chain.

    Args:
        tree: node i's parent is node i - 1.
        target: probabilities `[B, N + 1, V]`, row 0 for the root and row i + 1 for node i.
        uniforms: `[B, N + 1]`; number i judges node i, the last draws the bonus.
        lenience: l, above 0 and at most 1.
    """
    return judge_chain(tree, target, uniforms, lenience)


accept_vectorised = accept


def accept_reference(
    tree: DraftedTree, target: Tensor, uniforms: Tensor, *, lenience: float = 0.5
) -> Judged:
    """`accept`, one token at a time."""
    return judge_chain_reference(tree, target, uniforms, lenience)
