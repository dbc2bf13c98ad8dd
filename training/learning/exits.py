"""Classifiers and policies that say whether a token may leave the target after a layer.

Both are linear on a state of root mean square 1 (the measure `logistic`), one for each exit. A
*classifier* (CALM, Schuster et al. 2022, arXiv 2207.07061 section 3.5.3) learns whether the most
probable token after its layer is that after all layers, each exit by itself, by the binary cross
entropy. A *policy* (ConsistentEE, Zeng et al. 2023, arXiv 2312.11882) learns by REINFORCE where to
leave: a token's exits are visited in turn, each is left with the policy's probability, and a visit
that ends after layer l of L is worth -CE(l) - price · l/L · (1 - m/L). CE(l) is that of the token
of all layers after layer l, and m, the memorized layer, is the first exit from which on all have
this token: easy tokens are to save layers, and hard ones to be right. What a token's visits are
worth on average is subtracted from each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from specplan.backends.ops.measure import of_unit_size
from specplan.ir.files import write_json_atomic
from specplan.planner.drafters.trained_exits import MODEL_TYPE
from specplan.runtime.models.causal import CausalModel
from specplan.training.learning.learner import Learner
from specplan.training.learning.objective import CHUNK, Objective
from specplan.training.learning.packing import Labels, Rows
from specplan.training.recipe import Recipe

if TYPE_CHECKING:
    from specplan.training.learning.features import Features


@dataclass(frozen=True)
class ExitRecipe(Recipe):
    """How exits are trained.

    Attributes:
        samples: visits of a policy to the exits of a token.
        depth_price: nats that a whole stack costs a token that the first layers know.
    """

    samples: int = 4
    depth_price: float = 0.6


class Classifiers(nn.Module):
    """A linear classifier per exit, which begins at probability 1/2."""

    def __init__(self, target: CausalModel, exits: int) -> None:
        super().__init__()
        place: dict[str, Any] = {"dtype": torch.float32, "device": target.device}
        self.weights = nn.Parameter(torch.zeros(exits, target.hidden_size, **place))
        self.biases = nn.Parameter(torch.zeros(exits, **place))

    def forward(self, states: Tensor) -> Tensor:
        """Logits `[N, exits]` of states `[N, exits, H]`."""
        return (of_unit_size(states.float()) * self.weights).sum(-1) + self.biases


@dataclass(frozen=True)
class Judged:
    """What the exits of some tokens say, the whole stack as the last of them.

    Attributes:
        losses: nats of the token of all layers, `[N, exits + 1]`.
        same: whether it is the most probable one, bool `[N, exits + 1]`.
    """

    losses: Tensor
    same: Tensor


class ExitLearner(Learner):
    """Exits of a target.

    Args:
        kind: `classifier` or `policy`.
        layers: after which a token may leave, in rising order.
        target: whose exits they are; nothing of it changes.
        recipe: how they are trained.
    """

    def __init__(
        self, kind: str, layers: Sequence[int], target: CausalModel, recipe: ExitRecipe
    ) -> None:
        self.kind, self.recipe, self.target = kind, recipe, target
        self.reads, self.vocabulary = tuple(layers), target.vocab_size
        self.module = self.classifiers = Classifiers(target, len(layers))
        self.identity = {"exits": kind, "layers": [*layers]}
        self._known: dict[int, Judged] = {}
        self._rows: list[tuple[Judged, Tensor]] = []

    @property
    def drafter(self) -> Classifiers:
        """The classifiers."""
        return self.classifiers

    def states(self, *_: object) -> NoReturn:
        """Nothing is drafted."""
        raise NotImplementedError("exits draft nothing")

    def logits(self, *_: object) -> NoReturn:
        """Nothing is drafted."""
        raise NotImplementedError("exits draft nothing")

    def rows(self, features: Features, numbers: Sequence[int], step: int) -> tuple[Rows, Tensor]:
        """See `Learner.rows`; of each row also what its exits say, and the numbers of its visits.

        Both follow from the row and the step alone, whatever stands beside it.
        """
        rows, states = features.rows(numbers)
        self._rows = []
        for place, number in enumerate(numbers):
            size = int((rows.texts.numbers[place] >= 0).sum())
            if number not in self._known:
                self._known[number] = judged(self.target, states[place, :size])
            seed = (self.recipe.seed * 1_000_003 + step) * 1_000_003 + number
            generator = torch.Generator().manual_seed(seed % (1 << 63))
            drawn = torch.rand(self.recipe.samples, size, len(self.reads), generator=generator)
            self._rows.append((self._known[number], drawn.to(states.device)))
        return rows, states

    def loss(
        self, rows: Rows, labels: Labels, features: Tensor, objective: Objective, totals: Tensor
    ) -> Tensor:
        """See `Learner.loss`: the mean over tokens, of classifiers also over exits."""
        parts = []
        for place, (known, drawn) in enumerate(self._rows):
            at = labels.roots[place][labels.counts[0, place]]
            states = features[place, at, : self.width].unflatten(-1, (len(self.reads), -1))
            logits = self.classifiers(states)
            if self.kind == "classifier":
                same = known.same[at, :-1].to(logits.dtype)
                each = functional.binary_cross_entropy_with_logits(logits, same, reduction="none")
                parts.append(each.mean(-1).sum())
            else:
                rewards = rewards_of(
                    Judged(known.losses[at], known.same[at]),
                    (*self.reads, self.target.num_layers),
                    self.recipe.depth_price,
                )
                parts.append(policy_loss(logits, rewards, drawn[:, at]))
        loss = torch.stack(parts).sum() / totals[0].clamp_min(1)
        if loss.requires_grad:
            loss.backward()
        return loss.detach()

    def write(self, folder: Path) -> None:
        """See `Learner.write`; `specplan.planner.drafters.trained_exits` reads it."""
        config = {
            "model_type": MODEL_TYPE, "kind": self.kind, "layers": [*self.reads],
            "hidden_size": self.target.hidden_size,
        }  # fmt: skip
        write_json_atomic(folder / "config.json", config)
        weights = {name: w.detach().cpu() for name, w in self.classifiers.named_parameters()}
        save_file(weights, folder / "model.safetensors")

    def read(self, folder: Path) -> None:
        """See `Learner.read`."""
        self.classifiers.load_state_dict(load_file(folder / "model.safetensors"))


@torch.no_grad()
def judged(target: CausalModel, states: Tensor) -> Judged:
    """What a target's exits say of tokens.

    Args:
        target: the model.
        states: after each exit and after the last layer, joined, `[N, (exits + 1) * H]`.
    """
    losses, same = [], []
    for chunk in states.split(max(1, CHUNK // target.vocab_size)):
        each = [target.logits(one[None])[0] for one in chunk.split(target.hidden_size, -1)]
        token = each[-1].argmax(-1)
        losses.append(
            torch.stack([functional.cross_entropy(one, token, reduction="none") for one in each], 1)
        )
        same.append(torch.stack([one.argmax(-1) == token for one in each], 1))
    return Judged(torch.cat(losses).float(), torch.cat(same))


def rewards_of(known: Judged, layers: Sequence[int], price: float) -> Tensor:
    """What leaving after each of some layers is worth, `[N, exits + 1]`; see the module.

    Args:
        known: what the exits say.
        layers: of each exit, the number of all layers at the end.
        price: of all layers.
    """
    depths = torch.tensor(layers, dtype=torch.float32, device=known.losses.device) / layers[-1]
    disagrees = (~known.same).long().flip(-1).cummax(-1).values  # at it or later, from the last on
    memorized = depths[disagrees.sum(-1)]
    return -known.losses - price * depths * (1.0 - memorized)[:, None]


def policy_loss(logits: Tensor, rewards: Tensor, drawn: Tensor) -> Tensor:
    """The sum over tokens of REINFORCE's loss, whose gradient is that of the expected reward.

    Args:
        logits: of leaving at each exit, `[N, exits]`.
        rewards: of leaving at each exit, or nowhere, `[N, exits + 1]`.
        drawn: uniform numbers, `[samples, N, exits]`.
    """
    leaves = functional.pad(drawn < logits.sigmoid(), (0, 1), value=True)
    chosen = leaves.to(torch.int8).argmax(-1)  # the first that leaves
    stays = functional.pad(functional.logsigmoid(-logits).cumsum(-1), (1, 0))
    visits = stays + functional.pad(functional.logsigmoid(logits), (0, 1))
    every = visits.expand(len(drawn), -1, -1).gather(-1, chosen[..., None])[..., 0]
    worth = rewards.expand(len(drawn), -1, -1).gather(-1, chosen[..., None])[..., 0]
    return -((worth - worth.mean(0)) * every).mean(0).sum()
