"""Optional dependencies: which extra of the package brings which module."""

from __future__ import annotations

from importlib.util import find_spec

from specplan.ir.errors import MissingCapabilityError

# Modules that each extra brings, by import name (pyproject.toml has the distributions).
MODULES_OF_EXTRA = {
    "run": ("torch", "transformers", "tokenizers"),
    "onnx": ("onnx", "onnxruntime", "onnxscript", "onnx_ir"),
    "triton": ("triton",),
    "tensorrt": ("torch_tensorrt", "tensorrt"),
}


def require_extra(extra: str, *, purpose: str) -> None:
    """Make sure that the modules of `extra` can be found, without importing them.

    Args:
        extra: a key of `MODULES_OF_EXTRA`.
        purpose: what needs them, as the error's place ("specplan run").

    Raises:
        MissingCapabilityError: a module is absent; the remedy is the command that installs it.
    """
    for module in MODULES_OF_EXTRA[extra]:
        if not _can_be_found(module):
            raise _missing(module, extra, purpose)


def explain_import_error(error: ImportError, *, purpose: str) -> MissingCapabilityError | None:
    """The error to show for a failed import of an extra's module; None for any other module."""
    module = (error.name or "").partition(".")[0]
    for extra, modules in MODULES_OF_EXTRA.items():
        if module in modules:
            return _missing(module, extra, purpose)
    return None


def _can_be_found(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _missing(module: str, extra: str, purpose: str) -> MissingCapabilityError:
    return MissingCapabilityError(
        f"this needs the Python package '{module}', which is not installed",
        where=purpose,
        remedy=f"Install it with: pip install 'specplan[{extra}]'",
    )
