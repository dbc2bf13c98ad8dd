"""Expand the most probable nodes of each layer, then keep the best of all that was drafted.

Source: EAGLE-2 (arXiv 2406.16858), sections 4.1 and 4.2; stopping early by the mass of the beam:
Dynamic Depth Decoding (arXiv 2409.00142).
"""

from __future__ import annotations

from dataclasses import dataclass

from specplan.planner.trees.drafted import Children, Drafted, Scored, best_of, offspring, tree_of


@dataclass(frozen=True)
class BeamGrowth:
    """Expand the best nodes of a layer into their best children, and rerank at the end.

    Attributes:
        beam: nodes of a layer that are expanded, and children of each.
        layers: most draft forwards, that of the root included.
        nodes: most verified nodes.
        least_mass: after a layer whose beam, its `beam` best nodes, is reached with less
            probability than this, no other is drafted; 0 for a fixed depth.
        checked: depths after which the mass is looked at, None for all: looking stalls a device.
    """

    beam: int
    layers: int
    nodes: int
    least_mass: float = 0.0
    checked: tuple[int, ...] | None = None

    def __call__(self, law: Children) -> Drafted:
        """What is drafted in a context."""
        beam: list[Scored] = [(1.0, ())]
        pool: list[Scored] = []
        widths: list[int] = []
        while beam and len(widths) < self.layers:
            widths.append(len(beam))
            layer = list(offspring(beam, law, self.beam))
            pool.extend(layer)
            beam = best_of(layer, self.beam)
            looked = self.checked is None or len(widths) in self.checked
            if looked and sum(reached for reached, _ in beam) < self.least_mass:
                break
        return Drafted(tree_of(best_of(pool, self.nodes)), tuple(widths), len(pool))


def mass_threshold(draft_seconds: float, gain: float, seconds_per_token: float) -> float:
    """The mass of a beam below which one more layer is not worth its draft forward.

    A layer is drafted iff mass * gain * lambda > t_d: it adds `gain` tokens if the accepted path
    is still inside the beam, and a token is worth the seconds that it takes on the whole.

    Args:
        draft_seconds: t_d, of one draft forward over the beam.
        gain: tokens that one more layer adds, given that the accepted path is inside the beam.
        seconds_per_token: lambda, of the whole policy.
    """
    return draft_seconds / (gain * seconds_per_token)
