"""Published mean acceptance lengths by kind of drafter, with their sources.

One YAML file per kind, next to this module. A source is a page, a paper or a repository, and its
name alone decides by a hash what its rows are for: they set the priors, or they check them. No row
of a source that checks sets anything.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from specplan.cost_models.formulas.closed_forms import acceptance_of_tokens
from specplan.ir.errors import UsageError

Task = Literal["code", "chat", "math", "summarisation", "any"]
KINDS = tuple(sorted(path.stem for path in Path(__file__).parent.glob("*.yaml")))
"""Kinds of drafters with published figures; each is the name of a file."""
TASKS: tuple[Task, ...] = get_args(Task)
_WORDS: dict[Task, tuple[str, ...]] = {
    "code": ("code", "coding", "program", "humaneval", "mbpp", "livecodebench"),
    "math": ("math", "gsm8k", "aime", "reasoning"),
    "summarisation": ("summar", "cnn", "xsum"),
    "chat": ("chat", "dialog", "conversation", "mt-bench", "mtbench", "assistant"),
}


@dataclass(frozen=True)
class PublishedLength:
    """One published figure.

    Attributes:
        kind: of the drafter.
        task: of the prompts.
        draft_tokens: drafted per step, in a chain (K).
        length: mean tokens per step, the bonus token included.
        models: what was run.
        source: where it was published.
    """

    kind: str
    task: Task
    draft_tokens: int
    length: float
    models: str
    source: str

    @property
    def sets(self) -> bool:
        """Whether it sets the prior of its kind; otherwise it checks it."""
        return sets_priors(self.source)

    @property
    def alpha(self) -> float:
        """The acceptance probability that has this length if all positions are alike."""
        return acceptance_of_tokens(self.length, self.draft_tokens)


@dataclass(frozen=True)
class KindTable:
    """What is published on one kind of drafter.

    Attributes:
        kind: of the drafter.
        words: the kind in a sentence.
        concentration: least and most a + b of the Beta over contexts that is taken as possible.
        lengths: the published figures.
    """

    kind: str
    words: str
    concentration: tuple[float, float]
    lengths: tuple[PublishedLength, ...]

    @property
    def setting(self) -> tuple[PublishedLength, ...]:
        """The figures that set the prior."""
        return tuple(one for one in self.lengths if one.sets)

    @property
    def checking(self) -> tuple[PublishedLength, ...]:
        """The figures that check it."""
        return tuple(one for one in self.lengths if not one.sets)


def sets_priors(source: str) -> bool:
    """Whether figures of a source set priors; those of the others check them."""
    return hashlib.sha256(source.encode()).digest()[0] % 2 == 1


@cache
def kind_table(kind: str) -> KindTable:
    """The published figures on a kind.

    Raises:
        UsageError: the file of the kind is broken.
    """
    from specplan.ir.text.yaml_text import read_data

    path = Path(__file__).with_name(f"{kind}.yaml")
    data = read_data(path.read_text(encoding="utf-8"))
    try:
        low, high = data["concentration"]
        lengths = tuple(
            _length(kind, row, source["source"])
            for source in data["sources"]
            for row in source["rows"]
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"no table of published lengths ({error})", where=str(path)) from error
    return KindTable(kind, str(data["words"]), (float(low), float(high)), lengths)


def _length(kind: str, row: list[Any], source: str) -> PublishedLength:
    task, draft_tokens, length, models = row
    if task not in TASKS or not 1.0 <= length <= draft_tokens + 1:
        raise ValueError(f"{row} of {source}")
    return PublishedLength(kind, task, int(draft_tokens), float(length), str(models), source)


def task_of(text: str) -> Task:
    """The task that a user's word for the kind of prompts means; `any` for other words."""
    lower = text.lower()
    for task, words in _WORDS.items():
        if any(word in lower for word in words):
            return task
    return "any"
