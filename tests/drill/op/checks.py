"""What is asked of specplan with an op more; run as a script where the op is in place.

Arguments: a folder of plan texts and of the checkpoints `target` and `draft`, and the names of
backends. Prints JSON, by name of the text.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from specplan.bundles.decoder import PlanDecoder, Settings
from specplan.cost_models.rounds.demands import round_demands
from specplan.ir.plan import Plan
from specplan.ir.rules.verify import verify_plan
from specplan.ir.text.json_form import plan_from_json, plan_to_json
from specplan.ir.text.parser import parse_plan
from specplan.ir.text.printer import print_plan


def checked(path: Path, backends: list[str]) -> dict[str, Any]:
    """Read, check and price a plan, and run it on each backend."""
    plan = parse_plan(path.read_text())
    read_again = plan_from_json(json.loads(json.dumps(plan_to_json(plan))))
    demands = round_demands(plan, plan.rounds[0]).steps
    return {
        "broken": [str(broken) for broken in verify_plan(plan)],
        "read_again": parse_plan(print_plan(plan)) == plan == read_again,
        "asked": [getattr(demand, "name", "forward") for demand in demands],
        "completions": {name: _completions(plan, name, path.parent) for name in backends},
    }


def _completions(plan: Plan, backend: str, home: Path) -> list[tuple[Any, ...]]:
    """Tokens and rounds of some prompts."""
    decoder = PlanDecoder(plan, {name: home / name for name in plan.models_run}, backend)
    generation = decoder.generate(["abcabcab", "hgfedcba"], Settings(max_new_tokens=24))
    return [(completion.tokens, completion.rounds) for completion in generation.completions]


if __name__ == "__main__":
    texts = Path(sys.argv[1]).glob("*.txt")
    print(json.dumps({path.stem: checked(path, sys.argv[2:]) for path in texts}))
