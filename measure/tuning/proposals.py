"""Settings that the search did not try, proposed during a race."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import numpy as np

from specplan.measure.tuning.contenders import Contenders, Load
from specplan.measure.tuning.elimination import DOUBT, Standing, chance_below
from specplan.planner import Candidate

PROPOSING = (3, 6, 12, 24, 48)
"""Numbers of turns of a load after which settings that the search did not try are proposed."""
ASKS, NEW = 24, 2
"""Points proposed in each open family, and new contenders at a time."""


def propose(
    contenders: Contenders, keys: Sequence[str], standing: Standing, load: Load, seed: str
) -> list[str]:
    """New contenders at a load: settings of families that are still in the race.

    The score of a setting is its estimate, corrected by the mean error of its family's measured
    plans relative to the leader; it takes part if it may yet beat the leader.

    Args:
        contenders: the new ones are added to them.
        keys: contenders so far.
        standing: of these.
        load: batch and prompt length.
        seed: the same one proposes the same settings.
    """
    alive = [contenders[key] for key, on in zip(keys, standing.alive, strict=True) if on]
    families = dict.fromkeys((c.method, c.family) for c in alive if contenders.open.point(c))
    proposals: list[tuple[float, Candidate]] = []
    for method, family in families:
        off = _off(contenders, keys, standing, load, family)
        score = _scoring(contenders, keys[standing.leader], load, off)
        new = contenders.open.propose(
            method,
            family,
            _scored(contenders, keys, standing, load, family, off),
            score,
            asks=ASKS,
            seed=zlib.crc32(f"{seed} {method} {family}".encode()),
        )
        proposals += [(score(one) or 0.0, one) for one in new]
    best = sorted(proposals, key=lambda pair: (pair[0], pair[1].words))[:NEW]
    return [key for key in (contenders.add(one) for _, one in best) if key not in keys]


def _off(
    contenders: Contenders, keys: Sequence[str], standing: Standing, load: Load, family: str
) -> float:
    """Log of how much slower a family's plans are than estimated, relative to the leader."""
    expected = contenders.prior(keys, load).mean(axis=0)
    gaps = standing.ratio - (expected - expected[standing.leader])
    ran = [i for i, k in enumerate(keys) if contenders[k].family == family and standing.turns[i]]
    return float(gaps[ran].mean()) if ran else 0.0


def _scored(
    contenders: Contenders,
    keys: Sequence[str],
    standing: Standing,
    load: Load,
    family: str,
    off: float,
) -> list[tuple[dict[str, int], float]]:
    """Points of a family, with the logarithm of their time over the leader's."""
    ran = {key: float(standing.ratio[i]) for i, key in enumerate(keys) if standing.turns[i]}
    leader = np.log(contenders.seconds(keys[standing.leader], load))
    points = []
    for key in dict.fromkeys([*contenders.tried, *keys]):
        if contenders[key].family == family:
            priced = float(np.log(contenders.seconds(key, load)) - leader) + off
            points.append((contenders.open.point(contenders[key]), ran.get(key, priced)))
    return sorted(points, key=lambda pair: sorted(pair[0].items()))


def _scoring(
    contenders: Contenders, leader: str, load: Load, off: float
) -> Callable[[Candidate], float | None]:
    """A score of new candidates; None if one cannot run or is unlikely to beat the leader."""

    def score(new: Candidate) -> float | None:
        if new.unsupported is not None or not contenders.keeps(new, load):
            return None
        gaps = contenders.gaps(leader, new, load) + off
        return float(gaps.mean()) if chance_below(gaps) >= DOUBT else None

    return score
