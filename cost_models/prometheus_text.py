"""Samples of the Prometheus text format."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specplan.cost_models.foreign_file import Source

_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?$")
_LABEL = re.compile(r'\s*([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"\s*(?:,|$)')


@dataclass(frozen=True)
class Sample:
    """One line.

    Attributes:
        name: of the metric.
        labels: by name.
        value: as written.
    """

    name: str
    labels: Mapping[str, str]
    value: str


def read_samples(source: Source, names: Sequence[str]) -> list[Sample]:
    """The samples of some metrics; `_total` after a counter's name does not matter.

    Args:
        source: a scrape of `/metrics`.
        names: of the metrics, without the program's prefix ("vllm:") and without `_total`.

    Raises:
        UsageError: a line with one of the names is no sample.
    """
    pattern = re.compile(rf"^[\w.]*:?({'|'.join(map(re.escape, names))})(_total)?[{{\s]")
    samples = []
    for number, line in enumerate(source.text.splitlines(), start=1):
        named = pattern.match(line)
        if named is None:
            continue
        sample = _SAMPLE.match(line.strip())
        if sample is None:
            raise source.error(f"line {number} is no Prometheus sample: {line[:80]!r}")
        labels = dict(_LABEL.findall(sample[2] or ""))
        samples.append(Sample(named[1], labels, sample[3]))
    return samples


def selected(source: Source, samples: Sequence[Sample], select: str | None) -> list[Sample]:
    """Samples of one model: those with the label `select` ("name=value"), or all.

    Raises:
        UsageError: no sample has the label, or there are several models and none is selected.
    """
    if select is not None:
        name, _, value = select.partition("=")
        labelled = [sample for sample in samples if sample.labels.get(name) == value]
        if not labelled:
            raise source.error(
                f"no sample has the label {select!r}", "Give a label of the file as name=value."
            )
        samples = labelled
    models = sorted({s.labels["model_name"] for s in samples if "model_name" in s.labels})
    if len(models) > 1:
        raise source.error(
            f"it counts several models: {', '.join(models)}",
            f"Choose one with --select model_name={models[0]}.",
        )
    return list(samples)
