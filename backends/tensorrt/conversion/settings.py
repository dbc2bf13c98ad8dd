"""How rounds are compiled by torch-tensorrt."""

from __future__ import annotations

from typing import Any

from specplan.backends.tensorrt.conversion.registry import Registry

LEAST_OPS = 5
"""Fewer ops than this make no engine, and stay in torch."""


def compile_settings(registry: Registry) -> dict[str, Any]:
    """Arguments of `torch_tensorrt.dynamo.compile` that a version has.

    * masks are explicit and of trees: by default (`attn_bias_is_causal`) additive masks of square
      attention are replaced by causal ones;
    * attention of 2.11 is converted for as many keys as queries only: it is decomposed there;
    * TensorRT has no float64: draws and laws become float32 at the ends of engines;
    * float32 is not rounded to 10 bits in products;
    * the global partitioner, which is torch's own: `split.py` gives what it gives;
    * nothing is kept in a cache of engines beside the rounds' own folder.
    """
    wanted = {
        "attn_bias_is_causal": False,
        "decompose_attention": not registry.unequal_lengths,
        "truncate_double": True,
        "disable_tf32": True,
        "use_fast_partitioner": False,
        "min_block_size": LEAST_OPS,
        "cache_built_engines": False,
        "reuse_cached_engines": False,
        "immutable_weights": True,
    }
    return {name: value for name, value in wanted.items() if name in registry.settings}
