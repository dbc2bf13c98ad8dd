"""Losses of drafters: how far a drafter's distribution is from the target's, position by position.

Every loss takes the drafter's logits [..., V] and the target's probabilities [..., V] and gives
the loss of each position [...] in nats, or as a probability. V is the drafter's vocabulary: where
that is a part of the target's, the probabilities sum to less than 1, and what is missing can never
be accepted (`target_probabilities`).
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional

from specplan.ir.errors import UsageError

Loss = Callable[[Tensor, Tensor], Tensor]


def target_probabilities(
    logits: Tensor, temperature: float = 1.0, token_ids: Tensor | None = None
) -> Tensor:
    """The target's probabilities of the tokens that a drafter knows.

    Args:
        logits: of the target, [..., target's vocabulary].
        temperature: that it is served at; at 0 all is on the most probable token.
        token_ids: the target's ids of the drafter's vocabulary, [V]; None for all.

    Returns:
        [..., V]; they sum to the share of the drafter's vocabulary.
    """
    if temperature == 0.0:
        best = logits.argmax(dim=-1, keepdim=True)
        probabilities = torch.zeros_like(logits).scatter(-1, best, 1.0)
    else:
        probabilities = (logits / temperature).softmax(dim=-1)
    return probabilities if token_ids is None else probabilities[..., token_ids]


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """-sum q log p: its gradient is that of the forward KL. With q on a label, of hard labels."""
    return -(target * logits.log_softmax(dim=-1)).sum(dim=-1)


def forward_kl(logits: Tensor, target: Tensor) -> Tensor:
    """KL(q || p) of the target q from the drafter p (Hinton et al. 2015, arXiv 1503.02531)."""
    return cross_entropy(logits, target) + torch.xlogy(target, target).sum(dim=-1)


def reverse_kl(logits: Tensor, target: Tensor) -> Tensor:
    """KL(p || q): infinite where the drafter proposes what the target excludes (DistillSpec)."""
    own = logits.log_softmax(dim=-1)
    return (own.exp() * (own - target.log())).sum(dim=-1)


def jensen_shannon(logits: Tensor, target: Tensor, weight: float = 0.5) -> Tensor:
    """JSD_b = b KL(q || m) + (1 - b) KL(p || m), m = b q + (1 - b) p.

    Source: Agarwal et al. 2024, arXiv 2306.13649 equation 4; DistillSpec, arXiv 2310.08461.

    Args:
        logits: see above.
        target: see above.
        weight: b, of the target in the mixture.
    """
    own = logits.softmax(dim=-1)
    mixed = weight * target + (1.0 - weight) * own
    of_target = torch.xlogy(target, target) - torch.xlogy(target, mixed)
    of_own = torch.xlogy(own, own) - torch.xlogy(own, mixed)
    return (weight * of_target + (1.0 - weight) * of_own).sum(dim=-1)


def total_variation(logits: Tensor, target: Tensor) -> Tensor:
    """1 - sum min(p, q): the probability that a draft token is rejected (arXiv 2211.17192)."""
    return 1.0 - torch.minimum(logits.softmax(dim=-1), target).sum(dim=-1)


def negative_log_acceptance(logits: Tensor, target: Tensor) -> Tensor:
    """-log sum min(p, q), whose gradient grows where little is accepted (arXiv 2602.23881)."""
    return -torch.minimum(logits.softmax(dim=-1), target).sum(dim=-1).log()


def tvd_plus_plus(logits: Tensor, target: Tensor) -> Tensor:
    """The total variation as a policy gradient with normalised rewards (arXiv 2403.00858).

    A token is rewarded where the target's probability is above the drafter's; rewards are
    normalised by their mean and deviation under the drafter, over all positions. The gradient is
    that of `total_variation` over this deviation; the value is only a surrogate.
    """
    own = logits.log_softmax(dim=-1)
    chances = own.detach().exp()
    reward = (target > chances).to(chances.dtype)
    positions = max(1, chances[..., 0].numel())
    mean = (chances * reward).sum() / positions
    deviation = ((chances * (reward - mean) ** 2).sum() / positions).sqrt()
    advantage = (reward - mean) / deviation.clamp_min(torch.finfo(chances.dtype).eps)
    return -(chances * advantage * own).sum(dim=-1)


LOSSES: dict[str, Loss] = {
    "ce": cross_entropy,
    "kl": forward_kl,
    "rkl": reverse_kl,
    "jsd": jensen_shannon,
    "tv": total_variation,
    "lk": negative_log_acceptance,
    "tvd++": tvd_plus_plus,
}
"""By the names that trainers give them."""
STATE, ADVERSARY = "state", "adversary"
"""Parts of a loss that are no distance of two distributions."""


def parts_of(loss: str) -> dict[str, float]:
    """The parts of a loss, and their weights: `ce`, or a sum such as `0.1*ce+1*state`.

    Raises:
        UsageError: a part is no loss, a weight no number, or no part compares distributions.
    """
    parts: dict[str, float] = {}
    for term in loss.replace(" ", "").replace("tvd++", "tvd#").split("+"):
        term = term.replace("#", "++")
        weight, name = term.split("*") if term.count("*") == 1 else ("1", term)
        if name not in (*LOSSES, STATE, ADVERSARY) or name in parts or not _positive(weight):
            raise UsageError(
                f'no loss is called "{term}"',
                where="loss",
                remedy=f"Known: {', '.join(LOSSES)}. A sum has weights: 0.1*ce+1*{STATE}.",
            )
        parts[name] = float(weight)
    if not LOSSES.keys() & parts.keys():
        raise UsageError(
            f'"{loss}" compares no distributions',
            where="loss",
            remedy=f"Add one of {', '.join(LOSSES)}: 0.1*ce+1*{STATE}.",
        )
    return parts


def _positive(weight: str) -> bool:
    try:
        return 0.0 < float(weight) < inf
    except ValueError:
        return False


def state_loss(states: Tensor, target: Tensor) -> Tensor:
    """Smooth L1 between a drafter's states and the target's, both [..., F], mean over F: [...].

    Source: EAGLE (arXiv 2401.15077 section 3.2), there 1 beside 0.1 of cross-entropy. FSPAD aligns
    one state and takes logits of another (partial alignment, arXiv 2408.15562), by the same weights
    in its code; Clover-2 (arXiv 2408.00264) has 10 beside 1.
    """
    return functional.smooth_l1_loss(states, target, reduction="none").mean(dim=-1)


def discriminator_loss(real: Tensor, drafted: Tensor) -> Tensor:
    """-log D(real) - log(1 - D(drafted)), of the logits of D, each [...] (arXiv 1406.2661).

    KOALA (arXiv 2408.08146) trains draft heads against such a D beside their supervised loss.
    """
    return functional.softplus(-real) + functional.softplus(drafted)


class _Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return -gradient


def against(values: Tensor) -> Tensor:
    """The same values, whose gradient is reversed (Ganin and Lempitsky 2015, arXiv 1409.7495).

    Behind it a loss is learned, before it unlearned: both players of a minimax game in one step.
    """
    reverse: Any = _Reversed.apply
    return cast(Tensor, reverse(values))


def labels_ahead(tokens: Tensor, counts: Tensor, ahead: int) -> tuple[Tensor, Tensor]:
    """Labels of every position, some tokens ahead, and which of them count.

    A label counts where its own token does: the mask moves with the tokens.

    Args:
        tokens: of texts, [..., T].
        counts: whether a token is one of the target's answer, [..., T].
        ahead: how many tokens ahead of a position its label is; 1 for the next token.

    Returns:
        Labels [..., T], and whether they count; those beyond the end are 0 and do not.
    """
    labels, valid = torch.zeros_like(tokens), torch.zeros_like(counts)
    if ahead < tokens.shape[-1]:
        labels[..., : tokens.shape[-1] - ahead] = tokens[..., ahead:]
        valid[..., : tokens.shape[-1] - ahead] = counts[..., ahead:]
    return labels, valid


def step_weights(steps: int, decay: float) -> tuple[float, ...]:
    """1, decay, decay^2, ...: how much the tokens ahead count.

    0.8 is that of EAGLE-3 (SafeAILab/EAGLE `train/eagle3`) and Medusa (arXiv 2401.10774 section
    2.2.1). DFlash decays by exp(-1 / gamma).
    """
    return tuple(decay**step for step in range(steps))
