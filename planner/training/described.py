"""Facts of a problem with a drafter that is not trained yet, and the config.json of one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from specplan.cost_models.acceptance.drafters import Drafter, Model
from specplan.cost_models.acceptance.priors.fit import prior_profile
from specplan.cost_models.acceptance.priors.tables import task_of
from specplan.cost_models.models.drafter_shapes import described_drafter
from specplan.cost_models.models.files.safetensors_headers import read_config
from specplan.cost_models.models.files.stored_model import Chosen
from specplan.cost_models.models.model_shape import ModelShape
from specplan.cost_models.models.new_heads import kangaroo_config
from specplan.ir.errors import UsageError
from specplan.planner.drafters.profiles import acceptance_key
from specplan.planner.facts import ProblemFacts
from specplan.planner.measured.plans import MeasuredPlans
from specplan.planner.problem.schema import Problem
from specplan.planner.training.families import FAMILIES, Family, HeadSize

EXITS = {"kangaroo": False, "exit_layer": True}
"""Adapters on the target's first layers, of which no acceptance is published by position, and
whether they have an MLP: Kangaroo's (arXiv 2404.18911) and EESD's (arXiv 2406.03853)."""
MODULES = "mtp"
"""The family that is a part of the target: its source, and who drafts in its plans."""


def with_untrained(
    facts: ProblemFacts, family: Family, size: HeadSize
) -> tuple[ProblemFacts, ModelShape, Drafter]:
    """The facts with one drafter that is not trained yet and its published acceptance.

    Returns:
        The facts, the drafter's shape, and who drafts in its plans.

    Raises:
        UsageError: the target has no such sizes.
        MissingCapabilityError: such a drafter has no price.
    """
    problem = facts.problem.model_copy(
        update={
            "models": facts.problem.models.model_copy(update={"drafts": ()}),
            "sources": (MODULES,) if family.config is None else (),
            "methods": None,
            "acceptance": {},
        }
    )
    bare = replace(
        facts, problem=problem, drafts={}, drafters={}, profiles={}, measured=MeasuredPlans(),
        own_rounds={},
    )  # fmt: skip
    drafter = Model(family.name)
    if family.config is None:
        target = replace(facts.target, drafter_layers=facts.target.layers[-1:])
        known, shape = replace(bare, target=target), target.drafter_modules[0]
    else:
        folder = facts.problem.models.target.path
        config = family.config(read_config(folder), str(folder), size)
        formats = facts.problem.models.target
        chosen = Chosen(formats.dtype, cache=formats.kv_format)
        head = described_drafter(config, facts.target, family.name, chosen)
        known, shape = replace(bare, drafters={family.name: head}), head.shape
    key = acceptance_key(problem, known.shapes, drafter)
    prior = prior_profile(family.name, task_of(problem.workload.task), key)
    return replace(known, profiles={drafter: prior}), shape, drafter


def config_of(
    problem: Problem, name: str, layers: int, width: int, vocabulary: int
) -> dict[str, Any]:
    """The config.json that training a drafter of a family and size starts from.

    Raises:
        UsageError: the target has no such sizes, or the drafter is a part of the target.
    """
    family, folder = FAMILIES[name], problem.models.target.path
    if family.config is None:
        raise UsageError(f"{family.words}: a part of the target has no config.json of its own")
    target = read_config(folder)
    hidden = int(target.get("text_config", target)["hidden_size"])
    halves = (hidden // width).bit_length() - 1
    return dict(family.config(target, str(folder), HeadSize(layers, vocabulary, halves)))


def published_config(problem: Problem, name: str) -> dict[str, Any]:
    """The config.json of a drafter of a family in its published size.

    Raises:
        UsageError: there is no such family, the target has no such sizes, or the drafter is a part
            of the target.
    """
    family, folder = FAMILIES.get(name), problem.models.target.path
    if name in EXITS:
        return kangaroo_config(read_config(folder), str(folder), mlp=EXITS[name])
    if family is None or family.config is None:
        able = [*(one.name for one in FAMILIES.values() if one.config is not None), *EXITS]
        raise UsageError(
            f'no head of its own is called "{name}"',
            where="drafter",
            remedy=f"Write one of {', '.join(able)}.",
        )
    target = read_config(folder)
    size = next(family.sizes(ModelShape.from_config(target)))
    return dict(family.config(target, str(folder), size))
