"""Gates of a target's heads, measured without training: attention to distant text."""

from __future__ import annotations

from specplan.ir.errors import UsageError
from specplan.measure.acceptance.continuations import continue_prompts
from specplan.measure.progress import Progress, silent
from specplan.measure.workbench import PROFILE, Workbench
from specplan.planner import SINKS, Gates
from specplan.runtime.models.cache_parts.by_head import attention_outside

PROMPTS = 16
"""Texts that are read."""


def measure_gates(bench: Workbench, budget: int, *, progress: Progress = silent) -> Gates:
    """Per key/value head, the share of its attention that goes to what it would not see streaming.

    The mean over the tokens of some prompts with the target's own continuations that have more than
    `budget` tokens before them, and over the query heads that share it. A gate of DuoAttention
    (arXiv 2410.10819) is trained to the same end: high where a head needs distant text.

    Args:
        bench: the problem's target and prompts.
        budget: tokens that a streaming head reads.
        progress: called after every text.

    Raises:
        UsageError: no text is longer than the budget, or the target has recurrent layers.
    """
    target = bench.models["target"]
    if target.recurrent:
        raise UsageError(
            "the target has layers without keys and values, so that its heads have no gates",
            where="models.target",
            remedy="Choose another method.",
        )
    prompts = bench.prompts(PROFILE)[:PROMPTS]
    outputs = continue_prompts(bench, prompts, progress)
    total, tokens = None, 0
    for done, (prompt, output) in enumerate(zip(prompts, outputs, strict=True)):
        text = (*prompt.tokens, *output)
        outside, counted = attention_outside(target, text, budget, min(SINKS, budget))
        total = outside if total is None else total + outside
        tokens += counted
        progress("gates of heads", done + 1, len(prompts))
    if total is None or not tokens:
        raise UsageError(
            f"no text of a prompt and its output is longer than {budget} tokens",
            where="workload.prompts",
            remedy="Give longer prompts (and workload.prompt_tokens), or a smaller budget.",
        )
    return tuple(tuple(layer) for layer in (total / tokens).tolist())
