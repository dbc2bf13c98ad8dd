"""Models for plans: a random target, drafters, and heads for the roles that plans name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specplan.ir.plan import Plan, TrackState, walk_plan
from tests.backends.oracle.toys import Head, HeadShape, Toy

VOCABULARY = 24
_FEATURE = HeadShape(combine="feature")
_JUDGE = HeadShape(combine="feature", score=True)
_BLOCK = HeadShape(
    combine="either", features=3, layers=1, levels=7, by_slots=True, optional=True
)  # fmt: skip

HEADS: Mapping[str, HeadShape] = {
    "adapter": HeadShape(combine="feature", layers=1),
    "amphista/heads": HeadShape(combine="feature", levels=4),
    "augment": HeadShape(combine="feature", layers=1),
    "block": _BLOCK,
    "chimera/heads": HeadShape(tokens=3, layers=1, levels=4),
    "clover/step": HeadShape(combine="mlp", stages=3),
    "depth_adaptive/exit": _JUDGE,
    "diffusion": HeadShape(layers=1, levels=8, by_slots=True, optional=True),
    "early": _FEATURE,
    "exit": HeadShape(combine="feature", layers=1),
    "glide_cape/draft": HeadShape(combine="token", layers=1, reads="top"),
    "head": HeadShape(layers=1),
    "heads": HeadShape(combine="feature", levels=7),
    "hydra/heads": HeadShape(combine="stack", stages=3),
    "judge": _JUDGE,
    "markov": HeadShape(),
    "mlp": HeadShape(combine="mlp", stages=3),
    "mtp_parallel/heads": HeadShape(layers=1, levels=3),
    "neighbours": _FEATURE,
    "parallelspec/head": HeadShape(layers=1, levels=4, by_slots=True),
    "policy": _JUDGE,
    "prefix": HeadShape(combine="feature", layers=1),
    "reader": HeadShape(combine="token", layers=1, reads="top"),
    "recurrent_heads/head": HeadShape(combine="rnn"),
    "rnn": HeadShape(combine="rnn"),
    "table": HeadShape(combine="token", score=True),
    "tandem/small": HeadShape(combine="token", layers=1, reads="top"),
}
"""By role, or by plan and role."""
RECURRENT = {"mamba_in_the_llama": (1, 3)}
"""Layers of the target that keep a state instead of keys and values, by plan."""
SLOTS_ENTER = {"hidden_transfer": 2, "streaming": 2}
"""The layer of the target at which slots enter, by plan."""


def models_of(plan: Plan) -> dict[str, Any]:
    """A stack for every role of a plan."""
    target = Toy(
        layers_of(plan, "target")
        or max(4, *(layers_of(plan, model.name) for model in plan.models)),
        VOCABULARY,
        recurrent=RECURRENT.get(plan.name, ()),
        slots_enter=SLOTS_ENTER.get(plan.name, 0),
    )
    models: dict[str, Any] = {"target": target}
    for seed, role in enumerate(sorted({*plan.models_run, *(m.name for m in plan.models)})):
        shape = HEADS.get(f"{plan.name}/{role}") or HEADS.get(role)
        if role == "target":
            continue
        if shape is not None:
            models[role] = Head(shape, target, seed)
        elif role in ("nar", "nat"):
            models[role] = Toy(2, VOCABULARY, 5)
        else:
            half = max(2, target.num_layers // 2, layers_of(plan, role))
            models[role] = Toy(half, VOCABULARY, 20 + seed, like=target, noise=0.25)
    return models


def layers_of(plan: Plan, role: str) -> int:
    """As many layers of a model as the plan names."""
    spans = [s for op in walk_plan(plan) if op.runs == role for s in getattr(op, "layers", ())]
    tracked = [s.layer for s in plan.states if isinstance(s, TrackState) and s.model == role]
    numbers = [layer for layer in tracked if isinstance(layer, int)]
    return max([0, *(span.stop for span in spans), *numbers])
