"""Backends by name: every folder here with `capabilities.py` and `backend.py` is one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, Protocol

from specplan.ir.capabilities import INTERPRETER, Capabilities, backend_name
from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.ir.plan import Plan
from specplan.runtime import require_torch

if TYPE_CHECKING:
    from specplan.backends.static.packages import RoundBackend

__all__ = [
    "INTERPRETER", "backend_capabilities", "backend_names", "backends_by_rule", "get_backend",
    "missing_packages", "round_backend", "round_backends",
]  # fmt: skip
_FOLDER = __name__.rpartition(".")[0]


class Backend(Protocol):
    """A compile target: capabilities as data, and `compile` once, run many times."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can run."""
        ...

    def available(self) -> str | None:
        """None when it can run here, else what is missing; imports nothing heavy."""
        ...

    def compile(self, plan: Plan, models: Mapping[str, Any]) -> Any:
        """An executable (`specplan.runtime.executable.Executable`) for a verified plan.

        Raises:
            MissingCapabilityError: names the first op that the backend cannot run.
        """
        ...


@cache
def backend_names() -> tuple[str, ...]:
    """Names of all backends, sorted: the folders here that say what they can run."""
    folders = (item.name for item in iter_modules(import_module(_FOLDER).__path__) if item.ispkg)
    return tuple(name for name in sorted(folders) if find_spec(_home(name, "capabilities")))


def backend_capabilities(name: str) -> Capabilities:
    """What a backend can run, as data; imports no torch.

    Raises:
        UsageError: no backend has that name.
    """
    module = import_module(_home(_checked(name), "capabilities"))
    capabilities: Capabilities = module.CAPABILITIES
    return capabilities


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
    backend: Backend = import_module(_home(_checked(name), "backend")).BACKEND()
    return backend


def round_backend(name: str) -> RoundBackend:
    """A backend that compiles whole rounds.

    Raises:
        UsageError: none of these has that name.
    """
    backend: Any = get_backend(name)
    if name not in round_backends():
        raise UsageError(
            f"backend {name} does not compile rounds",
            remedy=f"These do: {', '.join(round_backends())}.",
        )
    return backend  # type: ignore[no-any-return]


def missing_packages() -> str | None:
    """The packages that run models and are not installed, in words; None where all are."""
    try:
        require_torch()
    except MissingCapabilityError as error:
        return str(error)
    return None


def _checked(name: str) -> str:
    """The name that a backend has now."""
    name = backend_name(name)
    if name not in backend_names():
        raise UsageError(
            f"no backend is called '{name}'", remedy=f"There are: {', '.join(backend_names())}."
        )
    return name


def _home(name: str, part: str) -> str:
    return f"{_FOLDER}.{name}.{part}"
