"""Heads as what is trained."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from specplan.ir.files import name_of, write_json_atomic
from specplan.runtime.models.heads.drafter import Drafter
from specplan.runtime.models.heads.loading import load_head
from specplan.runtime.models.heads.text_attention import Texts
from specplan.runtime.models.heads.unrolled import unrolled_states
from specplan.training.learning.learner import Learner
from specplan.training.new_heads import public_tensors


class HeadLearner(Learner):
    """A head, in its public format.

    Args:
        head: the head.
        config: its config.json; empty where it is not written.
    """

    def __init__(self, head: Drafter, config: Mapping[str, Any] | None = None) -> None:
        one = head.description
        self.module = self.head = head
        self.target, self.config = head.target, dict(config or {})
        self.reads = one.reads.layers or (head.target.num_layers,)
        self.begins, self.blocks = one.begins, one.join in ("block", "slots")
        if one.join == "slots":  # the target runs them itself, and hands nothing over
            self.reads = ()
        self.vocabulary = one.output.vocabulary
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

    def write(self, folder: Path) -> None:
        """See `Learner.write`."""
        write_json_atomic(folder / "config.json", self.config)
        save_file(public_tensors(self.head), folder / "model.safetensors")

    def read(self, folder: Path) -> None:
        """See `Learner.read`."""
        stored = load_head(folder, self.target)
        self.head.outputs.tokens = stored.outputs.tokens
        weights = stored.weights_by_name()
        with torch.no_grad():
            for name, weight in self.head.weights_by_name().items():
                weight.copy_(weights[name])
