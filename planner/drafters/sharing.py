"""How many of the devices that share the target share each layer of a draft model.

Each layer that devices share ends with exchanges between them, which take a small model longer than
what sharing saves: with OPT-125M as the drafter of OPT-30B on four A100, 0.35 s on one device and
1.39 s on four (vLLM, pull request 4840). Without them every device runs a copy of the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from specplan.cost_models.cost import Quantity
from specplan.cost_models.devices.device import device_count
from specplan.cost_models.models.model_shape import ModelShape
from specplan.planner.facts import ProblemFacts
from specplan.planner.problem.setting_checks import known_engines


def with_copies(facts: ProblemFacts) -> ProblemFacts | None:
    """The facts with a copy of each draft model on every device, where that may be faster.

    The problem of the facts says so. None where there is one device, where the problem states how
    many share each draft model, where an engine runs the plan (none runs copies), and where no
    pass of a copy is faster than the pass that all devices share.

    Raises:
        UnpricedError: the device cannot say how long a pass takes.
    """
    problem, names = facts.problem, facts.drafts
    if device_count(problem.device) == 1 or problem.backend.partition("@")[0] in known_engines():
        return None
    open_ones = {
        draft.name
        for draft in problem.models.drafts
        if draft.name in names and draft.tensor_parallel is None and draft.placement is None
    }
    faster = {name for name in open_ones if _may_be_faster(facts, facts.drafts[name])}
    if not faster:
        return None
    drafts = tuple(
        draft.model_copy(update={"tensor_parallel": 1}) if draft.name in faster else draft
        for draft in problem.models.drafts
    )
    models = problem.models.model_copy(update={"drafts": drafts})
    shapes = {
        name: replace(shape, shared_by=1) if name in faster else shape
        for name, shape in facts.drafts.items()
    }
    return replace(facts, problem=problem.model_copy(update={"models": models}), drafts=shapes)


def _may_be_faster(facts: ProblemFacts, shape: ModelShape) -> bool:
    """Whether a copy takes less than all devices together, at one token or a prompt of any load."""
    batch: Quantity = np.array(facts.batch_sizes, dtype=np.float64)[:, None]
    context: Quantity = np.array(facts.contexts)
    copy = replace(shape, shared_by=1)
    for tokens, cached in ((1, context), (context, 0)):
        alone, together = (
            facts.device.forward_seconds(one, batch, tokens, cached, 1).median
            for one in (copy, shape)
        )
        if np.any(np.asarray(alone) < np.asarray(together)):
            return True
    return False


def sharing_words(facts: ProblemFacts) -> Mapping[str, str]:
    """How draft models are run that not all devices share, by name."""
    devices = device_count(facts.problem.device)
    return {
        name: f'"{name}" runs on {shape.shared_by} of the {devices} devices, and in copies on the '
        "others"
        for name, shape in facts.drafts.items()
        if shape.sharing(devices) < devices
    }
