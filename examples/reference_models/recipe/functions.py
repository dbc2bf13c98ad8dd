"""Both models learn on, with functions as documents of their own.

Modules show a function's start only in the middle of a text. Here it begins a document that ends
where the function ends, which is what the prompts of the task ``functions`` ask for. The weights
that a model starts from are put aside under the working folder, so that a killed run goes on from
the same ones.
"""

from __future__ import annotations

import shutil

from safetensors.torch import load_file
from torch import Tensor

from recipe import data, draft, weights
from recipe.corpus import hash_file
from recipe.nets import Shape
from recipe.stages import Plan, load_data, record, run_of
from recipe.target import TargetTask


def _start(plan: Plan, name: str, shape: Shape) -> tuple[dict[str, Tensor], str]:
    """The weights with which this stage began, and what names them."""
    path = plan.work / f"{name}_before_functions.safetensors"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(plan.out / name / "model.safetensors", path)
    return weights.from_hf_state(load_file(path), shape.layers), f"from {hash_file(path)}"


def _order(plan: Plan, seed: int, steps: int) -> data.WindowOrder:
    _, streams = load_data(plan)
    return data.WindowOrder(streams, plan.length, seed, steps * plan.rows, data.FUNCTIONS_MIX)


def target_stage(plan: Plan) -> None:
    """The target learns on and is exported."""
    masters, basis = _start(plan, "target", plan.target)
    order = _order(plan, plan.seed + 2, plan.target_functions_steps)

    def write(now: dict[str, Tensor]) -> None:
        weights.export(now, plan.target, plan.out / "target")

    task = TargetTask(plan.target, masters, order, plan.rows, plan.length, plan.seed, write)
    run = run_of(plan, "target_functions", plan.target_functions_steps, basis)
    record(plan, "target_functions", run.train(task))


def draft_stage(plan: Plan) -> None:
    """The draft learns on, towards the target as it now is, and is exported."""
    masters, basis = _start(plan, "draft", plan.draft)
    order = _order(plan, plan.seed + 3, plan.draft_functions_steps)
    task, tutor = draft.task(plan, order, lambda _: masters, text_share=0.0)
    run = run_of(plan, "draft_functions", plan.draft_functions_steps, f"{basis} {tutor}")
    record(plan, "draft_functions", run.train(task))
