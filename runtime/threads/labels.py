"""Threads `labels`: one text per label of a list, all at once.

PaDeLLM-NER (Lu et al. 2024, arXiv 2402.04838) asks a model for the entities of each label in a text
of its own. Here the target is taken as it is; of a list of labels each text is one line.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specplan.ir.errors import UsageError
from specplan.runtime.threads.thread import Branches, Thread


@dataclass(frozen=True)
class Labels:
    """One thread per label.

    Attributes:
        prompts: what follows the request's text in each thread, by label.
        stops: strings that end a thread.
    """

    prompts: dict[str, str]
    stops: tuple[str, ...]

    def begin(self, threads: Sequence[Thread]) -> Sequence[Thread]:
        """All labels at the start."""
        return [
            Thread(name=label, after=after, stops=self.stops)
            for label, after in self.prompts.items()
        ]

    def join(self, threads: Sequence[Thread]) -> str:
        """A JSON object of the labels' texts."""
        return json.dumps({one.name: one.text.strip() for one in threads}, ensure_ascii=False)


def branches(path: str) -> Branches:
    """Threads by a JSON file.

    Args:
        path: of a list of labels, each of which then follows the request on a line of its own with
            a colon behind it and ends with its line, or of an object that has what follows the
            request by label.

    Raises:
        UsageError: the file has neither.
    """
    try:
        given = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"the labels cannot be read: {error}",
            where=str(path),
            remedy="Write a JSON list of labels, or an object of prompts by label.",
        ) from error
    lines = isinstance(given, list)
    if lines:
        given = {str(label): f"\n{label}:" for label in given}
    if not isinstance(given, dict) or not all(isinstance(after, str) for after in given.values()):
        raise UsageError("labels must be a list, or an object of prompts by label", where=str(path))
    return Labels(given, ("\n",) if lines else ())
