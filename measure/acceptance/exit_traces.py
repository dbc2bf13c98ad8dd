"""What the layers of the target say along its own texts: one pass over each text for all exits.

Of every exit layer some numbers per token are kept (`LayerTrace`, 40 bytes, and 8 for each measure
of states that plans ask for), so that hundreds of texts take a few MB, and any threshold is played
on them without the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from specplan.backends.ops.measure import logistic, saturation
from specplan.ir.values import Entry
from specplan.measure.acceptance.teacher import TracedText
from specplan.measure.progress import Progress
from specplan.runtime.sampling import SamplingSettings, probabilities

EVERY = 16
"""Texts between two reports of progress."""
TextKey = tuple[tuple[int, ...], tuple[int, ...]]
"""Tokens of the prompt and of the output."""


@dataclass(frozen=True)
class OfStates:
    """A measure of states that a plan takes.

    Attributes:
        layer: after which the states stand.
        kind: `saturation`, or `logistic` with its weights.
        below: the layer of the states that it compares with; 0 for none.
    """

    layer: int
    kind: Entry
    below: int = 0


@dataclass(frozen=True)
class LayerTrace:
    """What the logits after one layer say along a text of n output tokens.

    Attributes:
        measures: float64 `[n]`, by name; those of states by what they are.
        first: the most probable token, int64 `[n]`.
        shared: min(1, q(x) / p(x)) of the text's token x, for the law q after this layer and the
            target's p: the chance that both draw it, given that the target did. float64 `[n]`.
    """

    measures: Mapping[str | OfStates, Tensor]
    first: Tensor
    shared: Tensor


ExitTraces = dict[tuple[TextKey, int], LayerTrace]
"""Traces by text and layer, computed once for all plans."""


@dataclass(frozen=True)
class Traces:
    """Traces of T texts after some layers of a model.

    Attributes:
        by_layer: an entry for each text; the last layer of the model is among them.
        layers: of the model.
        counts: tokens of each output, n of the longest.
        prompts: tokens of each prompt.
        roots: of each text, the token before each of its output, int64 `[n]`.
    """

    by_layer: Mapping[int, Sequence[LayerTrace]]
    layers: int
    counts: tuple[int, ...]
    prompts: tuple[int, ...]
    roots: tuple[Tensor, ...] = ()

    def at(self, traced: Tensor, layers: Tensor, place: int | None = None) -> Tensor:
        """What was traced after given layers.

        Args:
            traced: `[R, T, n]`, a row for each traced layer: `first`, `shared`, one of `measures`.
            layers: `[T, n]`, or `[T]` at one place; each was traced.
            place: of the outputs; None for all.

        Returns:
            In the shape of `layers`.
        """
        rows = self._rows[layers.long()][None]
        wanted = traced if place is None else traced[:, :, place]
        return wanted.gather(0, rows)[0]

    @cached_property
    def _rows(self) -> Tensor:
        rows = torch.zeros(self.layers + 1, dtype=torch.int64)
        rows[list(self.by_layer)] = torch.arange(len(self.by_layer))
        return rows

    @cached_property
    def before(self) -> Tensor:
        """The tokens before each of the outputs', int64 `[T, n]`."""
        return pad_sequence([*self.roots], batch_first=True)

    @cached_property
    def first(self) -> Tensor:
        """The most probable tokens, int64 `[R, T, n]`."""
        return self._stacked(lambda one: one.first, 0)

    @cached_property
    def shared(self) -> Tensor:
        """The chances that both draw the token, `[R, T, n]`; 1 behind the end of a text."""
        return self._stacked(lambda one: one.shared, 1)

    @cached_property
    def measures(self) -> Mapping[str | OfStates, Tensor]:
        """The measures, `[R, T, n]` each; 0 after layers where one was not asked for."""
        names = {name for row in self.by_layer.values() for one in row for name in one.measures}
        return {
            name: self._stacked(
                lambda one, n=name: one.measures.get(n, torch.zeros(len(one.first))).double(),  # type: ignore[misc]
                0,
            )
            for name in names
        }

    def _stacked(self, part: Callable[[LayerTrace], Tensor], fill: float) -> Tensor:
        rows = self.by_layer.values()
        return torch.stack(
            [pad_sequence([*map(part, row)], batch_first=True, padding_value=fill) for row in rows]
        )


def traces_of(
    known: ExitTraces,
    texts: Sequence[TracedText],
    layers: Sequence[int],
    progress: Progress,
    asked: Sequence[OfStates] = (),
) -> Traces:
    """The traces of texts after some layers and after the last; those not known yet are added.

    Args:
        known: what was traced before.
        texts: the target's own.
        layers: exits.
        progress: called for every few texts.
        asked: measures of states.
    """
    last = texts[0].target.num_layers
    wanted = sorted({*layers, last})
    for place, text in enumerate(texts):
        there = {layer: known.get((_key(text), layer)) for layer in wanted}
        lacks = [one for one in asked if one not in getattr(there[one.layer], "measures", ())]
        if lacks or None in there.values():
            if place % EVERY == 0:
                progress("layers of the target along its texts", place, len(texts))
            for layer, trace in layer_traces(text, wanted, lacks).items():
                old = there[layer]
                more = {} if old is None else old.measures
                known[_key(text), layer] = replace(trace, measures={**more, **trace.measures})
    by_layer = {layer: [known[_key(text), layer] for text in texts] for layer in wanted}
    counts = tuple(len(text.output) for text in texts)
    roots = tuple(torch.tensor(text.tokens[text.start - 1 : -1]) for text in texts)
    return Traces(by_layer, last, counts, tuple(text.start for text in texts), roots)


def _key(text: TracedText) -> TextKey:
    return text.request.prompt_tokens, text.output


@torch.inference_mode()
def layer_traces(
    text: TracedText, layers: Sequence[int], asked: Sequence[OfStates] = ()
) -> dict[int, LayerTrace]:
    """What the logits after some layers say at every token of an output.

    Args:
        text: the prompt, and the target's output after it.
        layers: in rising order, the last one of the target at their end.
        asked: measures of states after these layers.
    """
    settings = SamplingSettings.of([text.request], text.target.device)
    output = torch.tensor([text.output], dtype=torch.int64, device=text.target.device)
    after = zip(layers, _states_after(text, layers), strict=True)
    chances, rows, states = {}, {}, dict[int, Tensor]()
    for layer, states[layer] in after:
        logits = text.target.logits(states[layer][None])[0]
        own = probabilities(logits[None], settings)[0].double()
        chances[layer] = own.gather(1, output.T)[:, 0]
        measures = _measures(logits)
        measures |= {one: _of_states(one, states).cpu() for one in asked if one.layer == layer}
        rows[layer] = measures, logits.argmax(-1).cpu()
    law = chances[layers[-1]].clamp(min=1e-30)
    return {
        layer: LayerTrace(*rows[layer], (chances[layer] / law).clamp(max=1.0).cpu())
        for layer in layers
    }


def _states_after(text: TracedText, layers: Sequence[int]) -> Iterator[Tensor]:
    """States `[n, H]` along the output after each of some layers, of one pass through all."""
    model, tokens = text.target, text.tokens
    ids = torch.tensor([tokens], dtype=torch.int64, device=model.device)
    positions = torch.arange(len(tokens), device=model.device)[None]
    mask = torch.ones(1, len(tokens), len(tokens), dtype=torch.bool, device=model.device).tril()
    cache, states, done = model.new_cache(1, len(tokens) + 1), None, 0
    cache.images = model.images_of([text.request])
    for layer in layers:
        states = model.hidden(ids, positions, positions, mask, cache, (done, layer), states)
        done = layer
        yield states[0, text.start - 1 : -1].clone()  # the next layers run in place


def _of_states(one: OfStates, states: Mapping[int, Tensor]) -> Tensor:
    if one.kind.name == "logistic":
        return logistic(states[one.layer], one.kind)
    return saturation(states[one.layer], states[one.below])


def _measures(logits: Tensor) -> dict[str | OfStates, Tensor]:
    probs = logits.double().softmax(-1)
    best = probs.topk(2).values.cpu()
    entropy = -torch.where(probs > 0, probs * probs.log(), 0.0).sum(-1).cpu()
    return {"top1": best[:, 0], "margin": best[:, 0] - best[:, 1], "entropy": entropy}
