"""JSON-schema prompts on the reference pair: valid outputs, and what a grammar costs per step.

    python benchmarks/grammar.py [--prompts 200] [--json]

Each prompt asks for a record of its own random schema: nested objects, bounded arrays,
enumerations, bounded integers and short strings, so that the schema bounds the output. Every output
is parsed and validated by `jsonschema`. Three plans decode them: no speculation, a chain of the
draft model, and the grammar's own drafts (`domino`). The cost of grammars is the processor time
inside the masks, over that of the whole decode: no clock that other programs move.
"""

from __future__ import annotations

import argparse
import json
import random
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

import jsonschema
import torch

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.eager.state.grammars import Grammars
from specplan.ir.text.parser import parse_plan
from specplan.measure.device.probes import chain_plan, plain_plan
from specplan.runtime.executable import Executable
from specplan.runtime.generate import generate
from specplan.runtime.grammar import Grammar, vocabulary_of
from specplan.runtime.models.loading import load_model
from specplan.runtime.requests import Request
from specplan.runtime.tokenizer import Tokenizer, load_tokenizer

MODELS = Path(__file__).parent.parent / "examples" / "reference_models"
NAMES = ("name", "path", "size", "count", "status", "items", "value", "key", "mode", "kind")
WORDS = ("open", "closed", "read", "write", "error", "none", "left", "right", "first", "last")
MOST_TOKENS = 320

DOMINO = """plan domino
model target
assume temperature=0.0
state @kv = cache target
state @grammar = source grammar(capacity=65536) scope=process
round decode {
  %t0 = root
  update @grammar %t0 last=1
  %c = lookup @grammar %t0 at=%t0 match=[1, 1] length=8
  %l = forward target %c cache=@kv pending=1
  %a = accept %c target=%l
  %e = emit %a
  commit @kv %e
}
"""


@dataclass
class Spent:
    """Processor seconds in masks."""

    seconds: float = 0.0


def schema(draw: random.Random, depth: int = 0) -> dict[str, Any]:
    """A random schema that bounds its texts."""
    names: list[str] = draw.sample(NAMES, draw.randint(2, 4))
    properties = {name: _value(draw, depth) for name in names}
    return {
        "type": "object",
        "properties": properties,
        "required": names,
        "additionalProperties": False,
    }


def _value(draw: random.Random, depth: int) -> dict[str, Any]:
    kinds = ["string", "integer", "enum", "boolean", *(("array", "object") if depth < 2 else ())]
    match draw.choice(kinds):
        case "string":
            return {"type": "string", "pattern": f"^[a-z_]{{1,{draw.randint(4, 10)}}}$"}
        case "integer":
            return {"type": "integer", "minimum": 0, "maximum": draw.choice((9, 255, 65535))}
        case "enum":
            return {"enum": draw.sample(WORDS, 4)}
        case "boolean":
            return {"type": "boolean"}
        case "array":
            return {"type": "array", "items": _value(draw, 2), "minItems": 1, "maxItems": 3}
    return schema(draw, depth + 1)


def timed(spent: Spent) -> None:
    """Count the processor time of every mask."""
    fill = Grammars.of_pass
    append = Grammars.append

    def counted(inner: Any) -> Any:
        def run(*arguments: Any) -> Any:
            start = process_time()
            result = inner(*arguments)
            spent.seconds += process_time() - start
            return result

        return run

    Grammars.of_pass = counted(fill)  # type: ignore[method-assign]
    Grammars.append = counted(append)  # type: ignore[method-assign]


def decoded(
    executable: Executable, tokenizer: Tokenizer, schemas: list[dict[str, Any]], spent: Spent
) -> dict[str, float]:
    """Decode one prompt of each schema, and check every output."""
    vocabulary, seconds, masks, tokens, steps = vocabulary_of(tokenizer), 0.0, 0.0, 0, 0
    for one in schemas:
        text = f"def example():\n    # a record of {', '.join(one['required'])}\n    return "
        request = Request(
            prompt_tokens=tuple(tokenizer.encode(text)),
            max_new_tokens=MOST_TOKENS,
            grammar=Grammar("json_schema", json.dumps(one), vocabulary),
        )
        spent.seconds, start = 0.0, process_time()
        (completion,) = generate(executable, [request], tokenizer=tokenizer).completions
        seconds, masks = seconds + process_time() - start, masks + spent.seconds
        jsonschema.validate(json.loads(completion.text or ""), one)
        tokens, steps = tokens + len(completion.tokens), steps + completion.rounds
    return {
        "valid": len(schemas),
        "tokens_per_step": tokens / steps,
        "seconds_per_step": seconds / steps,
        "share_of_masks": masks / seconds,
    }


def main() -> None:
    """Run, and print what was measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    tokenizer = load_tokenizer(MODELS / "target")
    models = {name: load_model(MODELS / name, dtype="float32") for name in ("target", "draft")}
    draw, spent = random.Random(0), Spent()
    schemas = [schema(draw) for _ in range(arguments.prompts)]
    timed(spent)
    plans = {
        "plain": plain_plan(greedy=True),
        "chain": chain_plan(4, greedy=True),
        "domino": parse_plan(DOMINO),
    }
    rows = {
        name: decoded(
            EagerBackend().compile(plan, {role: models[role] for role in plan.models_run}),
            tokenizer,
            schemas,
            spent,
        )
        for name, plan in plans.items()
    }
    if arguments.json:
        print(json.dumps(rows, indent=1))
        return
    for name, row in rows.items():
        print(
            f"{name:8} {row['valid']} valid, {row['tokens_per_step']:.2f} tokens per step, "
            f"{1e3 * row['seconds_per_step']:.2f} ms of processor time per step, "
            f"masks {100 * row['share_of_masks']:.1f} %"
        )


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
