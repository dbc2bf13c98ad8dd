"""What a compiled round takes beside its models' forwards, and its calls into compiled code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
import transformers

from specplan.backends.static.executable import StaticExecutable
from specplan.backends.static.packages import Packages, RoundBackend
from specplan.backends.static.session import Program
from specplan.ir.ops import Forward
from specplan.ir.plan import Plan, walk_plan
from specplan.measure.workbench import Workbench
from specplan.runtime.generate import generate
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.loading import load_model
from specplan.runtime.requests import Request

HEADS = 2
"""Of models with next to no width."""


class CountedCalls:
    """An executable's programs, with their calls counted."""

    def __init__(self) -> None:
        self.calls = 0

    def around(self, compile_round: Callable[..., Program]) -> Callable[..., Program]:
        """The same compiler, whose programs are watched."""

        def compiled(*shape: Any) -> Program:
            program = compile_round(*shape)

            def watched(*tensors: Any) -> Any:
                self.calls += 1
                return program(*tensors)

            return watched

        return compiled


def hollow_models(bench: Workbench, plan: Plan, work: Path) -> dict[str, CausalModel]:
    """Models like a plan's whose forwards cost next to nothing.

    Args:
        bench: the problem's models.
        plan: what runs them; the blocks that it names stay.
        work: folder to keep them in.
    """
    named = any(isinstance(op, Forward) and (op.layers or op.skip) for op in walk_plan(plan))
    models = bench.problem.models.by_role
    hollow = {}
    for role in plan.models_run:
        config = transformers.AutoConfig.from_pretrained(models[role].path)
        slight = {"hidden_size": 2 * HEADS, "intermediate_size": 2 * HEADS, "head_dim": 2}
        heads = {"num_attention_heads": HEADS, "num_key_value_heads": HEADS}
        blocks = {} if named else {"num_hidden_layers": 1}
        config.update(slight | heads | blocks)
        torch.manual_seed(0)
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(work / role)
        hollow[role] = load_model(work / role, dtype="float32")
    return hollow


def timed_rounds(
    backend: RoundBackend,
    plan: Plan,
    models: Mapping[str, CausalModel],
    folder: Path,
    requests: Sequence[Request],
) -> tuple[float, float]:
    """Calls and seconds per round of a compiled plan; the median over requests."""
    counted = CountedCalls()
    packages = Packages(backend, models, folder)
    compiled = StaticExecutable(plan, models, counted.around(packages))
    generate(compiled, requests[:1])  # compiles, allocates and warms caches
    counted.calls = 0
    runs = [generate(compiled, [request]) for request in requests]
    calls = counted.calls / sum(run.rounds for run in runs)
    return calls, median(run.seconds_per_round for run in runs)


def round_overhead(
    backend: RoundBackend,
    bench: Workbench,
    plan: Plan,
    folder: Path,
    requests: Sequence[Request],
) -> dict[str, float]:
    """Calls per round, its seconds, and the part of it that is no forward."""
    calls, seconds = timed_rounds(backend, plan, bench.models, folder, requests)
    hollow = folder.with_name(f"{folder.name}-hollow")
    models = hollow_models(bench, plan, hollow / "models")
    _, beside = timed_rounds(backend, plan, models, hollow, requests)
    return {
        "calls_per_round": calls,
        "seconds_per_round": seconds,
        "overhead_fraction": beside / seconds,
    }
