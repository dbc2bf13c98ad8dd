"""Losses of a plan's outputs against the target, one for each prompt.

- `outputs_differ`: P(the output is not the target's), where both are drawn together as often alike
  as can be, token by token: 1 - prod min(1, p(x) / q(x)) along the plan's own output x, p being the
  target's law and q the plan's. Its mean is the probability that the two differ under that
  coupling, and so at least the total variation of the laws of whole outputs; at temperature 0 it is
  whether the two outputs differ.
- `divergence`: of q from p at each token of the plan's output, in the mean: total variation, or
  KL(q || p) in nats, whose sum over an output is that of the laws of whole outputs.
- `held_out_loss`: ln p(x) - ln q(x) at temperature 1, in the mean over the second half of the
  prompt's own text.
- `command`: by how much a user's command scores the output lower than the target's.

Losses without a bound are counted up to `MOST` per request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from specplan.ir.errors import MissingCapabilityError
from specplan.ir.plan import Plan
from specplan.measure.acceptance.continuations import continue_prompts, request_of
from specplan.measure.acceptance.exits import exit_layers_of, keys_are_exact
from specplan.measure.acceptance.teacher import TracedText, text_logits
from specplan.measure.progress import Progress, silent
from specplan.measure.quality.commands import Scorer, drop
from specplan.measure.quality.laws import check_law, drafts_nothing, recorded
from specplan.measure.quality.prompts import Parts
from specplan.measure.workbench import TokenPrompt, Workbench
from specplan.runtime.generate import generate
from specplan.runtime.requests import Request
from specplan.runtime.sampling import SamplingSettings, probabilities

if TYPE_CHECKING:
    from specplan.backends.eager.backend import EagerExecutable
    from specplan.planner import Quality

BATCH = 16
MOST: Mapping[str, float] = {"kl": 4.0, "held_out_loss": 2.0}
"""Nats per token beyond which a request's loss is not counted."""
_TINY = 1e-30


def most_loss(quality: Quality) -> float:
    """The largest loss of a request, in the unit of the measure."""
    kind = quality.divergence if quality.measure == "divergence" else quality.measure
    return MOST.get(kind, 1.0)


def losses(bench: Workbench, parts: Parts, plan: Plan, progress: Progress) -> list[float]:
    """The loss of each prompt by running the plan, in [0, 1] after division by `most_loss`.

    Args:
        bench: of a problem with a quality limit.
        parts: its prompts.
        plan: a verified plan that the interpreter runs.
        progress: called for every batch.

    Raises:
        MissingCapabilityError: the measure needs laws that are not known exactly for the plan.
    """
    quality = bench.problem.limits.quality
    assert quality is not None, "there is a limit to test"
    greedy, most = bench.problem.workload.greedy, most_loss(quality)
    measure: Callable[[Workbench, Parts, Plan, range], Iterator[float]]
    if quality.measure == "command":
        measure = _scored
    elif quality.measure == "held_out_loss":
        if not drafts_nothing(plan):
            raise MissingCapabilityError(
                f"plan {plan.name} drafts, so that no token of a given text has a law of its own",
                where="limits.quality.measure: held_out_loss",
                remedy="Measure divergence, or outputs.",
            )
        measure = _of_own_text
    elif greedy:
        measure = _greedy
    else:
        check_law(plan, quality.measure)
        measure = _sampled
    done: list[float] = []
    title, count = f"loss of {plan.name}", len(parts.tokens)
    for start in range(0, count, BATCH):
        progress(title, start, count)
        group = range(start, min(start + BATCH, count))
        done += [min(1.0, max(0.0, loss / most)) for loss in measure(bench, parts, plan, group)]
    progress(title, count, count)
    return done


def _requests(bench: Workbench, parts: Parts, group: range) -> list[Request]:
    return [request_of(bench, parts.tokens[place], place) for place in group]


def _outputs(
    bench: Workbench, parts: Parts, plan: Plan, group: range
) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
    """The target's output and the plan's, with the same numbers drawn."""
    run = generate(bench.compile(plan), _requests(bench, parts, group))
    targets = _targets(bench, parts)
    for place, own in zip(group, run.completions, strict=True):
        yield targets[place], own.tokens


def _greedy(bench: Workbench, parts: Parts, plan: Plan, group: range) -> Iterator[float]:
    """Whether the outputs differ; or at how many tokens of the plan's output the target's would."""
    quality = bench.problem.limits.quality
    assert quality is not None
    for place, (wanted, own) in zip(group, _outputs(bench, parts, plan, group), strict=True):
        if quality.measure == "outputs_differ" or not own:
            yield float(tuple(wanted) != tuple(own))
            continue
        prompt = parts.tokens[place]
        request, tokens = request_of(bench, prompt, place), [*prompt.tokens, *own]
        logits = text_logits(bench.models["target"], tokens, len(prompt.tokens), request=request)
        different = float((logits.argmax(-1).cpu() != torch.tensor(own)).double().mean())
        yield different * (1.0 if quality.divergence == "total_variation" else MOST["kl"])


def is_replayed(quality: Quality, plan: Plan) -> bool:
    """Whether one traced run of the target's outputs tells what the plan loses."""
    exits = exit_layers_of(plan) is not None and keys_are_exact(plan)
    return exits and quality.measure == "outputs_differ"


def replayed_texts(bench: Workbench, parts: Parts, progress: Progress) -> list[TracedText]:
    """The target's own output after each prompt, along which plans are replayed."""
    outputs, target = _targets(bench, parts, progress), bench.models["target"]
    requests = _requests(bench, parts, range(len(outputs)))
    return [
        TracedText(place, prompt.id, request, output, target)
        for place, (prompt, request, output) in enumerate(
            zip(parts.tokens, requests, outputs, strict=True)
        )
    ]


def _targets(bench: Workbench, parts: Parts, progress: Progress = silent) -> list[tuple[int, ...]]:
    """The target's own output after each prompt."""
    return continue_prompts(bench, parts.tokens, progress, 2 * BATCH)


def _sampled(bench: Workbench, parts: Parts, plan: Plan, group: range) -> Iterator[float]:
    quality = bench.problem.limits.quality
    assert quality is not None
    requests = _requests(bench, parts, group)
    executable: EagerExecutable = bench.compile(plan)  # type: ignore[assignment]
    for request, (output, laws) in zip(requests, recorded(executable, requests), strict=True):
        tokens = [*request.prompt_tokens, *output]
        start = len(request.prompt_tokens)
        logits = text_logits(bench.models["target"], tokens, start, request=request)
        settings = SamplingSettings.of([request], logits.device)
        target = probabilities(logits[None], settings)[0].double()
        if quality.measure == "outputs_differ":
            yield float(1.0 - drawn_together(target, laws, output).prod())
        elif quality.divergence == "total_variation":
            yield float(total_variation(target, laws).mean())
        else:
            yield float(kl(laws, target).clamp(max=MOST["kl"]).mean())


def drawn_together(target: Tensor, laws: Tensor, tokens: Sequence[int]) -> Tensor:
    """P(the target draws a token that was drawn, too) = min(1, p(x) / q(x)), `[n]`."""
    place = torch.tensor([tokens], device=laws.device).T
    ratio = target.gather(1, place) / laws.gather(1, place).clamp(min=_TINY)
    return ratio[:, 0].clamp(max=1.0)


def total_variation(target: Tensor, laws: Tensor) -> Tensor:
    """Half the sum of the differences of two laws, `[n]`."""
    return (target - laws).abs().sum(-1) / 2.0


def kl(laws: Tensor, target: Tensor) -> Tensor:
    """Sum of q ln(q / p), nats, `[n]`."""
    ratio = laws.clamp(min=_TINY).log() - target.clamp(min=_TINY).log()
    return (laws * ratio).sum(-1).clamp(min=0.0)


def _of_own_text(bench: Workbench, parts: Parts, plan: Plan, group: range) -> Iterator[float]:
    """Of the second half of each prompt's text."""
    texts = [parts.tokens[place].tokens for place in group]
    halves = [max(1, len(text) // 2) for text in texts]
    requests = [
        bench.request(
            TokenPrompt("", text[:half]),
            place,
            max_new_tokens=len(text) - half,
            stop_tokens=(),
            grammar=None,
        )
        for place, text, half in zip(group, texts, halves, strict=True)
    ]
    forced = [text[half:] for text, half in zip(texts, halves, strict=True)]
    executable: EagerExecutable = bench.compile(plan)  # type: ignore[assignment]
    ran = recorded(executable, requests, forced, at_one=True)
    for text, half, (_, laws) in zip(texts, halves, ran, strict=True):
        target = text_logits(bench.models["target"], text, half).double().log_softmax(-1)
        place = torch.tensor([text[half:]], device=laws.device).T
        own = laws.gather(1, place).clamp(min=_TINY).log()
        yield float((target.gather(1, place) - own).mean())


def _scored(bench: Workbench, parts: Parts, plan: Plan, group: range) -> Iterator[float]:
    quality = bench.problem.limits.quality
    assert quality is not None
    scorer = Scorer(quality.command, quality.seconds, quality.memory)
    for place, outputs in zip(group, _outputs(bench, parts, plan, group), strict=True):
        prompt, decode = parts.texts[place], bench.tokenizer.decode
        target, own = (scorer.score(prompt.id, prompt.text, decode(tokens)) for tokens in outputs)
        yield drop(target, own)
