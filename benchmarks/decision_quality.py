"""Score decisions on a grid of measured settings: what is lost against the best of each group.

    python benchmarks/decision_quality.py --grid FILE --json [--configs DIR] [--device h200]
    python benchmarks/decision_quality.py --grid FILE --configs DIR --fit

A decision knows the device, the baseline without speculation, the one setting (3,1,4), and the
target's shape where a config of its name lies in DIR; it chooses among the settings of the group
and no speculation. All that is calibrated are the constants of `decisions/law.py`, the same for all
models; `--fit` fits them to the grid and rewrites `decisions/constants.json`. A target that was in
that fit is decided by constants that were fitted without any of its groups, and without those of
other targets of its shape; every other target by those of the whole fit. See docs/decisions.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from decisions.configs import read_shapes, shape_of
from decisions.grid import GIVEN, Group, Measured, Setting, read_groups
from decisions.law import Constants, Given, predict
from decisions.noise import estimate_noise

from specplan.ir.errors import SpecplanError
from specplan.ir.files import write_json_atomic

CONSTANTS = Path(__file__).parent / "decisions" / "constants.json"
PLAIN = "no speculation"
LONGEST = "longest accept length"


@dataclass(frozen=True)
class Decided:
    """A group, what was predicted of it, and what was chosen (None: no speculation)."""

    group: Group
    predicted: Mapping[Setting, Measured]
    choice: Setting | None
    left_out: bool

    @property
    def regret(self) -> float:
        """Part of the best speed of the group that the choice loses."""
        return regret(self.group, self.choice)

    @property
    def errors(self) -> dict[Setting, float]:
        """Predicted over measured speed, less 1, of the settings that were not told."""
        runs = self.group.runs
        return {s: self.predicted[s].speed / runs[s].speed - 1.0 for s in runs if s != GIVEN}


def regret(group: Group, choice: Setting | None) -> float:
    """Part of the best speed of the group that a choice loses."""
    best = max(group.baseline, *(run.speed for run in group.runs.values()))
    return 1.0 - (group.baseline if choice is None else group.runs[choice].speed) / best


def decide(group: Group, given: Given, constants: Constants) -> tuple[Any, Setting | None]:
    """Predictions of all settings, and the choice; ties go to the one that drafts less."""
    predicted = predict(given, group.runs, constants)
    options: list[tuple[float, int, Setting | None]] = [(given.baseline, 0, None)]
    options += [(run.speed, -setting.drafted, setting) for setting, run in predicted.items()]
    return predicted, max(options, key=lambda option: option[:2])[2]


def given_of(group: Group, device: str, shapes: Mapping[str, Any]) -> Given:
    """The part of a group that decisions may know."""
    shape = shape_of(group.target, dict(shapes))
    return Given(device, group.batch, group.baseline, group.runs[GIVEN], shape)


def decide_all(groups: Sequence[Group], givens: Sequence[Given]) -> list[Decided]:
    """Every group by constants that have not seen its target."""
    shipped = json.loads(CONSTANTS.read_text(encoding="utf-8"))
    decisions = []
    for group, given in zip(groups, givens, strict=True):
        left_out = group.target in shipped["without"]
        values = shipped["without"][group.target] if left_out else shipped["constants"]
        predicted, choice = decide(group, given, Constants(**values))
        decisions.append(Decided(group, predicted, choice, left_out))
    return decisions


def fit(groups: Sequence[Group], givens: Sequence[Given], source: str) -> dict[str, Any]:
    """The document of `constants.json`: fits to all groups, and without each target's."""
    from decisions.fit import calibrate

    cases = list(zip(groups, givens, strict=True))
    shapes = {group.target: given.shape for group, given in cases}

    def others(target: str) -> list[tuple[Group, Given]]:
        alike = {name for name, shape in shapes.items() if shape and shape is shapes[target]}
        return [case for case in cases if case[0].target not in {target, *alike}]

    without = {target: asdict(calibrate(others(target))) for target in sorted(shapes)}
    return {
        "about": "fitted by benchmarks/decision_quality.py --fit; meanings in decisions/law.py; "
        "`without` a target: fitted to the groups of targets of other shapes",
        "grid": source,
        "groups": len(groups),
        "constants": asdict(calibrate(cases)),
        "without": without,
    }


def policies(groups: Sequence[Group]) -> dict[str, dict[str, float]]:
    """Regret of each constant setting that all groups have, of none, and of the longest length."""
    common = set.intersection(*(set(group.runs) for group in groups))
    losses = {str(s): _loss([regret(group, s) for group in groups]) for s in sorted(common)}
    losses[PLAIN] = _loss([regret(group, None) for group in groups])
    losses[LONGEST] = _loss([regret(group, _longest(group)) for group in groups])
    return losses


def report(decided: Sequence[Decided]) -> dict[str, Any]:
    """The JSON document; all errors and regrets are fractions."""
    groups = [item.group for item in decided]
    regrets = np.array([item.regret for item in decided])
    errors: dict[str, list[float]] = {}
    for item in decided:
        for setting, error in item.errors.items():
            errors.setdefault(str(setting), []).append(error)
    every = [abs(error) for part in errors.values() for error in part]
    noise = estimate_noise(groups)
    return {
        "groups": len(groups),
        "mean_regret": float(regrets.mean()),
        "worst_regret": float(regrets.max()),
        "p95_regret": float(np.quantile(regrets, 0.95)),
        "best_chosen": float((regrets <= 0.0).mean()),
        "mape": float(np.mean(every)) if every else 0.0,
        "policies": policies(groups),
        "mape_by_setting": {name: float(np.abs(part).mean()) for name, part in errors.items()},
        "bias_by_setting": {name: float(np.mean(part)) for name, part in errors.items()},
        "noise": None if noise is None else asdict(noise),
        "targets_left_out_of_the_fit": sorted({i.group.target for i in decided if i.left_out}),
        "decisions": [
            {
                "group": item.group.words,
                "choice": str(item.choice or PLAIN),
                "regret": item.regret,
                "predicted": {str(s): run.speed for s, run in item.predicted.items()},
            }
            for item in decided
        ],
    }


def _longest(group: Group) -> Setting:
    """The setting of the longest measured length."""
    return max(group.runs, key=lambda setting: group.runs[setting].length)


def _loss(regrets: Sequence[float]) -> dict[str, float]:
    return {"mean_regret": float(np.mean(regrets)), "worst_regret": float(np.max(regrets))}


def _print(document: Mapping[str, Any]) -> None:
    print(f"{'policy':>24} {'mean':>7} {'worst':>7}")
    for name, loss in [("ours", document), *document["policies"].items()]:
        print(f"{name:>24} {loss['mean_regret']:7.2%} {loss['worst_regret']:7.2%}")
    print(
        f"{document['groups']} groups; ours: 95th percentile {document['p95_regret']:.2%}, best "
        f"chosen in {document['best_chosen']:.0%}, speeds within {document['mape']:.1%}"
    )
    if noise := document["noise"]:
        print(
            f"single runs scatter by at most {noise['run']:.2%}; measuring all settings once more "
            f"would lose {noise['mean_regret']:.2%}"
        )
    for item in sorted(document["decisions"], key=lambda entry: -entry["regret"])[:10]:
        print(f"  {item['regret']:6.2%} {item['choice']:>9} {item['group']}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--grid", type=Path, required=True)
    parser.add_argument("--configs", type=Path, help="folder of <name>/config.json")
    parser.add_argument("--device", default="h200")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--fit", action="store_true", help="rewrite the shipped constants")
    options = parser.parse_args()
    try:
        groups = read_groups(options.grid)
        shapes = read_shapes(options.configs)
        givens = [given_of(group, options.device, shapes) for group in groups]
        if options.fit:
            write_json_atomic(CONSTANTS, fit(groups, givens, options.grid.name))
        document = report(decide_all(groups, givens))
    except SpecplanError as error:
        print(error, file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(document, indent=1))
    else:
        _print(document)
    return 0


if __name__ == "__main__":
    sys.exit(main())
