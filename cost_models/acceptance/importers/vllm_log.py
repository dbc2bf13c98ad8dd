"""vLLM's own log: the lines "SpecDecoding metrics: ..." of a server.

Source: vllm/v1/spec_decode/metrics.py (`SpecDecodingLogging.log`): every few seconds one line about
the steps since the last one: "Mean acceptance length: 2.68, Accepted throughput: ..., Drafted
throughput: ..., Accepted: 1021 tokens, Drafted: 1824 tokens, Per-position acceptance rate: 0.770,
0.540, 0.366, Avg Draft acceptance rate: 56.0%". The mean length counts the bonus token; the rates
are of all drafts, P(the first i draft tokens are all accepted), and do not.
"""

from __future__ import annotations

import re

from specplan.cost_models.acceptance.fits.counts import falling, fit_counts
from specplan.cost_models.acceptance.fits.mean_length import fit_mean_length
from specplan.cost_models.acceptance.importers.base import Importer, ImportRequest, chain_length
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.foreign_file import Source

_MARK = "SpecDecoding metrics:"
_LENGTH = re.compile(r"Mean acceptance length: ([\d.]+|nan)")
_COUNTS = re.compile(r"Accepted: (\d+) tokens, Drafted: (\d+) tokens")
_RATES = re.compile(r"Per-position acceptance rate: ([\d.]+(?:, [\d.]+)*)")
_ROUNDING = 0.02
"""How far the rounded figures of a line may lie apart, in tokens per step for each position."""


def _recognises(source: Source) -> bool:
    return _MARK in source.text and not source.documents


def _read(source: Source, request: ImportRequest) -> AcceptanceProfile:
    accepted: list[float] = []
    trials: list[float] = []
    totals = [0.0, 0.0, 0.0]  # steps that drafted, draft tokens, accepted ones
    lines = 0
    for number, line in enumerate(source.text.splitlines(), start=1):
        if _MARK not in line:
            continue
        drafts, drafted, taken, rates = _line(source, number, line)
        if not drafts:
            continue
        lines += 1
        totals = [sum(pair) for pair in zip(totals, (drafts, drafted, taken), strict=True)]
        for column in (accepted, trials):
            column += [0.0] * (len(rates) - len(column))
        for position, (before, rate) in enumerate(zip((1.0, *rates), rates, strict=False)):
            accepted[position] += drafts * rate
            trials[position] += drafts * before
    drafts, drafted, taken = totals
    if not drafts:
        raise source.error(
            "its lines about speculative decoding count no drafts",
            "Take a log of a time in which requests were decoded.",
        )
    facts = {
        "engine": "vLLM",
        "lines": lines,
        "rounds": round(drafts),
        "draft_tokens_total": drafted,
        "accepted_tokens": taken,
    }
    if not accepted:  # versions before rates by position
        length = chain_length(source, request, drafted, drafts)
        mean = 1.0 + taken / drafts
        return fit_mean_length(mean, length, request.key, rounds=drafts, provenance=facts)
    return fit_counts(accepted, trials, request.key, facts)


def _line(source: Source, number: int, line: str) -> tuple[float, float, float, list[float]]:
    """Steps, draft tokens, accepted ones and falling rates by position of one line."""
    length, counts, rates = (one.search(line) for one in (_LENGTH, _COUNTS, _RATES))
    if length is None or counts is None:
        raise source.error(
            f"line {number} lacks the mean acceptance length or the counts of tokens",
            "Take the whole line as vLLM prints it.",
        )
    taken, drafted = float(counts[1]), float(counts[2])
    if not drafted or length[1] == "nan":
        return 0.0, 0.0, 0.0, []
    mean = source.checked(length[1], f"the mean acceptance length in line {number}", low=1.0)
    shares: list[float] = []
    if rates is not None:
        what = f"a rate in line {number}"
        shares = [source.checked(rate, what, 0.0, 1.0) for rate in rates[1].split(", ")]
        if abs(1.0 + sum(shares) - mean) > _ROUNDING * max(2, len(shares)):
            raise source.error(
                f"line {number} has a mean acceptance length of {mean:g}, and "
                f"{1.0 + sum(shares):.2f} by its rates and the bonus token"
            )
    gain = sum(shares) if shares else mean - 1.0
    if not gain and not shares:
        raise source.error(
            f"line {number} does not say how many tokens are drafted per step",
            "Take a log in which some draft tokens were accepted.",
        )
    drafts = taken / gain if gain and taken else drafted / len(shares)
    return drafts, drafted, taken, falling(shares) if shares else []


IMPORTER = Importer("vllm-log", "log of vLLM, lines `SpecDecoding metrics`", _recognises, _read)
