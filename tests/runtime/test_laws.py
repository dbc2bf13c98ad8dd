"""Laws by which `mix` combines rows of several models."""

from __future__ import annotations

import pytest
import torch

from specplan.ir.tables.laws import LAW_ENTRIES
from specplan.runtime.laws import LAWS

P = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
Q = torch.tensor([0.25, 0.25, 0.4, 0.1], dtype=torch.float64)
PAIR = torch.stack([P, Q]).log()


def law(name: str, rows: torch.Tensor, shares: torch.Tensor | None = None, **given: object) -> list:  # type: ignore[type-arg]
    combined: list[float] = LAWS[name].combine(rows, shares, **given).softmax(-1).tolist()
    return combined


def test_each_has_a_declaration_of_its_name() -> None:
    assert sorted(LAWS) == sorted(entry.name for entry in LAW_ENTRIES)


def test_a_contrast_divides_by_the_second_model_on_what_the_first_finds_plausible() -> None:
    squares = P**2 / Q
    assert law("contrastive", PAIR, beta=1.0, alpha=0.0) == pytest.approx(
        (squares / squares.sum()).tolist()
    )
    assert law("contrastive", PAIR, beta=0.0, alpha=0.0) == pytest.approx(P.tolist())
    assert law("contrastive", PAIR, beta=1.0, alpha=0.2)[3] == 0.0
    assert law("contrastive", PAIR[:1].expand(2, 4), beta=0.7) == pytest.approx(P.tolist())


def test_a_cascade_takes_the_second_model_where_it_is_as_sure() -> None:
    assert law("cascade", PAIR, alpha=0.0) == pytest.approx(P.tolist())  # max q = .4 < max p = .5
    assert law("cascade", PAIR, alpha=1.0) == pytest.approx(Q.tolist())  # .4 >= .5 - .3
    assert law("cascade", PAIR.flip(0), alpha=0.0) == pytest.approx(P.tolist())


def test_an_average_is_of_probabilities() -> None:
    assert law("average", PAIR) == pytest.approx(((P + Q) / 2).tolist())
    shares = torch.tensor([3.0, 1.0], dtype=torch.float64)
    assert law("average", PAIR, shares) == pytest.approx(((3 * P + Q) / 4).tolist())


def test_a_linear_law_is_of_logits() -> None:
    """Proxy tuning with equal experts is the model itself."""
    three = torch.stack([PAIR[0], PAIR[1], PAIR[1]])
    assert law("linear", three, weights=(1.0, 1.0, -1.0)) == pytest.approx(P.tolist())
    product = P * Q
    assert law("linear", PAIR) == pytest.approx((product / product.sum()).tolist())
    shares = torch.tensor([1.0, 0.0], dtype=torch.float64)
    assert law("linear", PAIR, shares) == pytest.approx(P.tolist())


def test_requests_have_their_own_shares() -> None:
    rows = PAIR[:, None].expand(2, 3, 4)
    shares = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]], dtype=torch.float64)
    combined = LAWS["average"].combine(rows, shares).exp()
    assert torch.allclose(combined, torch.stack([P, Q, (P + Q) / 2]))
