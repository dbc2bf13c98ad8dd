"""Losses of drafters: identities, exact small cases, and gradients in float64."""

from __future__ import annotations

from fractions import Fraction
from math import log

import pytest
import torch

from specplan.ir.errors import UsageError
from specplan.training.losses import (
    LOSSES,
    against,
    cross_entropy,
    discriminator_loss,
    forward_kl,
    jensen_shannon,
    labels_ahead,
    negative_log_acceptance,
    parts_of,
    reverse_kl,
    state_loss,
    step_weights,
    target_probabilities,
    total_variation,
    tvd_plus_plus,
)


def pair(seed: int = 0, *shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    size = shape or (3, 4, 7)
    logits, others = (
        2.0 * torch.randn(size, generator=generator, dtype=torch.float64) for _ in range(2)
    )
    return logits.requires_grad_(), target_probabilities(others)


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_finite_differences(name: str) -> None:
    """That of TVD++ treats its rewards as constants; the next test has its exact form."""
    logits, target = pair()
    if name != "tvd++":
        assert torch.autograd.gradcheck(lambda x: LOSSES[name](x, target), (logits,))
    LOSSES[name](logits, target).sum().backward()
    assert logits.grad is not None and torch.isfinite(logits.grad).all()
    torch.testing.assert_close(logits.grad.sum(-1), torch.zeros(3, 4, dtype=torch.float64))


def test_tvd_plus_plus_has_the_gradient_of_the_total_variation_over_a_deviation() -> None:
    logits, target = pair()
    (of_tv,) = torch.autograd.grad(total_variation(logits, target).sum(), logits)
    (of_plus,) = torch.autograd.grad(tvd_plus_plus(logits, target).sum(), logits)
    own = logits.detach().softmax(-1)
    rewarded = (own * (target > own)).sum(-1).mean()
    torch.testing.assert_close(of_plus, of_tv / (rewarded * (1 - rewarded)).sqrt())


def test_identities() -> None:
    logits, target = pair(1)
    same = logits.detach().softmax(-1)
    for loss in (forward_kl, reverse_kl, jensen_shannon, total_variation, negative_log_acceptance):
        torch.testing.assert_close(loss(logits, same), torch.zeros(3, 4, dtype=torch.float64))
    entropy = -(target * target.log()).sum(-1)
    torch.testing.assert_close(cross_entropy(logits, target) - entropy, forward_kl(logits, target))
    torch.testing.assert_close(reverse_kl(logits, target), forward_kl(target.log(), same))
    swapped = jensen_shannon(target.log(), same)
    torch.testing.assert_close(jensen_shannon(logits, target), swapped)
    torch.testing.assert_close(
        jensen_shannon(logits, target, 0.3), jensen_shannon(target.log(), same, 0.7)
    )
    assert (jensen_shannon(logits, target) <= log(2.0)).all()
    half_l1 = (same - target).abs().sum(-1) / 2
    torch.testing.assert_close(total_variation(logits, target), half_l1)
    assert (half_l1**2 <= forward_kl(logits, target) / 2).all(), "Pinsker"
    torch.testing.assert_close(negative_log_acceptance(logits, target), -torch.log1p(-half_l1))


def test_a_draft_token_is_rejected_as_often_as_the_total_variation_says() -> None:
    """Rejection sampling (arXiv 2211.17192) enumerated: sum p min(1, q / p) is accepted."""
    own, target = ([Fraction(n, 10) for n in numbers] for numbers in ((5, 3, 1, 1), (2, 3, 5, 0)))
    accepted = sum(p * min(Fraction(1), q / p) for p, q in zip(own, target, strict=True))
    logits = torch.tensor([[float(p) for p in own]], dtype=torch.float64).log()
    loss = total_variation(logits, torch.tensor([[float(q) for q in target]], dtype=torch.float64))
    assert loss.item() == pytest.approx(float(1 - accepted))
    known = torch.tensor([0, 2])
    part = target_probabilities(
        torch.tensor([[float(q) + 1e-300 for q in target]], dtype=torch.float64).log(),
        token_ids=known,
    )
    assert part.sum().item() == pytest.approx(0.7), "what a drafter does not know is never accepted"
    sure = torch.tensor([[20.0, -20.0]], dtype=torch.float64)
    assert total_variation(sure, part).item() == pytest.approx(0.8)


def test_greedy_targets_are_hard_labels() -> None:
    logits, _ = pair(2, 5, 6)
    others = torch.randn(5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    hard = cross_entropy(logits, target_probabilities(others, 0.0))
    wanted = torch.nn.functional.cross_entropy(logits, others.argmax(-1), reduction="none")
    torch.testing.assert_close(hard, wanted)
    colder = target_probabilities(others, 0.5)
    torch.testing.assert_close(colder, (2.0 * others).softmax(-1))


def test_a_label_counts_where_its_own_token_does() -> None:
    """Prompt 10 11, answer 12 13 14: two tokens ahead, the prompt's own rows have labels."""
    tokens = torch.tensor([[10, 11, 12, 13, 14]])
    counts = torch.tensor([[False, False, True, True, True]])
    labels, valid = labels_ahead(tokens, counts, 2)
    assert labels.tolist() == [[12, 13, 14, 0, 0]]
    assert valid.tolist() == [[True, True, True, False, False]]
    labels, valid = labels_ahead(tokens, counts, 1)
    assert labels[valid].tolist() == [12, 13, 14] and not valid[0, 0]
    assert not labels_ahead(tokens, counts, 9)[1].any()


def test_steps_count_less_and_less() -> None:
    assert step_weights(3, 0.8) == pytest.approx((1.0, 0.8, 0.64))


def test_parts_of_a_loss_have_weights() -> None:
    assert parts_of("ce") == {"ce": 1.0} and parts_of("tvd++") == {"tvd++": 1.0}
    assert parts_of("0.1*ce + 1*state") == {"ce": 0.1, "state": 1.0}
    assert parts_of("2*tvd++ + lk+.5*adversary") == {"tvd++": 2.0, "lk": 1.0, "adversary": 0.5}
    for wrong in ("", "l2", "0*ce", "-1*ce", "x*ce", "ce+ce", "nan*ce", "1*2*ce"):
        with pytest.raises(UsageError, match="no loss is called"):
            parts_of(wrong)
    with pytest.raises(UsageError, match="compares no distributions"):
        parts_of("1*state")


def test_states_are_aligned_by_smooth_l1() -> None:
    """Half the square below a distance of 1, the distance less a half above; EAGLE's numbers."""
    states, target = torch.tensor([[0.5, 3.0]]).double(), torch.zeros(1, 2).double()
    assert state_loss(states, target).item() == pytest.approx((0.125 + 2.5) / 2)
    given, other = pair(5)
    assert torch.autograd.gradcheck(lambda x: state_loss(x, other), (given,))


def test_a_discriminator_and_what_it_judges_learn_against_each_other() -> None:
    """Where it is at chance the loss is 2 log 2; what comes through `against` climbs it."""
    real, drafted = pair(6)[0], pair(7)[0]
    assert torch.autograd.gradcheck(discriminator_loss, (real, drafted))
    exact = -real.sigmoid().log() - (1 - drafted.sigmoid()).log()
    torch.testing.assert_close(discriminator_loss(real, drafted), exact)
    zero = torch.zeros(2).double()
    assert discriminator_loss(zero, zero).tolist() == pytest.approx([2 * log(2.0)] * 2)
    (down,) = torch.autograd.grad(discriminator_loss(real, drafted).sum(), drafted)
    (up,) = torch.autograd.grad(discriminator_loss(real, against(drafted)).sum(), drafted)
    assert torch.equal(up, -down) and torch.equal(against(drafted), drafted)


@pytest.mark.parametrize("name", LOSSES)
def test_steps_downhill_lead_to_the_target(name: str) -> None:
    """Of one position the least loss is where the two distributions are the same."""
    start, target = pair(4, 1, 5)
    logits = start.detach().requires_grad_()
    before = total_variation(logits, target).item()
    optimizer = torch.optim.SGD([logits], lr=0.2)
    for _ in range(400):
        optimizer.zero_grad()
        LOSSES[name](logits, target).sum().backward()
        optimizer.step()
    assert total_variation(logits, target).item() < 0.2 * before
