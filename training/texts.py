"""Texts to train on: a user's prompts, answered by the target as it is served."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from specplan.ir.errors import UsageError
from specplan.measure.acceptance.continuations import continue_prompts
from specplan.measure.progress import Progress
from specplan.measure.workbench import TokenPrompt, Workbench
from specplan.planner import Prompt, read_prompts
from specplan.training.learning.packing import Text
from specplan.training.learning.processes import join_processes, wait

TRAIN = "train"
"""Split of the prompts that heads are trained on."""
LONGEST = 512
"""Tokens of a prompt that is learned itself."""
BATCH = 32
"""Prompts that the target answers at once."""


def training_texts(
    bench: Workbench, file: Path | None, progress: Progress, answers: bool = True
) -> list[Text]:
    """What the target writes after prompts, at the temperature of the workload.

    Answers are stored in the problem's `profiles`, batch by batch.

    Args:
        bench: with the target.
        file: JSON Lines of prompts; None for those of the problem in the split `train`. Prompts
            that the problem measures on are left out.
        progress: called after every batch.
        answers: else the prompts themselves, up to `LONGEST` tokens.

    Raises:
        UsageError: there are no such prompts.
    """
    if not answers:
        tokens = (
            tuple(bench.tokenizer.encode(one.text_alone)[:LONGEST]) for one in _prompts(bench, file)
        )
        return [Text(one, 0) for one in tokens if len(one) > 1]
    longest = bench.prompt_tokens
    prompts = [
        TokenPrompt(prompt.id, tuple(bench.tokenizer.encode(prompt.text_alone)[-longest:]))
        for prompt in _prompts(bench, file)
    ]
    rank, size = join_processes()
    if rank:
        wait(size)  # the first process lets the target write, the others read it
    outputs = continue_prompts(bench, prompts, progress, BATCH)
    if rank == 0:
        wait(size)
    pairs = zip(prompts, outputs, strict=True)
    texts = [Text((*prompt.tokens, *output), len(prompt.tokens)) for prompt, output in pairs]
    return [text for text in texts if len(text.tokens) > text.start + 1]


def _prompts(bench: Workbench, file: Path | None) -> Iterator[Prompt]:
    own, task = bench.problem.workload.prompts, bench.problem.workload.task
    known = [] if own is None else read_prompts(own)
    measured = {prompt.text for prompt in known if prompt.split != TRAIN}
    given = [p for p in known if p.split == TRAIN] if file is None else read_prompts(file)
    chosen = [p for p in given if p.text not in measured and (not task or p.task in ("", task))]
    if not chosen:
        raise UsageError(
            "there are no prompts to train on",
            where="prompts" if file is None else str(file),
            remedy="Give JSON Lines of other prompts than the problem measures on, one object with "
            f'text per line, or mark some of the problem\'s as "split": "{TRAIN}".',
        )
    yield from chosen
