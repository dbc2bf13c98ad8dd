"""What a target in another number format loses: likelihood of the second halves of prompts."""

from __future__ import annotations

import torch

from specplan.cost_models.quality.formats import FormatLoss
from specplan.ir.errors import UsageError
from specplan.ir.files import name_of, read_json, write_json_atomic
from specplan.measure.acceptance.teacher import text_logits
from specplan.measure.progress import Progress, silent
from specplan.measure.quality.prompts import LEAST, quality_prompts
from specplan.measure.workbench import Workbench
from specplan.runtime.models.causal import CausalModel

MOST = 300
"""Texts that are read at most."""
RISK = 0.05
"""Of the bound, where the problem limits no quality."""


def format_loss(before: Workbench, after: Workbench, progress: Progress = silent) -> FormatLoss:
    """The loss of a problem's target in its number formats against the same target in others.

    It is stored under the problem's `profiles`, and read where it was measured already.

    Args:
        before: of the problem with the formats that they are compared with.
        after: of the problem.
        progress: called for every text.

    Raises:
        UsageError: there are fewer than `LEAST` prompts.
    """
    quality = after.problem.limits.quality
    risk = RISK if quality is None else quality.risk
    texts = _texts(after)
    models = [bench.models["target"] for bench in (before, after)]
    about = [model.digest for model in models] + [str(model.dtype) for model in models]
    path = after.problem.profiles / "quality" / f"formats-{name_of(repr((about, texts)))}.json"
    if not path.is_file():
        losses = []
        for done, text in enumerate(texts):
            progress("loss of number formats", done, len(texts))
            likely, own = (_likelihood(model, text) for model in models)
            losses.append(likely - own)
        progress("loss of number formats", len(texts), len(texts))
        write_json_atomic(path, {"schema_version": 1, "losses": losses})
    stored = read_json(path, "stored losses of number formats")["losses"]
    return FormatLoss(tuple(map(float, stored)), before.problem.models.target.format_words, risk)


def _texts(bench: Workbench) -> list[tuple[int, ...]]:
    """Prompts of the quality limit, or of the workload, as tokens."""
    prompts = quality_prompts(bench.problem)
    texts = [tuple(bench.tokenizer.encode(one.text)[-bench.prompt_tokens :]) for one in prompts]
    texts = [text for text in texts if len(text) > 1][:MOST]
    if len(texts) < LEAST:
        raise UsageError(
            f"{len(texts)} prompts do not tell what number formats lose; it takes {LEAST}",
            where="limits.quality.prompts, or workload.prompts where it names none",
            remedy="Give more prompts of the workload's task.",
        )
    return texts


def _likelihood(model: CausalModel, text: tuple[int, ...]) -> float:
    """Ln p of the second half of a text, per token."""
    start = max(1, len(text) // 2)
    logits = text_logits(model, text, start).double().log_softmax(-1)
    return float(logits.gather(1, torch.tensor(text[start:], device=logits.device)[:, None]).mean())
