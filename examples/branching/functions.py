"""A request that branches: several functions of one module at once, over one shared prefix.

    python examples/branching/functions.py [--functions 6] [--tokens 48] [--device cpu-generic]

The reference target continues one prompt with several functions. Each is a thread (`threads
by=labels`): the module's text is read once, its keys and values are copied, and all threads decode
in one batch. The same texts as requests of their own, one after another, take what is printed
beside it, and so do both by the prices of a device; measure yours by `specplan profile device` and
name its file.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from time import perf_counter

from specplan.backends.eager.backend import EagerBackend
from specplan.cost_models.devices.device import load_device
from specplan.cost_models.models.model_shape import ModelShape
from specplan.cost_models.rounds.pricing import Unpriced
from specplan.cost_models.threads import Load, price_threads
from specplan.measure.device.probes import plain_plan
from specplan.runtime.generate import generate
from specplan.runtime.models.loading import load_model
from specplan.runtime.requests import Request
from specplan.runtime.threads.host import branch
from specplan.runtime.threads.labels import Labels
from specplan.runtime.tokenizer import load_tokenizer

EXAMPLES = Path(__file__).resolve().parents[1]
TARGET = EXAMPLES / "reference_models/target"
NAMES = ("mean", "median", "variance", "largest", "smallest", "total", "count", "first")


def main() -> None:
    """Run it both ways, compare the texts, and print what branching saves."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--functions", type=int, default=6, choices=range(1, len(NAMES) + 1))
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--device", default="cpu-generic")
    given = parser.parse_args()
    tokenizer, plan = load_tokenizer(TARGET), plain_plan(True)
    executable = EagerBackend().compile(plan, {"target": load_model(TARGET)})
    lines = (EXAMPLES / "prompts/code.jsonl").read_text(encoding="utf-8").splitlines()
    prompt = tuple(tokenizer.encode(json.loads(lines[0])["text"]))
    heads = {name: f"\n\ndef {name}(values):\n" for name in NAMES[: given.functions]}
    request = Request(prompt_tokens=prompt, max_new_tokens=given.tokens)
    own = {name: tuple(tokenizer.encode(head, special=False)) for name, head in heads.items()}
    generate(executable, [Request(prompt_tokens=prompt, max_new_tokens=2)])  # warm

    start = perf_counter()
    branched = branch(executable, request, tokenizer, Labels(heads, ()), rows=len(heads))
    at_once, start = perf_counter() - start, perf_counter()
    alone = {
        name: generate(
            executable, [Request(prompt_tokens=prompt + after, max_new_tokens=given.tokens)]
        )
        for name, after in own.items()
    }
    in_turn = perf_counter() - start
    same = sum(alone[one.name].completions[0].tokens == one.tokens for one in branched.threads)

    tokens = sum(len(one.tokens) for one in branched.threads)
    every = sum(len(prompt) + len(after) for after in own.values())
    print(f"{len(heads)} functions over a prefix of {len(prompt)} tokens, {tokens} tokens in all")
    print(f"prompt tokens read   {every - branched.shared} of {every}")
    print(f"steps                {branched.rounds} of {branched.rows}")
    print(f"seconds              {at_once:.2f}, one after another {in_turn:.2f}: "
          f"{in_turn / at_once:.2f} times as fast")  # fmt: skip
    shapes = {"target": ModelShape.from_path(TARGET, name="target")}
    load = Load(len(heads), len(prompt), max(map(len, own.values())), given.tokens)
    price = price_threads(plan, load_device(given.device), shapes, None, load)
    if not isinstance(price, Unpriced):
        print(f"predicted            {price.gain:.2f} times as fast ({given.device})")
    print(f"texts                {same} of {len(heads)} are those of requests of their own")


if __name__ == "__main__":
    main()
