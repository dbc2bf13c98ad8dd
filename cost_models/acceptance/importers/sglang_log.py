"""SGLang's own log: the lines "Decode batch ... accept len: 2.90, accept rate: 0.63".

Source: sglang/srt/managers/scheduler_metrics_mixin.py: one line every `decode_log_interval` steps
about the steps since the last one. "accept len" is the mean of tokens per step and request, the
bonus token counted. "accept rate" divides it by the draft tokens, in older versions with the bonus
token on both sides, so that it does not say surely how many are drafted; the `server_args` that the
server prints at its start do.
"""

from __future__ import annotations

import re

from specplan.cost_models.acceptance.fits.mean_length import fit_mean_length
from specplan.cost_models.acceptance.importers.base import Importer, ImportRequest
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.foreign_file import Source

_LINE = re.compile(
    r"Decode batch.*?#running-req: (\d+).*?accept len: ([\d.]+)(?:, accept rate: ([\d.]+))?"
)
_INTERVAL = 40
"""Steps between two lines, as SGLang has it by default."""
_ROUNDING = 0.006
"""Of figures with two decimals, and a little more."""


def _recognises(source: Source) -> bool:
    return not source.documents and _LINE.search(source.text) is not None


def _read(source: Source, request: ImportRequest) -> AcceptanceProfile:
    rows = [(float(n), float(length), rate) for n, length, rate in _LINE.findall(source.text)]
    rows = [row for row in rows if row[0] > 0 and row[1] >= 1.0]
    if not rows:
        raise source.error(
            "no line says how many draft tokens were accepted",
            "Take a log of a time in which requests were decoded.",
        )
    draft_tokens = request.draft_tokens or _draft_tokens(source, rows)
    interval = _setting(source, "decode_log_interval") or _INTERVAL
    steps = sum(running for running, _, _ in rows)
    mean = sum(running * length for running, length, _ in rows) / steps
    facts = {"engine": "SGLang", "lines": len(rows)}
    return fit_mean_length(
        mean, draft_tokens, request.key, rounds=steps * interval, provenance=facts
    )


def _setting(source: Source, name: str) -> int | None:
    """A number of the printed `server_args`, or of the command line above it."""
    match = re.search(rf"{name.replace('_', '[_-]')}['\"]?[=: ]+(\d+)", source.text)
    return None if match is None else int(match[1])


def _draft_tokens(source: Source, rows: list[tuple[float, float, str]]) -> int:
    """Draft tokens per step: of the settings that the log holds, else of the accept rates."""
    width = _setting(source, "speculative_eagle_topk")
    if width is not None and width > 1:
        raise source.error(
            f"trees were drafted (speculative_eagle_topk {width}): their mean length says "
            "nothing about other trees",
            "Run it with --speculative-eagle-topk 1.",
        )
    steps, nodes = (
        _setting(source, f"speculative_num_{name}") for name in ("steps", "draft_tokens")
    )
    if steps or (nodes and nodes > 1):
        return steps or (nodes or 1) - 1
    fitting = [
        tokens
        for tokens in range(1, 33)
        if any(
            all(_says(length, rate, tokens, bonus) for _, length, rate in rows)
            for bonus in (True, False)
        )
    ]
    if len(fitting) != 1 or not all(rate for _, _, rate in rows):
        raise source.error(
            "it does not say surely how many tokens are drafted per step",
            "Say so with --draft-tokens, as --speculative-num-steps was.",
        )
    return fitting[0]


def _says(length: float, rate: str, tokens: int, bonus: bool) -> bool:
    """Whether a line's rate is that of this many draft tokens, the bonus counted or not."""
    if not rate:
        return False
    share = length / (tokens + 1) if bonus else (length - 1.0) / tokens
    return abs(share - float(rate)) <= _ROUNDING + 0.005 / tokens


IMPORTER = Importer("sglang-log", "log of SGLang, lines `Decode batch`", _recognises, _read)
