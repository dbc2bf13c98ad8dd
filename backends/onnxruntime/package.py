"""One round on disk, without weights.

    round.onnx    the graph
    round.json    names of the weights it is opened with, and of what it writes in place

The model names its weights as if another file held them; a session gets them by name from memory,
so that all rounds share what is loaded and nothing of it is stored twice. ONNX Runtime packs
matrices into a form of its own as a session opens; see `packed_sessions.py`.

Texts, caches and tracks go in and come out. Where the order of the graph allows it (see
`specplan.backends.onnx_export.exporting`), output and input are bound to the same memory: the one
or two scatters that write a cache then touch the new slots only. What comes out elsewhere is copied
back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar
from weakref import ref

import torch
from pydantic import ConfigDict, TypeAdapter, ValidationError
from torch import Tensor

from specplan.backends.onnx_export.exporting import REPORT, Exported, export_round, source_of
from specplan.backends.onnx_export.fusions import fuse
from specplan.backends.onnx_export.memory import AFTER, expose_versions
from specplan.backends.onnxruntime.packed_sessions import PackedWeights
from specplan.backends.onnxruntime.providers import Provider, own_ops
from specplan.backends.onnxruntime.sessions import open_session
from specplan.backends.onnxruntime.values import bind, run_bound, unbound
from specplan.backends.static.graph import RoundGraph
from specplan.backends.static.identity import named_weights
from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.ir.files import read_json, write_json_atomic
from specplan.runtime.models.modules import Module

CODE, NAMES, CONTEXT = "round.onnx", "round.json", "round_context.onnx"
_HERE = frozenset({"NotImplemented", "EPFail", "RuntimeException"})
"""Errors of ONNX Runtime that say more of the machine than of the graph."""
_REPORT_TYPES = {
    "tensor(int64)": torch.int64,
    "tensor(float)": torch.float32,
    "tensor(double)": torch.float64,
}


@dataclass(frozen=True)
class Names:
    """Weights that a round is opened with, and the inputs that it writes in place."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    weights: list[str]
    in_place: list[str]


def write_package(
    graph: RoundGraph,
    tensors: Sequence[Tensor],
    folder: Path,
    provider: Provider,
    *,
    context: bool = False,
    packed: PackedWeights | None = None,
) -> None:
    """See `RoundBackend.write`.

    Args:
        graph: the round.
        tensors: as `Interface.read` names them.
        folder: gets the files.
        provider: what will run it.
        context: what the provider compiles is kept beside the model (EPContext).
        packed: see `load_package`.

    Raises:
        MissingCapabilityError: names the op that the provider cannot run, and its source.
    """
    import onnx_ir

    made = export_round(graph, tensors)
    fuse(made.model, own_ops(provider.name))
    expose_versions(made.model.graph, made.in_place)
    onnx_ir.save(made.model, folder / CODE)
    _write_names(made, folder)
    try:
        loaded = load_package(folder, graph.models, provider, make_context=context, packed=packed)
    except Exception as error:  # ONNX Runtime's errors have no root of their own
        raise _refusal(made.model, provider, error) from error
    if not _agree(loaded, _without_drafts(graph, tensors)):
        _write_names(replace(made, in_place=()), folder)


def _write_names(made: Exported, folder: Path) -> None:
    names = {"weights": made.weights, "in_place": made.in_place}
    write_json_atomic(folder / NAMES, names)


def load_package(
    folder: Path,
    models: Mapping[str, Module],
    provider: Provider,
    *,
    make_context: bool = False,
    packed: PackedWeights | None = None,
) -> OnnxRound:
    """A round, with the weights of these models, and perhaps packed matrices of other sessions.

    Raises:
        UsageError: the models lack a weight, or the graph is damaged.
        Exception: of ONNX Runtime, where it cannot run a sound graph here.
    """
    names = _read_names(folder / NAMES)
    known = named_weights(models)
    lacking = set(names.weights) - set(known)
    if lacking:
        raise UsageError(f"the models have no weight {min(lacking)}", where=str(folder / NAMES))
    weights = {name: known[name] for name in names.weights}
    path, entries = folder / CODE, {}
    if make_context:
        entries = {
            "ep.context_enable": "1",
            "ep.context_file_path": str(folder / CONTEXT),
            "ep.context_embed_mode": "1",
        }
    elif (folder / CONTEXT).is_file():
        path = folder / CONTEXT
    chosen = [(provider.name, provider.options), *provider.fallback]
    try:
        session = open_session(str(path), weights, entries=entries, packed=packed, providers=chosen)
        return OnnxRound(session, names.in_place)
    except Exception as error:  # ONNX Runtime's errors have no root of their own
        if type(error).__name__ in _HERE:
            raise
        raise UsageError(
            f"ONNX Runtime cannot load this model: {str(error).strip()}",
            where=str(path),
            remedy="Compile it anew: `specplan compile DIR`.",
        ) from error


def _read_names(path: Path) -> Names:
    data = read_json(path, "names of a compiled round")
    try:
        return TypeAdapter(Names).validate_python(data)
    except ValidationError:
        raise UsageError(
            "this is not the list of a compiled round's names",
            where=str(path),
            remedy="Compile it here: `specplan compile DIR`.",
        ) from None


class OnnxRound:
    """A session and its bindings; called as `RoundGraph` is.

    An input or output is bound when another tensor comes than the last time, not in each round.

    Args:
        session: of ONNX Runtime.
        in_place: inputs whose memory is given to their outputs.
    """

    def __init__(self, session: Any, in_place: Iterable[str]) -> None:
        self._session = session
        self._binding = session.io_binding()
        self._inputs = [item.name for item in session.get_inputs()]
        report, *written = session.get_outputs()
        self._shape = tuple(map(int, report.shape)), _REPORT_TYPES[report.type]
        self._report: Tensor | None = None
        self._bound: list[Callable[[], Tensor | None]] = [unbound] * len(self._inputs)
        self._same: list[int] = []
        places, here = {name: place for place, name in enumerate(self._inputs)}, {*in_place}
        pairs = [(item.name, places[item.name.rpartition(AFTER)[0]]) for item in written]
        self._beside = [pair for pair in pairs if self._inputs[pair[1]] not in here]
        self._here: dict[int, list[str]] = {}
        for output, place in pairs:
            if self._inputs[place] in here:
                self._here.setdefault(place, []).append(output)

    def beside(self) -> OnnxRound:
        """The same round with outputs in memory of their own, which are copied back."""
        return OnnxRound(self._session, ())

    def __call__(self, *tensors: Tensor) -> Tensor:
        """Run the round; texts, caches and tracks are as it leaves them.

        Returns:
            The report; the next call overwrites it.
        """
        given = [*map(id, tensors)]
        if given != self._same:
            for place, tensor in enumerate(tensors):
                if self._bound[place]() is not tensor:
                    self._bind(place, tensor)
            self._same[:] = given
        copies = []
        for output, place in self._beside:  # an op may leave alone what nothing attends to
            copies.append((output, tensors[place], tensors[place].clone()))
            bind(self._binding.bind_output, output, copies[-1][2])
        if self._report is None:
            shape, dtype = self._shape
            self._report = torch.empty(shape, dtype=dtype, device=tensors[0].device)
            bind(self._binding.bind_output, REPORT, self._report)
        if self._report.is_cuda:  # the session has a stream of its own
            torch.cuda.current_stream(self._report.device).synchronize()
        run_bound(self._session, self._binding)
        for output, old, new in copies:
            if output.endswith(AFTER):  # not what it was in between
                old.copy_(new)
        return self._report

    def _bind(self, place: int, tensor: Tensor) -> None:
        """Give an input, and what is written in its place, the memory of a tensor."""
        bind(self._binding.bind_input, self._inputs[place], tensor)
        for output in self._here.get(place, ()):
            bind(self._binding.bind_output, output, tensor)
        same = self._same  # ids of tensors that live: another may get that of one that does not
        self._bound[place] = ref(tensor, lambda _: same.clear())


def _agree(loaded: OnnxRound, tensors: Sequence[Tensor]) -> bool:
    """Whether running in place gives, bit by bit, what running beside gives."""
    here, beside = ([tensor.clone() for tensor in tensors] for _ in range(2))
    same = torch.equal(loaded(*here), loaded.beside()(*beside))
    return same and all(
        torch.equal(_usable(one), _usable(other)) for one, other in zip(here, beside, strict=True)
    )


def _without_drafts(graph: RoundGraph, tensors: Sequence[Tensor]) -> list[Tensor]:
    """A copy without what earlier rounds drafted behind the texts: not all ops carry it along."""
    copied = [tensor.clone() for tensor in tensors]
    given = graph.interface.read(copied)
    for store in given.stores.values():
        for cache in (*store.keys, *store.values):
            for row, length in enumerate(given.lengths.tolist()):
                cache[row, :, length:] = 0
    return copied


def _usable(tensor: Tensor) -> Tensor:
    """Without the slot of dead lanes."""
    if tensor.dim() < 2:
        return tensor
    slots = 2 if tensor.dim() == 4 else 1
    return tensor.narrow(slots, 0, tensor.shape[slots] - 1)


def _refusal(model: Any, provider: Provider, error: Exception) -> MissingCapabilityError:
    failure = re.search(r"implementation for (\w+)\(\d+\) node with name '([^']*)'", str(error))
    if failure is None:
        what = error.what if isinstance(error, UsageError) else str(error).strip()
        return MissingCapabilityError(f"backend onnxruntime: {what}")
    named = (node for node in model.graph if node.name == failure[2])
    return MissingCapabilityError(
        f"backend onnxruntime: {provider.name} has no kernel for the op {failure[1]}",
        where=next(map(source_of, named), ""),
        remedy="Load the models in float32, or choose another backend.",
    )
