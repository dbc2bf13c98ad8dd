"""A store of hidden states that is looked up by hidden states, as a module beside the target.

A state of the target, of a node itself, gives the law of the node's children: the tokens that
followed the K nearest states of the corpus, nearer ones with more weight. A state that the store
kept, of the node above, gives spans: of the K nearest to it the nearest whose next token is the
node's, and what followed that in its document, a token for each level. The search is exact: a
product with all states in float32 (float64 beside a target in float64).

Source: Li et al. 2024, NEST, arXiv 2405.19325; see `specplan.cost_models.models.heads.neighbours`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from specplan.cost_models.models.files.safetensors_headers import read_config, weight_files
from specplan.cost_models.models.heads.description import HeadDescription
from specplan.cost_models.models.heads.reading import read_description
from specplan.ir.blocks import NO_SKIPS, Skips
from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.ir.files import model_digest
from specplan.runtime.masks import first_true
from specplan.runtime.models.attention import AttentionMask
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.kv_cache import KVCache
from specplan.runtime.requests import Request

DIGITS, BASE = 4, 256
"""A place in the store is kept beside a state as digits, which every number type holds exactly."""


class NeighbourStore(nn.Module):
    """States of a corpus, and the token and the document behind each.

    Args:
        description: how many neighbours count, and how.
        target: whose states they are.
        states: `[N, hidden size of the target]`.
        next_tokens: `[N]`.
        documents: `[N]`; states of one document stand in its order.

    Attributes:
        digest: identity of its files.
        name: name of their folder.

    For the others see `specplan.runtime.models.modules.Module`.
    """

    def __init__(
        self,
        description: HeadDescription,
        target: CausalModel,
        states: Tensor,
        next_tokens: Tensor,
        documents: Tensor,
    ) -> None:
        super().__init__()
        assert description.neighbours is not None, "of a store"
        self.description, self.how = description, description.neighbours
        self.name = self.digest = description.family
        self.width = target.hidden_size
        self.hidden_size = self.width + DIGITS + 1
        self.num_layers, self.slots_enter, self.quantized = 0, 0, False
        self.tokens_read = description.tokens_read
        self.vocab_size, self.max_positions = target.vocab_size, target.max_positions
        self.dtype = self.cache_dtype = target.dtype
        self.device = target.device
        self.logits_dtype = target.logits_dtype
        self.optional_features = self.by_slots = self.slots_first = False
        self.states = states.to(self.device, self.logits_dtype)
        self.squares = self.states.square().sum(-1)
        self.next_tokens = next_tokens.to(self.device, torch.int64)
        self.documents = documents.to(self.device, torch.int64)

    def weights(self) -> dict[str, Tensor]:
        """See `Module.weights`."""
        names = ("states", "squares", "next_tokens", "documents")
        return {name: getattr(self, name) for name in names}

    def new_cache(self, batch: int, capacity: int, queries: bool = False) -> KVCache:
        """See `Module.new_cache`; it has no layers."""
        return KVCache.empty(
            batch=batch, capacity=capacity, num_layers=0, queries=queries, num_kv_heads=1,
            head_dim=1, dtype=self.dtype, device=self.device,
        )  # fmt: skip

    def outside(self, word: str, requests: Sequence[Request]) -> Tensor:
        """See `Module.outside`."""
        raise self._lacks(f"states of an {word}")

    def images_of(self, requests: Sequence[Request]) -> None:
        """See `Module.images_of`: it reads states."""

    def enter(
        self,
        tokens: Tensor,
        positions: Tensor,
        features: Tensor | None,
        known: Tensor | None,
        steps: Tensor | None,
    ) -> Tensor:
        """A state with the place in the store where the span behind it starts, and its confidence.

        See `Module.enter`. The target's states have no span yet: the token behind them is not
        there.
        """
        assert features is not None, "a store is looked up by states"
        states = features[..., : self.width]
        if features.shape[-1] == self.width:
            return torch.cat([states, states.new_zeros(*tokens.shape, DIGITS + 1)], -1)
        weights, places, doubt = self._nearest(states)
        same = (self.next_tokens[places] == tokens[..., None]) & (weights > 0)
        place = places.gather(-1, first_true(same, 2))
        powers = BASE ** torch.arange(DIGITS, device=place.device)
        sure = torch.sigmoid(-doubt)[..., None].where(same.any(-1, keepdim=True), 0.0)
        return torch.cat([states, (place // powers % BASE).to(states), sure.to(states)], -1)

    def enter_slots(self, states: Tensor, level: int) -> Tensor:
        """See `Module.enter_slots`."""
        raise self._lacks("slots")

    def hidden(
        self,
        tokens: Tensor,
        positions: Tensor,
        slots: Tensor,
        mask: AttentionMask,
        cache: KVCache,
        layers: tuple[int, int] | None = None,
        features: Tensor | None = None,
        skips: Skips = NO_SKIPS,
        latest: Tensor | None = None,
        ahead: int = 0,
    ) -> Tensor:
        """See `Module.hidden`: what `enter` gave."""
        assert features is not None, "a store is looked up by states"
        return features

    def rows(self, hidden: Tensor, name: str, steps: Tensor | None, level: int = 0) -> Tensor:
        """See `Module.rows`: of the target's states the neighbours' law, of its own the span."""
        if name != "logits":
            raise self._lacks(f"output {name}")
        spans = self._span(hidden, level).to(self.logits_dtype)
        if level or steps is None:
            return spans
        later = steps > 0
        if not torch.compiler.is_exporting() and bool(later.all()):
            return spans
        return torch.where(later[..., None], spans, self._law(hidden[..., : self.width]))

    def _nearest(self, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Weights and places `[B, T, K]` of the nearest states, the nearest first, and the doubt.

        The doubt (r - a) / s `[B, T]` is the logit of the target's share of the mixture.
        """
        how, asked = self.how, states.to(self.states)
        nearness = 2.0 * asked @ self.states.mT - self.squares
        best, places = nearness.topk(min(how.nearest, len(self.states)), -1)
        distances = (asked.square().sum(-1, keepdim=True) - best).clamp(min=0.0)
        weights = (-distances / how.temperature).softmax(-1)
        tiny = torch.finfo(distances.dtype).tiny
        ratio = distances[..., 0] / distances[..., -1].clamp(min=tiny)
        return weights, places, (ratio - how.offset) / how.scale

    def _law(self, states: Tensor) -> Tensor:
        """Logits `[B, T, V]` of what follows states, as the law `retrieval` reads them."""
        weights, places, doubt = self._nearest(states)
        shape = (*weights.shape[:2], self.vocab_size)
        law = weights.new_zeros(shape).scatter_add(-1, self.next_tokens[places], weights)
        return (law.log() - doubt[..., None]).to(self.logits_dtype)

    def _span(self, hidden: Tensor, level: int) -> Tensor:
        """Logits `[B, T, V]` of a token of the span that starts at the place that a state holds.

        The first token has the probability with which the store counts in the mixture, later ones
        have 1; behind the end of the document, and without a span, all tokens are alike.
        """
        powers = BASE ** torch.arange(DIGITS, device=hidden.device)
        digits, sure = hidden[..., self.width : -1].round().to(torch.int64), hidden[..., -1]
        place = (digits * powers).sum(-1)
        there = (place + 1 + level).clamp(max=len(self.states) - 1)
        inside = (self.documents[there] == self.documents[place]) & (there > place + level)
        share = (sure if level == 0 else torch.ones_like(sure)).where(inside & (sure > 0), 0.0)
        rest = ((1.0 - share) / self.vocab_size)[..., None].expand(-1, -1, self.vocab_size)
        return rest.scatter_add(-1, self.next_tokens[there][..., None], share[..., None]).log()

    def _lacks(self, what: str) -> MissingCapabilityError:
        return MissingCapabilityError(
            f"{self.name} is a store of states and has no {what}",
            remedy="Let another drafter give it.",
        )


def load_neighbours(folder: Path | str, target: CausalModel) -> NeighbourStore:
    """Load a store from local files.

    Args:
        folder: made by `specplan datastore states`.
        target: whose states it holds.

    Raises:
        UsageError: files are missing or broken, or are those of another target.
    """
    from safetensors.torch import load_file

    folder = Path(folder)
    digest, config, files = model_digest(folder), read_config(folder), weight_files(folder)
    remedy = "Build it again with `specplan datastore states`."
    if not files:
        raise UsageError("the folder holds no states", where=str(folder), remedy=remedy)
    description = read_description(config, target, str(folder))
    made_for = config.get("target")
    rounded = target.quantized or target.cache_dtype != target.dtype
    if made_for and made_for != target.digest and not rounded:
        what = f"its states are not those of {target.name}: their target's files were others"
        raise UsageError(what, where=str(folder), remedy=remedy)
    assert description.neighbours is not None, "it is a store"
    count, width = description.neighbours.states, target.hidden_size
    stored = load_file(files[0])
    shapes = {"states": (count, width), "next_tokens": (count,), "documents": (count,)}
    for name, shape in shapes.items():
        if name not in stored or stored[name].shape != shape:
            what = f"{name} is missing or not {list(shape)}, as config.json says"
            raise UsageError(what, where=str(folder), remedy=remedy)
    tokens = stored["next_tokens"]
    if (
        not stored["states"].isfinite().all()
        or tokens.min() < 0
        or tokens.max() >= target.vocab_size
    ):
        what = "it holds states that are no numbers, or tokens that are none"
        raise UsageError(what, where=str(folder), remedy=remedy)
    store = NeighbourStore(description, target, *(stored[name] for name in shapes))
    store.name, store.digest = folder.resolve().name, digest
    return store
