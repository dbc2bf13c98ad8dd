"""Prompts as one run of an ONNX graph: text through a model into its cache, no logits.

The graph is written, not traced (`text_graphs.py`), so that it is there at once and nothing of it
is stored. Its packed matrices are those of the rounds; see `packed_sessions.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from weakref import ref

import torch
from torch import Tensor

from specplan.backends.onnx_export.memory import AFTER
from specplan.backends.onnxruntime.packed_sessions import PackedWeights
from specplan.backends.onnxruntime.sessions import open_session
from specplan.backends.onnxruntime.text_graphs import HeadText, ModelText, writes
from specplan.backends.onnxruntime.values import bind, run_bound, unbound
from specplan.backends.static.traced.joined_attention import joinable
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.families import RotaryFamily
from specplan.runtime.models.heads.drafter import Drafter
from specplan.runtime.models.kv_cache import KVCache
from specplan.runtime.models.modules import Module


class PromptProgram:
    """Takes text into the cache of one model, for one request.

    Args:
        model: one that `fits`.
        slots: of its caches, the trash slot among them.
        after: which hidden states are given: of each tensor, after how many layers its parts are.
        packed: matrices that other sessions have packed too; None packs none, in each run anew.
            Those in blocks are packed here in any case, into a copy of their codes.
    """

    def __init__(
        self,
        model: CausalModel | Drafter,
        slots: int,
        after: Sequence[Sequence[int]] = (),
        packed: PackedWeights | None = None,
    ) -> None:
        graph = (
            HeadText(model, slots) if isinstance(model, Drafter) else ModelText(model, slots, after)
        )
        code = graph.code()
        entries = {"session.intra_op.allow_spinning": "0"}
        if packed is None and not model.quantized:
            entries["session.disable_prepacking"] = "1"
        self._session = open_session(code, graph.weights, entries=entries, packed=packed)
        self._binding = self._session.io_binding()
        self._store: Callable[[], KVCache | None] = unbound

    def __call__(
        self,
        tokens: Tensor,
        first: int,
        store: KVCache,
        features: Tensor | None = None,
        states: Sequence[Tensor] = (),
    ) -> None:
        """Run tokens.

        Args:
            tokens: int64 `[1, T]`.
            first: position and slot of the first of them.
            store: of the model; keys, values and positions are written.
            features: states `[T, F]` that a head reads; None for other models.
            states: memory for what `after` asks for, `[T, parts x hidden]` each; written. States
                are as before the final norm.
        """
        stop = first + tokens.shape[1]
        positions = torch.arange(first, stop)[None]
        store.positions[:, first:stop] = positions
        given = {
            "tokens": tokens.contiguous(),
            "positions": positions,
            "last": torch.tensor([stop - 1], dtype=torch.int32),
            "total": torch.tensor(stop, dtype=torch.int32),
        }
        if features is not None:
            given["features"] = features.contiguous()
        for name, tensor in given.items():
            bind(self._binding.bind_input, name, tensor)
        if self._store() is not store:
            self._bind(store)
        for number, tensor in enumerate(states):
            bind(self._binding.bind_output, f"states.{number}", tensor)
        run_bound(self._session, self._binding)

    def _bind(self, store: KVCache) -> None:
        """Let keys and values be read and written where a cache has them."""
        for part, layers in (("keys", store.keys), ("values", store.values)):
            for number, tensor in enumerate(layers):
                bind(self._binding.bind_input, f"{part}.{number}", tensor)
                bind(self._binding.bind_output, f"{part}.{number}{AFTER}", tensor)
        self._store = ref(store)


def fits(name: str, model: Module) -> bool:
    """Whether text goes through a model, or into the cache of a head, as is written; in float32."""
    if not joinable({name: model}) or model.dtype != torch.float32:
        return False
    if isinstance(model, Drafter):
        return writes(model)
    assert isinstance(model, CausalModel) and isinstance(model.family, RotaryFamily)
    return all(layer.activation is torch.nn.functional.silu for layer in model.family.layers)
