"""Text through a model into its cache as an ONNX graph, written layer by layer, not traced.

A prompt goes through the layers of a model from its tokens (`ModelText`). What a head with one
layer leaves of text are keys and values, which follow from tokens and from the hidden states that
it reads (`HeadText`; EAGLE, arXiv 2401.15077, and EAGLE-3, arXiv 2503.01840).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from specplan.backends.onnx_export.memory import AFTER
from specplan.backends.onnx_export.quantized import quantized_product
from specplan.backends.onnxruntime.values import elsewhere
from specplan.backends.static.traced.joined_attention import angles_of
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.families import RotaryFamily
from specplan.runtime.models.heads.drafter import Drafter
from specplan.runtime.models.heads.layers import Norm
from specplan.runtime.models.modules import Module
from specplan.runtime.models.quantized import Matrix, QuantizedMatrix, matrix_of

OPSET, VERSION, CONTRIB = 23, 10, "com.microsoft"


class _Text(ABC):
    """Ops on a text of one request.

    Args:
        model: whose caches are written.
        slots: of its caches, the trash slot among them.

    Attributes:
        weights: by the names that the graph gives them.
    """

    def __init__(self, model: Module, slots: int) -> None:
        self.weights: dict[str, Tensor] = {}
        self._slots = slots
        self._nodes: list[Any] = []
        self._sizes: dict[str, Any] = {}
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._tables = [self._weight(table) for table in angles_of(model, slots)]

    def code(self) -> bytes:
        """The graph, whose weights are elsewhere."""
        from onnx import TensorProto, helper

        info, whole, halves = helper.make_tensor_value_info, TensorProto.INT64, TensorProto.INT32
        self._inputs += [info(name, whole, [1, "columns"]) for name in ("tokens", "positions")]
        self._inputs += [info("last", halves, [1]), info("total", halves, [])]
        self._write()
        weights = (elsewhere(*one) for one in self.weights.items())
        constants = [*weights, *self._sizes.values()]
        graph = helper.make_graph(self._nodes, "text", self._inputs, self._outputs, constants)
        sets = [helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB, 1)]
        model = helper.make_model(graph, opset_imports=sets, ir_version=VERSION)
        return bytes(model.SerializeToString())

    @abstractmethod
    def _write(self) -> None:
        """Add inputs, ops and outputs."""

    def _states(self, name: str, width: int) -> Any:
        """A row of states for each token: an input or an output."""
        from onnx import TensorProto, helper

        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["columns", width])

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

    def _embedded(self, table: Tensor) -> str:
        (embedded,) = self._op("Gather", [self._weight(table), "tokens"])
        return self._reshaped(embedded, [-1, table.shape[1]])

    def _norm(self, hidden: str, norm: Any) -> str:
        _, scale, epsilon = norm
        inputs = [hidden, self._weight(scale)]
        return self._op("RMSNormalization", inputs, axis=-1, epsilon=epsilon)[0]

    def _norm_of_sum(self, hidden: str, added: str, norm: Any) -> tuple[str, str]:
        """The norm of a sum, and the sum."""
        if not added:
            return self._norm(hidden, norm), hidden
        _, scale, epsilon = norm
        normed, total = (f"{name}.{len(self._nodes)}" for name in ("normed", "sum"))
        kind, inputs = "SkipSimplifiedLayerNormalization", [hidden, added, self._weight(scale)]
        self._op(kind, inputs, [normed, "", "", total], domain=CONTRIB, epsilon=epsilon)
        return normed, total

    def _attended(self, layer: Any, normed: str) -> str:
        """What a layer attends to; its keys and values go into caches, which are made known."""
        from onnx import TensorProto, helper

        caches = [f"{part}.{layer.index}" for part in ("keys", "values")]
        shape = [1, layer.kv_heads, self._slots, layer.head_dim]
        for ports, end in ((self._inputs, ""), (self._outputs, AFTER)):
            ports += [
                helper.make_tensor_value_info(name + end, TensorProto.FLOAT, shape)
                for name in caches
            ]
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


class ModelText(_Text):
    """Text through all layers.

    Args:
        model: of layers that one attention op does.
        slots: see `_Text`.
        after: see `PromptProgram`.
    """

    def __init__(self, model: CausalModel, slots: int, after: Sequence[Sequence[int]] = ()) -> None:
        assert isinstance(model.family, RotaryFamily)
        super().__init__(model, slots)
        self._family, self._after = model.family, after

    def _write(self) -> None:
        family, count = self._family, len(self._family.layers)
        width = family.embedding.weight.shape[1]
        wanted = {layer for layers in self._after for layer in layers}
        hidden, added = self._embedded(family.embedding.weight), ""
        passed: dict[int, str] = {}
        for number, layer in enumerate(family.layers):
            normed, hidden = self._norm_of_sum(hidden, added, layer.input_norm)
            passed[number] = hidden
            mixed = self._attended(layer, normed)
            if number + 1 < count or count in wanted:  # else keys and values are enough
                added = self._linear(mixed, layer.output, layer.output_bias)
                normed, hidden = self._norm_of_sum(hidden, added, layer.middle_norm)
                added = self._gated(layer, normed)
        if count in wanted:
            (passed[count],) = self._op("Add", [hidden, added])
        for number, layers in enumerate(self._after):
            name, states = f"states.{number}", [passed[layer] for layer in layers]
            self._outputs.append(self._states(name, width * len(layers)))
            self._op("Concat", states, [name], axis=-1)


class HeadText(_Text):
    """Keys and values of a head with one layer, see `Drafter.fill`; what it attends to is unread.

    Args:
        head: one of which `writes` is true.
        slots: see `_Text`.
    """

    def __init__(self, head: Drafter, slots: int) -> None:
        super().__init__(head, slots)
        self._head = head

    def _write(self) -> None:
        head, one = self._head, self._head.description
        entering, family, wide = head.entering, head.target.family, one.join == "wide"
        assert isinstance(family, RotaryFamily) and head.layers is not None
        table = family.embedding if entering.embedding is None else entering.embedding
        token = self._embedded(table.weight)
        state = self._entered()
        if wide or one.reads.norm == "each":
            token = self._norm(token, _norm_of(entering.token_norm))
            state = self._norm(state, _norm_of(entering.state_norm))
        (given,) = self._op("Concat", [token, state], axis=-1)
        (layer,) = head.layers.packed
        if not wide:
            given = self._projected(given)
            if one.body.input_norm:
                given = self._norm(given, layer.input_norm)
        self._attended(layer, given)

    def _entered(self) -> str:
        """The target's states as `Entering.state` gives them."""
        entering, family = self._head.entering, self._head.target.family
        reads = self._head.description.reads
        assert isinstance(family, RotaryFamily)
        self._inputs.append(self._states("features", reads.count * reads.width))
        state = "features"
        if reads.finished:
            state = self._norm(state, family.final_norm)
        norms = list(getattr(entering, "feature_norms", ()))
        if len(norms) > 1:
            parts = [f"part.{number}" for number in range(len(norms))]
            self._op("Split", [state], parts, axis=-1, num_outputs=len(parts))
            normed = [self._norm(*one) for one in zip(parts, map(_norm_of, norms), strict=True)]
            (state,) = self._op("Concat", normed, axis=-1)
        elif norms:
            state = self._norm(state, _norm_of(norms[0]))
        if reads.project:
            state = self._projected(state)
        if reads.normed_after:
            state = self._norm(state, _norm_of(entering.after_project))
        return state

    def _projected(self, given: str) -> str:
        project = self._head.entering.project
        assert project is not None
        return self._linear(given, matrix_of(project), project.bias)


def _norm_of(norm: Norm) -> tuple[torch.Size, Tensor, float]:
    assert norm.weight is not None and norm.bias is None
    return norm.weight.shape, norm.weight, norm.epsilon


def writes(head: Drafter) -> bool:
    """Whether the text of a head is what `HeadText` writes."""
    one, family = head.description, head.target.family
    known = head.fills and one.join in ("concat", "wide") and one.first_embedding
    return known and one.by_token is None and isinstance(family, RotaryFamily)
