"""Which of many settings are shown to keep a limit, with one risk for all of them together.

Learn then Test (Angelopoulos et al. 2021, arXiv 2110.01052): settings are tested along sequences,
each from its safest setting to its riskiest, and a sequence ends at the first that is not rejected.
The sequences share the risk; one that was rejected to its end passes its share on to the others
(Bretz et al. 2009, a graphical approach to sequentially rejective procedures). With one sequence
this is fixed-sequence testing, with sequences of one setting each it is Bonferroni's in Holm's
form. The order must not depend on the losses that are tested.
"""

from __future__ import annotations

from collections.abc import Sequence


def shown_to_keep(sequences: Sequence[Sequence[float]], risk: float) -> list[int]:
    """How many settings of each sequence are shown to keep the limit, from its first one on.

    Args:
        sequences: p-values of the hypothesis that a setting exceeds the limit, the safest setting
            of each sequence first.
        risk: probability that any setting is wrongly shown to keep the limit, in (0, 1).

    Returns:
        One count per sequence.
    """
    counts = [0] * len(sequences)
    left = {place for place, values in enumerate(sequences) if values}
    while left:
        share = risk / len(left)
        ended = set()
        for place in left:
            values = sequences[place]
            while counts[place] < len(values) and values[counts[place]] <= share:
                counts[place] += 1
            if counts[place] == len(values):
                ended.add(place)
        if not ended:
            break
        left -= ended
    return counts
