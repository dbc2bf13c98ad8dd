"""How a runtime takes its turns: a process of its own that reads and writes lines of JSON.

Standard library only: it runs in the environment of every peer. Standard output is kept for the
protocol; whatever a runtime prints goes to standard error.

    first argument   {"threads", "count", "work", "settings"}, each as `Setting`
    first line out   {"ready": [numbers of settings], "refused": {number: why}, "version"}
    line in, out     {"setting", "tokens"}, {"seconds", "first", "tokens"}
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROMPT_TOKENS = 160
"""Of every prompt that is continued, at most."""
OUR_DTYPES = {
    "f32": "float32", "f16": "float16", "bf16": "bfloat16", "int8": "Q8_0", "int4": "Q4_0"
}  # fmt: skip
"""Number formats, by the names that settings give them."""


@dataclass(frozen=True)
class Setting:
    """One way to decode.

    Attributes:
        kind: plain, lookup, draft or tree.
        dtype: f32, bf16, f16, int8 or int4: how weights are stored.
        length: drafted tokens per step.
        ngram: most tokens that a lookup matches.
    """

    kind: str
    dtype: str
    length: int
    ngram: int


@dataclass(frozen=True)
class Job:
    """What a worker is to do.

    Attributes:
        threads: of the runtime.
        count: tokens to emit.
        work: folder of converted models; `hf/target` and `hf/draft` are float32 checkpoints.
        settings: by number.
    """

    threads: int
    count: int
    work: Path
    settings: tuple[Setting, ...]


Run = Callable[[list[int]], Iterator[int]]
"""From a prompt to its continuation, token by token, as far as the runtime hands them out."""


def serve(version: str, prepare: Callable[[Job, Setting], Run]) -> None:
    """Answer until the input ends.

    Args:
        version: of the runtime.
        prepare: makes a runner; raises where the runtime cannot.
    """
    given: dict[str, Any] = json.loads(sys.argv[1])
    settings = tuple(Setting(**one) for one in given["settings"])
    job = Job(given["threads"], given["count"], Path(given["work"]), settings)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    runs: dict[int, Run] = {}
    refused: dict[int, str] = {}
    for number, setting in enumerate(settings):
        try:
            runs[number] = prepare(job, setting)
            list(runs[number](list(range(20, 60))))
        except Exception as error:  # whatever a runtime raises
            runs.pop(number, None)
            refused[number] = f"{type(error).__name__}: {error}"[:300]

    def answer(line: object) -> None:
        print(json.dumps(line), file=answers, flush=True)

    answer({"ready": [*runs], "refused": refused, "version": version})
    for line in sys.stdin:
        asked = json.loads(line)
        start, first, tokens = time.perf_counter(), None, []
        for token in runs[asked["setting"]](asked["tokens"]):
            if first is None:
                first = time.perf_counter() - start
            tokens.append(int(token))
        seconds = time.perf_counter() - start
        answer({"seconds": seconds, "first": first, "tokens": tokens[: job.count]})
