"""Files that compiled rounds of several backends share, and the errors for damaged ones."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from specplan.ir.errors import UsageError


def read_tables(path: Path) -> dict[str, Tensor]:
    """Constants of a compiled round that are no weights, by name.

    Raises:
        UsageError: the file is damaged.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise damaged(f"these are no tables of a compiled round ({error})", path) from error


def damaged(what: str, path: Path) -> UsageError:
    """What to say of a file of a compiled round that is not as it was written."""
    remedy = "Compile it anew: `specplan compile DIR`."
    return UsageError(what, where=str(path), remedy=remedy)
