"""Torch building blocks: models, caches, sampling, acceptance rules and the generate loop.

This package itself imports no torch; its modules do.
"""

from __future__ import annotations

from importlib.util import find_spec

from specplan.ir.errors import MissingCapabilityError


def require_torch() -> None:
    """Check that the packages which run models are installed, without importing them.

    Raises:
        MissingCapabilityError: names the missing packages and the command that installs them.
    """
    missing = [name for name in ("torch", "transformers", "tokenizers") if find_spec(name) is None]
    if missing:
        raise MissingCapabilityError(
            f"running models needs {', '.join(missing)}",
            remedy="Install it with: pip install 'specplan[run]'",
        )
