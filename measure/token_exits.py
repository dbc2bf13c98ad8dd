"""After how many layers the next token of each token is settled, along the target's own texts."""

from __future__ import annotations

import numpy as np
import torch

from specplan.measure.acceptance.continuations import traced_texts
from specplan.measure.acceptance.exit_traces import layer_traces
from specplan.measure.progress import Progress, silent
from specplan.measure.workbench import PROFILE, Workbench
from specplan.planner import Shares


def measure_token_exits(
    bench: Workbench, *, limit: int | None = None, progress: Progress = silent
) -> Shares:
    """Per token and layer, how often the next token is settled there, float64 `[V, layers]`.

    A place counts for the token that stands before it. It is settled after a layer if the most
    probable next token is that of all layers there and after every later layer. Shares are of one
    place more than were seen, so that a rare token is not trusted for one place.

    Args:
        bench: the problem's target and prompts.
        limit: texts that are read at most.
        progress: called after every text.
    """
    target = bench.models["target"]
    layers = range(1, target.num_layers + 1)
    settled = np.zeros((target.vocab_size, target.num_layers))
    places = np.zeros((target.vocab_size, 1))
    texts = traced_texts(bench, bench.prompts(PROFILE)[:limit], progress)
    for done, text in enumerate(texts, start=1):
        traces = layer_traces(text, layers)
        first = torch.stack([traces[layer].first for layer in layers]).numpy()
        same = first == first[-1]
        stays = np.logical_and.accumulate(same[::-1], axis=0)[::-1]
        before = text.tokens[text.start - 1 : -1]
        np.add.at(settled, before, stays.T.astype(float))
        np.add.at(places, before, 1.0)
        progress("exits by token", done, len(texts))
    return settled / (places + 1.0)
