"""The law of the next token where a drafted token is judged by a rule.

Drafted is one token, drawn from q (or a point q); the target's law there is p. A rule that keeps
the target's law emits p. Of the others: `all` emits q; `lenient` accepts x with min(1, p(x) / (l
q(x))) and else draws from norm((p - q)+); `span` accepts x with min(1, p(x) / (g max p)) and else
draws from p; `joint` accepts one token alone where p(x) >= t q(x), and
else its first choice follows; a rule that judges each token alone (`passing_tokens` in
its file) emits q where a token passes, and its first choice in place of what does not.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specplan.ir.tables.builtin import BUILTIN
from specplan.ir.values import Entry
from specplan.runtime.acceptance import RULES


def emitted_law(rule: Entry, target: Tensor, probs: Tensor, drafted: Tensor | None) -> Tensor:
    """The law of the token that is emitted next, given what stands before it.

    Args:
        rule: with its parameters.
        target: logits of the target, `[..., V]`.
        probs: its law at the request's settings, `[..., V]`.
        drafted: the law q of the drafted token, `[..., V]`; None where nothing is drafted there.

    Returns:
        `[..., V]`, in the dtype of `probs`.
    """
    declared = BUILTIN.find("rule", rule.name)
    assert declared is not None, "the verifier knows it"
    if declared.lossless != "never":
        return probs
    if rule.name == "all":
        return probs if drafted is None else drafted
    given = declared.arguments(rule)
    if rule.name == "lenient":
        return probs if drafted is None else _lenient(probs, drafted, given["lenience"])
    if rule.name == "span":
        return probs if drafted is None else _span(probs, drafted, given["strictness"])
    row = probs if RULES[rule.name].TARGET == "probabilities" else target
    first = torch.zeros_like(probs).scatter_(-1, row.argmax(-1, keepdim=True), 1.0)
    if drafted is None:
        return first
    if rule.name == "joint":
        passing = probs >= given["threshold"] * drafted
    else:
        passing = RULES[rule.name].passing_tokens(row, **given)
    accepted = drafted * passing
    emitted: Tensor = accepted + (1.0 - accepted.sum(-1, keepdim=True)) * first
    return emitted


def _lenient(probs: Tensor, drafted: Tensor, lenience: float) -> Tensor:
    """min(p / l, q), and norm((p - q)+) where it rejects; l is the lenience."""
    accepted = torch.minimum(probs / lenience, drafted)
    left = (probs - drafted).clamp(min=0.0)
    mass = left.sum(-1, keepdim=True)
    return accepted + (1.0 - accepted.sum(-1, keepdim=True)) * left / mass.clamp(min=1e-37)


def _span(probs: Tensor, drafted: Tensor, strictness: float) -> Tensor:
    """Q min(1, p / (g max p)), and p where it rejects; g is the strictness."""
    accepted = drafted * (probs / (strictness * probs.amax(-1, keepdim=True))).clamp(max=1.0)
    return accepted + (1.0 - accepted.sum(-1, keepdim=True)) * probs
