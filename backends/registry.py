"""Backends by name; a new one is one line here and a folder of its own."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from specplan.backends.base import Backend
from specplan.ir.capabilities import Capabilities
from specplan.ir.errors import UsageError

if TYPE_CHECKING:
    from specplan.backends.static.packages import RoundBackend

INTERPRETER = "reference"
"""The backend that runs plans op by op, and all that the others leave to it."""
_HOMES = {
    "eager": ("specplan.backends.eager.backend", "EagerBackend"),
    "inductor": ("specplan.backends.inductor.backend", "InductorBackend"),
    "onnxruntime": ("specplan.backends.onnxruntime.backend", "OnnxRuntimeBackend"),
    "reference": ("specplan.backends.reference.backend", "ReferenceBackend"),
}
_CAPABILITIES = {name: f"specplan.backends.{name}.capabilities" for name in _HOMES}


def backend_names() -> tuple[str, ...]:
    """Names of all backends, sorted."""
    return tuple(sorted(_HOMES))


def backend_capabilities(name: str) -> Capabilities:
    """What a backend can run, as data; imports no torch.

    Raises:
        UsageError: no backend has that name.
    """
    _check(name)
    found = importlib.import_module(_CAPABILITIES[name]).CAPABILITIES
    assert isinstance(found, Capabilities)
    return found


def backends_by_rule(rules: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Names of the backends that run each acceptance rule."""
    limits = {name: backend_capabilities(name).limits for name in backend_names()}
    allowed = {name: limit.get(("accept", "rule")) for name, limit in limits.items()}
    return {
        rule: tuple(name for name, known in allowed.items() if known is None or rule in known)
        for rule in rules
    }


def round_backends() -> tuple[str, ...]:
    """Names of the backends that compile whole rounds, sorted; each is a `RoundBackend`."""
    return tuple(name for name in backend_names() if backend_capabilities(name).whole_rounds)


def get_backend(name: str) -> Backend:
    """The backend itself; what it runs on is imported here.

    Raises:
        UsageError: no backend has that name.
    """
    _check(name)
    module, cls = _HOMES[name]
    backend: Backend = getattr(importlib.import_module(module), cls)()
    return backend


def round_backend(name: str) -> RoundBackend:
    """A backend that compiles whole rounds.

    Raises:
        UsageError: none of these has that name.
    """
    found: Any = get_backend(name)
    if name not in round_backends():
        raise UsageError(
            f"backend {name} compiles no rounds", remedy=f"These do: {', '.join(round_backends())}."
        )
    backend: RoundBackend = found
    return backend


def _check(name: str) -> None:
    if name not in _HOMES:
        raise UsageError(
            f"no backend is called '{name}'", remedy=f"There are: {', '.join(backend_names())}."
        )
