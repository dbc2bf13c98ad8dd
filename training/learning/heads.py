"""Heads as what is trained."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save, save_file
from torch import Tensor, nn

from specplan.ir.files import name_of, write_json_atomic
from specplan.runtime.models.heads.drafter import Drafter
from specplan.runtime.models.heads.loading import load_head
from specplan.runtime.models.heads.text_attention import Texts
from specplan.runtime.models.heads.unrolled import unrolled_states
from specplan.training.checkpoints import OPPONENT
from specplan.training.learning.adversary import Discriminator
from specplan.training.learning.learner import Learner
from specplan.training.losses import ADVERSARY, parts_of
from specplan.training.new_heads import public_tensors


class HeadLearner(Learner):
    """A head, in its public format.

    Args:
        head: the head.
        config: its config.json; empty where it is not written.
        loss: that it learns; an adversary in it learns beside the head, outside of its format.
        seed: of the adversary.
    """

    def __init__(
        self,
        head: Drafter,
        config: Mapping[str, Any] | None = None,
        loss: str = "ce",
        seed: int = 0,
    ) -> None:
        one = head.description
        self.head, self.module = head, head
        self.target, self.config = head.target, dict(config or {})
        self.reads = one.reads.layers or (head.target.num_layers,)
        self.begins, self.blocks = one.begins, one.join in ("block", "slots")
        if one.join == "slots":  # the target runs them itself, and hands nothing over
            self.reads = ()
        self.vocabulary = one.output.vocabulary
        if ADVERSARY in parts_of(loss):
            self.adversary = Discriminator(head.target, head.outputs.tokens, seed)
            self.module = nn.ModuleDict({"head": head, "adversary": self.adversary})
        self.identity = {"head": name_of(json.dumps(self.config, sort_keys=True))}

    @property
    def tokens(self) -> Tensor | None:  # type: ignore[override]
        """See `Learner`."""
        return self.head.outputs.tokens

    @property
    def drafter(self) -> Drafter:
        """See `Learner.drafter`."""
        return self.head

    def states(self, texts: Texts, features: Tensor, steps: int, roots: Tensor) -> Iterator[Tensor]:
        """See `Learner.states`."""
        return unrolled_states([self.head], texts, features, steps, roots)

    def logits(self, states: Tensor, step: int) -> Tensor:
        """See `Learner.logits`."""
        return self.head.own_logits(states[None], None, step)[0]

    def aligned(self, states: Tensor, step: int) -> Tensor:
        """See `Learner.aligned`."""
        one = self.head.description
        if one.body.two_states or one.join == "ngram":
            return states.chunk(2, -1)[1]
        if one.output.linear:
            return self.head.outputs.finished(states[None], None, step)[0]
        if one.join == "concat" and one.reads.finished and not one.output.norm:
            return states
        return super().aligned(states, step)

    def write(self, folder: Path) -> None:
        """See `Learner.write`."""
        write_json_atomic(folder / "config.json", self.config)
        save_file(public_tensors(self.head), folder / "model.safetensors")
        if self.adversary is not None:
            weights = {name: w.detach() for name, w in self.adversary.named_parameters()}
            (folder / OPPONENT).write_bytes(save(weights))

    def read(self, folder: Path) -> None:
        """See `Learner.read`."""
        stored = load_head(folder, self.target)
        self.head.outputs.tokens = stored.outputs.tokens
        weights = stored.weights_by_name()
        with torch.no_grad():
            for name, weight in self.head.weights_by_name().items():
                weight.copy_(weights[name])
        if self.adversary is not None:
            self.adversary.load_state_dict(load((folder / OPPONENT).read_bytes()))
