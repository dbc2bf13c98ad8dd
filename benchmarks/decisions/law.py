"""Speeds of all settings from the baseline and one measured setting.

tokens per second = batch x tokens per round / seconds per round. Tokens per round go from one chain
to others by `declining_hazards`, and to trees by the best tree of those hazards. Seconds per round
are the measured setting's, times how much more the other setting drafts and verifies: by the device
model where the shape is known, by the baseline's own witness where it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from decisions.declining import DECLINE, declining_hazards
from decisions.grid import GIVEN, Measured, Setting
from specplan.cost_models.devices.device import load_device
from specplan.cost_models.formulas.closed_forms import tree_value
from specplan.cost_models.intervals import Seconds
from specplan.cost_models.models.layers import ExpertMlp
from specplan.cost_models.models.model_shape import ModelShape
from specplan.planner.trees import AcceptanceTable, search_trees

Floats = NDArray[np.float64]

CONTEXT = 1000
"""Tokens in the cache, where nobody says; a tenth of a step or less depends on it."""
HEAD_VOCABULARY = 32000
"""Tokens that an EAGLE-3 head can draft, where nobody says (SpecForge's configs)."""
COUNTS = (1, 2, 4, 8)
SIBLING = 0.47
"""P(the second choice is accepted | the first was not) over P(the first is), from the demo vector
of Sequoia (arXiv 2402.12374; 0.634, 0.108): 0.108 / (1 - 0.634) / 0.634."""
CREDIBLE = 0.25
"""Extra time of the measured round, in baseline steps, from which the two are fully believed to
have been run alike: below the best case of an H200 (a dense 70B on four: 0.2) less and less."""


@dataclass(frozen=True)
class Constants:
    """What is calibrated, the same for all models.

    Attributes:
        decline: log-odds of acceptance lost per depth.
        ranking: part of the best tree's accepted tokens that a tree ranked by the head's own
            confidence keeps.
        alike: how much of an independent token each drafted token is to the router of a mixture
            of experts: neighbours choose alike.
        outside: time per token that passes outside rounds (prompts, detokenising, requests that
            wait), in measured rounds.
        growth: part of the measured round that one more drafted and verified token costs, where
            nothing else is known.
        echo: the same over a third of the measured round's extra time against the baseline.
        tree: factor on the round of a tree with siblings.
    """

    decline: float = DECLINE
    ranking: float = 0.8
    alike: float = 0.7
    outside: float = 0.05
    growth: float = 0.04
    echo: float = 0.4
    tree: float = 1.05


@dataclass(frozen=True)
class Given:
    """All that a decision may know of its group.

    Attributes:
        device: one of those that ran it; how many is not told.
        batch: requests side by side.
        baseline: tokens per second without speculation.
        run: the measured setting `GIVEN`.
        shape: the target's, where a config of its name was found.
    """

    device: str
    batch: int
    baseline: float
    run: Measured
    shape: ModelShape | None = None

    @property
    def step_seconds(self) -> float:
        """A step of the baseline, all that is not a step included."""
        return self.batch / self.baseline

    @property
    def round_seconds(self) -> float:
        """A measured round, likewise."""
        return self.batch * self.run.length / self.run.speed

    @property
    def extra(self) -> float:
        """The round's extra time over the baseline's step, in such steps."""
        return self.round_seconds / self.step_seconds - 1.0

    @property
    def credible(self) -> float:
        """How far baseline and round are believed to have been run alike, from 0 to 1."""
        return min(1.0, max(0.0, self.extra / CREDIBLE))

    @cached_property
    def times(self) -> StepTimes | None:
        """Of the number of devices that comes nearest to baseline and round."""
        if self.shape is None:
            return None
        counts = [StepTimes.of(self.device, count, self.shape, self.batch) for count in COUNTS]
        return min(counts, key=self._misfit)

    def _misfit(self, times: StepTimes) -> float:
        step, chain = times.verify(1.0), times.round(GIVEN, Constants())
        wrong = abs(np.log(step / self.step_seconds)) + abs(np.log(chain / self.round_seconds))
        return float(wrong)


@dataclass(frozen=True)
class StepTimes:
    """Seconds of a target's step by tokens, and of its head's by width, on some devices."""

    tokens: Floats
    step: Floats
    head: Floats
    experts: bool

    @classmethod
    def of(cls, device: str, count: int, shape: ModelShape, batch: int) -> StepTimes:
        """By the device model; remembered."""
        key = (device, count, shape.digest, batch)
        if key not in _REMEMBERED:
            several = load_device(f"{count}x{device}" if count > 1 else device)
            seconds: Callable[..., Seconds] = several.forward_seconds  # data sheets take arrays
            head = head_shape(shape)
            tokens = np.linspace(1.0, 65.0, 513)
            widths = np.arange(1.0, 17.0)
            _REMEMBERED[key] = cls(
                tokens,
                np.asarray(seconds(shape, batch, tokens, CONTEXT).median),
                np.asarray(seconds(head, batch, widths, CONTEXT).median),
                any(isinstance(layer.mlp, ExpertMlp) for layer in shape.layers),
            )
        return _REMEMBERED[key]

    def verify(self, tokens: float) -> float:
        """A step over so many tokens per request, seconds."""
        return float(np.interp(tokens, self.tokens, self.step))

    def round(self, setting: Setting, constants: Constants) -> float:
        """Draft steps and verification, seconds."""
        alike = constants.alike if self.experts else 1.0
        draft = self.head[min(setting.topk, len(self.head)) - 1]
        return self.verify(1.0 + alike * setting.drafted) + setting.steps * float(draft)


_REMEMBERED: dict[tuple[str, int, str, int], StepTimes] = {}


def head_shape(target: ModelShape) -> ModelShape:
    """An EAGLE-3 head (arXiv 2503.01840): one dense layer of the target's width, and an LM head."""
    return ModelShape.from_config(
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": target.hidden_size,
            "intermediate_size": 4 * target.hidden_size,
            "num_hidden_layers": 1,
            "num_attention_heads": 8 * max(1, round(target.hidden_size / 1024)),
            "num_key_value_heads": 8,
            "head_dim": 128,
            "vocab_size": HEAD_VOCABULARY,
            "torch_dtype": "bfloat16",
            "max_position_embeddings": 8192,
            "rms_norm_eps": 1e-5,
            "tie_word_embeddings": False,
            "hidden_act": "silu",
        },
        name=f"{target.name} head",
    )


def predict(
    given: Given, settings: Iterable[Setting], constants: Constants
) -> Mapping[Setting, Measured]:
    """Lengths and speeds of settings; the given one is told as it was measured."""
    predicted = {}
    for setting in settings:
        length = tokens_per_round(given.run.length, setting, constants)
        seconds = given.round_seconds * round_ratio(given, setting, length, constants)
        predicted[setting] = Measured(length, given.batch * length / seconds)
    return {**predicted, GIVEN: given.run} if GIVEN in predicted else predicted


def tokens_per_round(length: float, setting: Setting, constants: Constants) -> float:
    """Tokens per round of a setting, from those of the chain `GIVEN`, the bonus counted."""
    levels = min(setting.steps, setting.drafted)
    chain = GIVEN.drafted
    firsts = declining_hazards(
        min(max(length, 1.0), chain + 1.0), chain, max(levels, 1), constants.decline
    )
    if setting.is_chain:
        return 1.0 + float(np.cumprod(firsts[:levels]).sum())

    def hazard(depth: int, rank: int) -> float:
        if rank >= setting.topk:
            return 0.0
        first = firsts[depth - 1]
        return first * ((1.0 - first) * SIBLING) ** rank

    table = AcceptanceTable.of_hazard(hazard, levels, min(setting.topk, setting.drafted))
    tree = search_trees(table, setting.drafted, setting.steps).tree(setting.drafted, setting.steps)
    value = tree_value(tree.parents, tree.ranks, hazard)
    return 1.0 + constants.ranking * (value - 1.0)


def round_ratio(given: Given, setting: Setting, length: float, constants: Constants) -> float:
    """Seconds of a setting's round over those of the measured one."""
    if given.times is None:
        sure = given.credible
        ratio = by_growth(setting, constants) ** (1.0 - sure)
        ratio *= by_echo(given, setting, constants) ** sure
    else:
        sure = 0.5 * given.credible
        ratio = by_device(given.times, setting, constants) ** (1.0 - sure)
        ratio *= by_echo(given, setting, constants) ** sure
    return around(ratio, given, setting, length, constants)


def around(
    ratio: float, given: Given, setting: Setting, length: float, constants: Constants
) -> float:
    """A ratio of rounds, with what passes outside of them and what siblings cost."""
    inside = 1.0 - constants.outside * given.run.length
    ratio *= 1.0 if setting.is_chain else constants.tree
    return inside * ratio + constants.outside * length


def by_growth(setting: Setting, constants: Constants) -> float:
    """The ratio where nothing but the setting is known."""
    return 1.0 + constants.growth * _further(setting)


def by_echo(given: Given, setting: Setting, constants: Constants) -> float:
    """The ratio by what the measured round cost more than a step of the baseline.

    Its three draft steps and three further tokens made `extra` of a step; one more of each makes
    a fixed part of a third of that (less than a third: going from no draft to one costs most).
    """
    share = max(0.0, given.extra) / (1.0 + max(0.0, given.extra)) / GIVEN.drafted
    return 1.0 + constants.echo * share * _further(setting)


def by_device(times: StepTimes, setting: Setting, constants: Constants) -> float:
    """The ratio by the device model."""
    return times.round(setting, constants) / times.round(GIVEN, constants)


def _further(setting: Setting) -> float:
    """Draft steps and verified tokens beyond the measured setting's, their mean."""
    return (setting.steps + setting.drafted) / 2.0 - GIVEN.drafted
