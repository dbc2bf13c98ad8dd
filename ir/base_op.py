"""What all ops share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from specplan.ir.values import Value


@dataclass(frozen=True, kw_only=True)
class BaseOp:
    """What all ops share: the values they define."""

    keyword: ClassVar[str]
    positional: ClassVar[tuple[str, ...]] = ()
    results: tuple[Value, ...] = ()
