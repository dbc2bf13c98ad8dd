"""Time one decoding step of a checkpoint: this runtime against stock transformers.

    python benchmarks/model_step.py examples/reference_models/target --tokens 1 5 9

Steps alternate, so that both sides see the same machine; medians and their ratio are printed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import torch
from transformers import AutoModelForCausalLM, DynamicCache

from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.loading import load_model


def stock_step(model: Any, text: torch.Tensor, new: torch.Tensor) -> Callable[[], torch.Tensor]:
    cache = DynamicCache(config=model.config)
    model(text, past_key_values=cache, use_cache=True)

    def step() -> torch.Tensor:
        logits: torch.Tensor = model(new, past_key_values=cache, use_cache=True).logits
        cache.crop(-new.shape[1])
        return logits

    return step


def our_step(
    model: CausalModel, text: torch.Tensor, new: torch.Tensor
) -> Callable[[], torch.Tensor]:
    batch, context = text.shape
    total = context + new.shape[1]
    cache = model.new_cache(batch, total)
    places = torch.arange(total).expand(batch, -1).contiguous()
    mask = torch.ones(total, total, dtype=torch.bool).tril().expand(batch, -1, -1)
    before, after = places[:, :context].contiguous(), places[:, context:].contiguous()
    model.forward(text, before, before, mask[:, :context, :context], cache)
    return lambda: model.forward(new, after, after, mask[:, context:], cache)


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--tokens", type=int, nargs="+", default=[1, 5, 9])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--context", type=int, default=200)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--runs", type=int, default=100)
    options = parser.parse_args()
    ours = load_model(options.folder, dtype=options.dtype)
    stock = AutoModelForCausalLM.from_pretrained(options.folder, dtype=ours.dtype).eval()
    generator = torch.Generator().manual_seed(0)
    for tokens in options.tokens:
        ids = torch.randint(
            ours.vocab_size, (options.batch, options.context + tokens), generator=generator
        )
        text, new = ids[:, : options.context], ids[:, options.context :]
        steps = (stock_step(stock, text, new), our_step(ours, text, new))
        seconds: tuple[list[float], list[float]] = ([], [])
        for _ in range(options.runs):
            for step, taken in zip(steps, seconds, strict=True):
                begin = perf_counter()
                step()
                taken.append(perf_counter() - begin)
        theirs, mine = median(seconds[0]), median(seconds[1])
        ratio = median(a / b for a, b in zip(*seconds, strict=True))
        print(
            f"{ours.name} {ours.dtype} batch {options.batch} tokens {tokens}: stock "
            f"{theirs * 1e3:.2f} ms, ours {mine * 1e3:.2f} ms, ratio {ratio:.2f}"
        )


if __name__ == "__main__":
    main()
