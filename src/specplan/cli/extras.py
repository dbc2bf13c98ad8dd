"""Optional dependencies: which extra of the package brings which module."""

from __future__ import annotations

from specplan.ir.errors import MissingCapabilityError

# Modules that each extra brings, by import name (pyproject.toml has the distributions).
MODULES_OF_EXTRA = {
    "run": ("torch", "transformers", "tokenizers", "psutil", "cpuinfo", "optuna"),
    "report": ("jinja2", "matplotlib"),
    "pandas": ("pandas",),
    "nvidia": ("pynvml",),
    "onnx": ("onnx", "onnxruntime", "onnxscript", "onnx_ir"),
    "triton": ("triton",),
    "tensorrt": ("torch_tensorrt", "tensorrt"),
    "grammar": ("llguidance",),
    "images": ("PIL",),
    "gguf": ("gguf",),
    "silicon": ("aiconfigurator_core", "pyarrow"),
}


def explain_import_error(error: ImportError, *, purpose: str) -> MissingCapabilityError | None:
    """The error to show for a failed import of an extra's module; None for any other module."""
    module = (error.name or "").partition(".")[0]
    for extra, modules in MODULES_OF_EXTRA.items():
        if module in modules:
            return MissingCapabilityError(
                f"this needs the Python package '{module}', which is not installed",
                where=purpose,
                remedy=f"Install it with: pip install 'specplan[{extra}]'",
            )
    return None
