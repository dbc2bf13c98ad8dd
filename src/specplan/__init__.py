"""specplan: a compiler for LLM decoding.

``specplan.optimize(problem)`` finds the decoding plan that is fastest for one target model, device
and workload. Names load on first use, so importing the package is quick and loads no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specplan.api import (
        bench,
        explain,
        generate,
        list_devices,
        list_methods,
        optimize,
        problem_schema,
        profile_acceptance,
        profile_device,
    )
    from specplan.backends.bundle import Bundle, load_bundle
    from specplan.bundles.decoder import Decoder, ImagePrompt, Settings
    from specplan.checks.acceptance import check_acceptance
    from specplan.checks.plans import check_plans
    from specplan.checks.speed import check_speed
    from specplan.cost_models.formulas.formula import list_formulas
    from specplan.emitting.projecting import emit
    from specplan.importing import import_acceptance
    from specplan.ir import Plan, Round, parse_plan, print_plan, verify_plan
    from specplan.ir.errors import (
        InfeasibleError,
        MissingCapabilityError,
        NothingToCompareError,
        RegressionError,
        SpecplanError,
        UsageError,
    )
    from specplan.ir.tables.acceptance import list_rules
    from specplan.notebook.problem import Problem, load_problem
    from specplan.notebook.sweeps import Comparison, Sweep, compare
    from specplan.probing.tuning import EngineCommands, tune_engine
    from specplan.quality.tables import profile_gates, profile_token_exits
    from specplan.result import Result
    from specplan.training.exits import train_exits
    from specplan.training.train import (
        hand_over_drafter,
        pilot_drafters,
        train,
        train_drafter,
    )
    from specplan.tuning import Tuned, tune

_HOMES = {
    "api": (
        "bench",
        "explain",
        "generate",
        "list_devices",
        "list_methods",
        "optimize",
        "problem_schema",
        "profile_acceptance",
        "profile_device",
    ),
    "backends.bundle": ("Bundle", "load_bundle"),
    "checks.acceptance": ("check_acceptance",),
    "checks.plans": ("check_plans",),
    "checks.speed": ("check_speed",),
    "bundles.compiling": ("build_cubins", "compile_bundle", "lower_for_tensorrt"),
    "cost_models.formulas.formula": ("list_formulas", "list_laws"),
    "bundles.decoder": ("Decoder", "ImagePrompt", "Settings"),
    "emitting.projecting": ("emit",),
    "importing": ("import_acceptance", "import_device"),
    "ir": ("Plan", "Round", "parse_plan", "print_plan", "verify_plan"),
    "ir.tables.acceptance": ("list_rules",),
    "ir.errors": (
        "InfeasibleError",
        "MissingCapabilityError",
        "NothingToCompareError",
        "RegressionError",
        "SpecplanError",
        "UsageError",
    ),
    "notebook.problem": ("Problem", "load_problem"),
    "notebook.sweeps": ("Comparison", "Sweep", "compare"),
    "probing.tuning": ("EngineCommands", "tune_engine"),
    "quality.tables": ("profile_gates", "profile_token_exits"),
    "result": ("Result",),
    "training.exits": ("train_exits",),
    "training.train": ("hand_over_drafter", "pilot_drafters", "train", "train_drafter"),
    "tuning": ("Tuned", "tune"),
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Bundle",
    "Comparison",
    "Decoder",
    "EngineCommands",
    "ImagePrompt",
    "InfeasibleError",
    "MissingCapabilityError",
    "NothingToCompareError",
    "Plan",
    "Problem",
    "RegressionError",
    "Result",
    "Round",
    "Settings",
    "SpecplanError",
    "Sweep",
    "Tuned",
    "UsageError",
    "__version__",
    "bench",
    "build_cubins",
    "check_acceptance",
    "check_plans",
    "check_speed",
    "compare",
    "compile_bundle",
    "emit",
    "explain",
    "generate",
    "hand_over_drafter",
    "import_acceptance",
    "import_device",
    "list_devices",
    "list_formulas",
    "list_methods",
    "list_rules",
    "load_bundle",
    "load_problem",
    "lower_for_tensorrt",
    "optimize",
    "parse_plan",
    "pilot_drafters",
    "print_plan",
    "problem_schema",
    "profile_acceptance",
    "profile_device",
    "profile_gates",
    "profile_token_exits",
    "train",
    "train_drafter",
    "train_exits",
    "tune",
    "tune_engine",
    "verify_plan",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its home module on first use (PEP 562)."""
    if name == "__version__":
        from importlib.metadata import version

        return version("specplan")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'specplan' has no attribute {name!r}")
    value = getattr(import_module(f"specplan.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Every public name, loaded or not, and nothing else."""
    return sorted(__all__)
