"""Prompts as one run of an ONNX graph: text through a model into its cache, no logits.

The graph is written layer by layer, not traced, so that it is there at once and nothing of it is
stored. Its packed matrices are those of the rounds; see `packed_sessions.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import ref

import torch
from torch import Tensor

from specplan.backends.onnx_export.memory import AFTER
from specplan.backends.onnx_export.quantized import quantized_product
from specplan.backends.onnxruntime.packed_sessions import PackedWeights
from specplan.backends.onnxruntime.sessions import open_session
from specplan.backends.onnxruntime.values import bind, run_bound, unbound
from specplan.backends.static.traced.joined_attention import angles_of, joinable
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.families import RotaryFamily
from specplan.runtime.models.kv_cache import KVCache
from specplan.runtime.models.modules import Module
from specplan.runtime.models.quantized import Matrix, QuantizedMatrix

OPSET, VERSION, CONTRIB = 23, 10, "com.microsoft"


class PromptProgram:
    """Takes text into the cache of one model, for one request.

    Args:
        model: one that `fits`.
        slots: of its caches, the trash slot among them.
        after: numbers of layers after which hidden states are given, rising.
        packed: matrices that other sessions have packed too; None packs none, in each run anew.
            Those in blocks are packed here in any case, into a copy of their codes.
    """

    def __init__(
        self,
        model: CausalModel,
        slots: int,
        after: Sequence[int] = (),
        packed: PackedWeights | None = None,
    ) -> None:
        self._after, self._width = tuple(after), model.hidden_size
        graph = _Writer(model, slots, self._after)
        code = graph.write().SerializeToString()
        entries = {"session.intra_op.allow_spinning": "0"}
        if packed is None and not model.quantized:
            entries["session.disable_prepacking"] = "1"
        self._session = open_session(code, graph.weights, entries=entries, packed=packed)
        self._binding = self._session.io_binding()
        self._store: Callable[[], KVCache | None] = unbound

    def __call__(self, tokens: Tensor, first: int, store: KVCache) -> dict[int, Tensor]:
        """Run tokens.

        Args:
            tokens: int64 `[1, T]`.
            first: position and slot of the first of them.
            store: of the model; keys, values and positions are written.

        Returns:
            Hidden states `[T, hidden]` before the final norm, by the layers they went through.
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
        for name, tensor in given.items():
            bind(self._binding.bind_input, name, tensor)
        if self._store() is not store:
            self._bind(store)
        states = {layer: torch.empty(stop - first, self._width) for layer in self._after}
        for layer, tensor in states.items():
            bind(self._binding.bind_output, f"states.{layer}", tensor)
        run_bound(self._session, self._binding)
        return states

    def _bind(self, store: KVCache) -> None:
        """Let keys and values be read and written where a cache has them."""
        for part, layers in (("keys", store.keys), ("values", store.values)):
            for number, tensor in enumerate(layers):
                bind(self._binding.bind_input, f"{part}.{number}", tensor)
                bind(self._binding.bind_output, f"{part}.{number}{AFTER}", tensor)
        self._store = ref(store)


def fits(name: str, model: Module) -> bool:
    """Whether a model's layers are those that are written here, in float32."""
    if not joinable({name: model}) or model.dtype != torch.float32:
        return False
    assert isinstance(model, CausalModel) and isinstance(model.family, RotaryFamily)
    return all(layer.activation is torch.nn.functional.silu for layer in model.family.layers)


class _Writer:
    """Writes the graph of one model.

    Attributes:
        weights: by the names that the graph gives them.
    """

    def __init__(self, model: CausalModel, slots: int, after: Sequence[int]) -> None:
        assert isinstance(model.family, RotaryFamily)
        self._after = after
        self.weights: dict[str, Tensor] = {}
        self._family, self._slots = model.family, slots
        self._nodes: list[Any] = []
        self._sizes: dict[str, Any] = {}
        self._tables = [self._weight(table) for table in angles_of(model, slots)]

    def write(self) -> Any:
        """The model, whose weights are elsewhere."""
        from onnx import TensorProto, helper

        family, info = self._family, helper.make_tensor_value_info
        whole, halves = TensorProto.INT64, TensorProto.INT32
        inputs = [info(name, whole, [1, "columns"]) for name in ("tokens", "positions")]
        inputs += [info("last", halves, [1]), info("total", halves, [])]
        width, count = family.embedding.weight.shape[1], len(family.layers)
        outputs = [
            info(f"states.{layer}", TensorProto.FLOAT, ["columns", width]) for layer in self._after
        ]
        (embedded,) = self._op("Gather", [self._weight(family.embedding.weight), "tokens"])
        hidden, added = self._reshaped(embedded, [-1, width]), ""
        for number, layer in enumerate(family.layers):
            shape = [1, family.kv_heads, self._slots, family.head_dim]
            caches = [f"{part}.{number}" for part in ("keys", "values")]
            inputs += [info(name, TensorProto.FLOAT, shape) for name in caches]
            outputs += [info(name + AFTER, TensorProto.FLOAT, shape) for name in caches]
            normed, hidden = self._norm(hidden, added, layer.input_norm)
            if number in self._after:
                self._op("Identity", [hidden], [f"states.{number}"])
            mixed = self._attended(layer, normed, caches)
            if number + 1 < count or count in self._after:  # else keys and values are enough
                added = self._linear(mixed, layer.output, layer.output_bias)
                normed, hidden = self._norm(hidden, added, layer.middle_norm)
                added = self._gated(layer, normed)
        if count in self._after:
            self._op("Add", [hidden, added], [f"states.{count}"])
        graph = helper.make_graph(
            self._nodes,
            "text",
            inputs,
            outputs,
            [*map(self._elsewhere, self.weights), *self._sizes.values()],
        )
        sets = [helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB, 1)]
        return helper.make_model(graph, opset_imports=sets, ir_version=VERSION)

    def _op(
        self, kind: str, inputs: Sequence[str], outputs: Sequence[str] = (), **options: Any
    ) -> Sequence[str]:
        from onnx import helper

        outputs = outputs or [f"{kind}.{len(self._nodes)}"]
        self._nodes.append(helper.make_node(kind, inputs, outputs, **options))
        return outputs

    def _weight(self, tensor: Tensor) -> str:
        name = f"weight.{len(self.weights)}"
        self.weights[name] = tensor
        return name

    def _elsewhere(self, name: str) -> Any:
        from onnx import TensorProto

        tensor = self.weights[name]
        kind = TensorProto.UINT8 if tensor.dtype == torch.uint8 else TensorProto.FLOAT
        proto = TensorProto(name=name, dims=tensor.shape, data_type=kind)
        proto.data_location = TensorProto.EXTERNAL
        size = str(tensor.numel() * tensor.element_size())
        for key, value in (("location", "memory"), ("offset", "0"), ("length", size)):
            proto.external_data.add(key=key, value=value)
        return proto

    def _reshaped(self, given: str, sizes: list[int]) -> str:
        from onnx import TensorProto, helper

        name = f"sizes.{sizes}"
        self._sizes[name] = helper.make_tensor(name, TensorProto.INT64, [len(sizes)], sizes)
        return self._op("Reshape", [given, name])[0]

    def _linear(self, given: str, weight: Matrix, bias: Tensor | None) -> str:
        if isinstance(weight, QuantizedMatrix):
            inputs = [given, self._weight(weight.codes), self._weight(weight.scales)]
            options = quantized_product(weight.shape, weight.codes.shape)
            (product,) = self._op("MatMulNBits", inputs, (), domain=CONTRIB, **options)
            return product if bias is None else self._op("Add", [product, self._weight(bias)])[0]
        more = [] if bias is None else [self._weight(bias)]
        return self._op("Gemm", [given, self._weight(weight), *more], transB=1)[0]

    def _norm(self, hidden: str, added: str, norm: Any) -> tuple[str, str]:
        """The norm of a sum, and the sum."""
        _, scale, epsilon = norm
        options = {"epsilon": epsilon}
        if not added:
            inputs = [hidden, self._weight(scale)]
            return self._op("RMSNormalization", inputs, axis=-1, **options)[0], hidden
        normed, total = (f"{name}.{len(self._nodes)}" for name in ("normed", "sum"))
        kind, inputs = "SkipSimplifiedLayerNormalization", [hidden, added, self._weight(scale)]
        self._op(kind, inputs, [normed, "", "", total], domain=CONTRIB, **options)
        return normed, total

    def _attended(self, layer: Any, normed: str, caches: Sequence[str]) -> str:
        joined = self._linear(normed, layer.qkv, layer.qkv_bias)
        joined = self._reshaped(joined, [1, -1, layer.qkv.shape[0]])
        mixed = f"mixed.{len(self._nodes)}"
        self._op(
            "GroupQueryAttention",
            [joined, "", "", *caches, "last", "total", *self._tables, "positions"],
            [mixed, *(name + AFTER for name in caches)],
            domain=CONTRIB,
            num_heads=layer.heads,
            kv_num_heads=layer.kv_heads,
            scale=layer.scaling,
            do_rotary=1,
        )
        return self._reshaped(mixed, [-1, layer.heads * layer.head_dim])

    def _gated(self, layer: Any, normed: str) -> str:
        both = self._linear(normed, layer.gate_up, layer.gate_up_bias)
        halves = [f"{name}.{len(self._nodes)}" for name in ("gate", "up")]
        gate, up = self._op("Split", [both], halves, axis=-1, num_outputs=2)
        (opened,) = self._op("QuickGelu", [gate], domain=CONTRIB, alpha=1.0)
        (product,) = self._op("Mul", [opened, up])
        return self._linear(product, layer.down, layer.down_bias)
