"""A stored baseline: the time of a bundle's plan over that of plain decoding.

Seconds of another day are no baseline: clocks, neighbours and drivers change them by more than the
slow-down to detect. The ratio of the plan's time to that of plain decoding of the same models in
the same run lasts; it is measured again in the same way.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from specplan.backends.bundle import Bundle
from specplan.bundles.contest import chosen_name, contestants
from specplan.checks.running import ONE, Load, count_groups, opened, run_bundle, run_here
from specplan.cost_models.intervals import HALF_WIDTH_90
from specplan.ir.errors import NothingToCompareError, UsageError
from specplan.ir.files import read_document, write_json_atomic
from specplan.planner import PLAIN
from specplan.progress import Progress, silent

if TYPE_CHECKING:
    from specplan.measure.bench.interleave import Run
    from specplan.measure.workbench import Workbench

SCHEMA_VERSION = 2
KIND = "speed_baseline"
GROUPS, RUNS = 12, 3
"""Default number of groups of prompts of a baseline, and least runs of each."""


@dataclass(frozen=True)
class Baseline:
    """The ratio of a plan's time to that of plain decoding, group by group.

    Attributes:
        log_ratios: log of seconds per token of the plan over those of plain decoding, by group.
        half_width: of the 90 % interval of their middle, as a log ratio.
        pairs: number of pairs measured.
        target: digest of the target's checkpoint.
        prompts: names of the prompts, in the order of the groups.
        batch: prompts per group.
        output_tokens: emitted per prompt at most.
        temperature: of sampling.
        hardware: of the machine.
        versions: of the software.
    """

    log_ratios: tuple[float, ...]
    half_width: float
    pairs: int
    target: str
    prompts: tuple[str, ...]
    batch: int
    output_tokens: int
    temperature: float
    hardware: str
    versions: dict[str, str]

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        about = {"schema_version": SCHEMA_VERSION, "kind": KIND}
        write_json_atomic(path, about | asdict(self))

    @classmethod
    def load(cls, path: Path) -> Baseline:
        """Read one.

        Raises:
            UsageError: the file is missing or is no baseline of this version.
        """
        remedy = "Measure one with `specplan check baseline BUNDLE --out FILE`."
        data = read_document(path, "baseline", SCHEMA_VERSION, remedy, KIND)
        wanted = {field.name for field in fields(cls)}
        if missing := wanted - set(data):
            raise UsageError(f"it has no {min(missing)}", where=str(path), remedy=remedy)
        given = {name: data[name] for name in wanted}
        given |= {name: tuple(given[name]) for name in ("log_ratios", "prompts")}
        return cls(**given)

    @property
    def expected_load(self) -> Load:
        """The load of every run."""
        return Load(self.batch, self.output_tokens, None, len(self.prompts))


def measure_baseline(
    bundle: Bundle | Path | str,
    *,
    load: Load = ONE,
    seconds: float = 60.0,
    seed: int = 0,
    progress: Progress = silent,
) -> Baseline:
    """Run a bundle's plan and plain decoding in turns, every group several times.

    Args:
        bundle: a bundle or its folder.
        load: of every run; `GROUPS` groups if it has no limit of prompts.
        seconds: least time to measure, loading not included.
        seed: of the order.
        progress: called with the seconds used.

    Raises:
        UsageError: the bundle or a checkpoint has changed, or has no prompts.
        NothingToCompareError: the bundle's plan is plain decoding, or there are too few prompts.
    """
    from specplan.measure.bench.interleave import pairs
    from specplan.measure.machine import hardware_name, versions

    checked = opened(bundle)
    limited = load if load.limit else replace(load, limit=GROUPS * load.batch)
    plain, plan, bench = both_runs(checked, limited)
    groups = count_groups(bench.problem, limited)
    source, start = pairs(plain, plan, groups, seed), perf_counter()
    next(source)  # not counted: the first run allocates and warms caches
    ratios, count = defaultdict[int, list[float]](list), 0
    while count < groups * RUNS or perf_counter() - start < seconds:
        pair, count = next(source), count + 1
        ratios[pair.group].append(pair.log_ratio)
        used = min(round(perf_counter() - start), round(seconds))
        progress("plan and plain decoding in turn", used, round(seconds))
    middles = tuple(median(ratios[group]) for group in range(groups))
    return Baseline(
        log_ratios=middles,
        half_width=_half_width(ratios, middles),
        pairs=count,
        hardware=hardware_name(bench.models["target"].device),
        versions=versions(),
        **about(checked, bench, limited),
    )


def both_runs(bundle: Bundle, load: Load) -> tuple[Run, Run, Workbench]:
    """Runs of plain decoding and of the bundle's plan, over the same models.

    Raises:
        NothingToCompareError: the plan is plain decoding, or there are too few prompts.
    """
    from specplan.measure.workbench import Workbench

    if chosen_name(bundle) == PLAIN:
        raise NothingToCompareError(
            "the plan of this bundle is plain decoding, so there is nothing to compare it with",
            where=str(bundle.folder),
            remedy="Compare with another bundle (--base) or version (--base-python).",
        )
    bench = Workbench(load.problem(bundle))
    plain, _ = contestants(bundle, load.batch)[PLAIN]
    return run_here(bench, bench.compile(plain), load), run_bundle(bench, bundle, load), bench


def about(bundle: Bundle, bench: Workbench, load: Load) -> dict[str, Any]:
    """The attributes of a baseline that two comparable ones share."""
    from specplan.measure.workbench import BENCH, chosen_prompts

    prompts = count_groups(bench.problem, load) * load.batch
    return {
        "target": bundle.models["target"].digest,
        "prompts": tuple(prompt.id for prompt in chosen_prompts(bench.problem, BENCH)[:prompts]),
        "batch": load.batch,
        "output_tokens": bench.output_tokens,
        "temperature": bench.problem.workload.temperature,
    }


def check_comparable(stored: Baseline, now: dict[str, Any], shift: float, where: Path) -> None:
    """Refuse a baseline of something else, or one with too wide an interval.

    Raises:
        NothingToCompareError: names the first difference, or the time to measure for.
    """
    for name, value in now.items():
        if getattr(stored, name) != value:
            raise NothingToCompareError(
                f"the baseline was measured with {name} {getattr(stored, name)!r}, not {value!r}",
                where=str(where),
                remedy="Measure it again with `specplan check baseline`.",
            )
    if stored.half_width > shift / 4.0:
        longer = (4.0 * stored.half_width / shift) ** 2
        raise NothingToCompareError(
            f"the baseline is known to +-{stored.half_width:.1%} only, a slow-down of {shift:.1%} "
            f"needs +-{shift / 4.0:.1%}",
            where=str(where),
            remedy=f"Measure it about {longer:.1f} times as long (--seconds).",
        )


def _half_width(ratios: dict[int, list[float]], middles: tuple[float, ...]) -> float:
    """90 % half width of the middle of all groups, from the scatter within groups.

    The standard error of a median of n normal numbers is 1.2533 times that of their mean.
    """
    deviations = [abs(x - middles[group]) for group, values in ratios.items() for x in values]
    free = max(len(deviations) - len(middles), 1)
    spread = 1.4826 * float(np.median([x for x in deviations if x > 0.0] or [0.0]))
    return HALF_WIDTH_90 * 1.2533 * spread / float(np.sqrt(free))
