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
    accepted, rest = accepted_and_rest(rule, target, probs, drafted)
    return accepted + (1.0 - accepted.sum(-1, keepdim=True)) * rest


def accepted_and_rest(
    rule: Entry, target: Tensor, probs: Tensor, drafted: Tensor | None
) -> tuple[Tensor, Tensor]:
    """What a lossy rule accepts of the drafted token, and what follows where it rejects.

    Arguments as of `emitted_law`.

    Returns:
        q(x) times the chance that x is accepted, whose sum is the chance to accept; and the law of
        the token in its place; both `[..., V]`.
    """
    declared = BUILTIN.find("rule", rule.name)
    assert declared is not None and declared.lossless == "never"
    given, nothing = declared.arguments(rule), torch.zeros_like(probs)
    if rule.name == "all":
        return nothing if drafted is None else drafted, probs
    row = probs if RULES[rule.name].TARGET == "probabilities" else target
    first = nothing.scatter(-1, row.argmax(-1, keepdim=True), 1.0)
    if drafted is None:
        return nothing, probs if rule.name in ("lenient", "span") else first
    match rule.name:
        case "lenient":
            left = (probs - drafted).clamp(min=0.0)
            rest = left / left.sum(-1, keepdim=True).clamp(min=1e-37)
            return torch.minimum(probs / given["lenience"], drafted), rest
        case "span":
            sure = given["strictness"] * probs.amax(-1, keepdim=True)
            return drafted * (probs / sure).clamp(max=1.0), probs
        case "joint":
            return drafted * (probs >= given["threshold"] * drafted), first
    return drafted * RULES[rule.name].passing_tokens(row, **given), first
