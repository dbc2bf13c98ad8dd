"""A file that another program wrote, read once in whatever form a reader asks for."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from specplan.ir.errors import UsageError

MOST_TOKENS = 1024
"""More tokens than any round drafts: larger numbers are something else."""
BROKEN = "Take the file again from where it came."


_SECONDS = 10.0
_MOST_BYTES = 64 << 20


def is_address(text: str) -> bool:
    """Whether a text is the address of a server rather than a path."""
    return text.startswith(("http://", "https://"))


def fetched(address: str) -> bytes:
    """What a server answers at this very address: no proxy is asked, no redirect followed.

    Args:
        address: with `/metrics` added where it names a server alone.

    Raises:
        UsageError: it does not answer in time, or with something else than a page.
    """
    from http.client import HTTPException
    from urllib.parse import urlsplit
    from urllib.request import HTTPHandler, HTTPSHandler, OpenerDirector

    if not urlsplit(address).path.strip("/"):
        address = f"{address.rstrip('/')}/metrics"
    opener = OpenerDirector()
    for handler in (HTTPHandler(), HTTPSHandler()):
        opener.add_handler(handler)
    try:
        with opener.open(address, timeout=_SECONDS) as answer:
            if answer.status != 200:
                raise UsageError(
                    f"the server answered {answer.status} {answer.reason}",
                    where=address,
                    remedy="Give the address that answers, such as http://HOST:8000/metrics.",
                )
            data: bytes = answer.read(_MOST_BYTES)
    except (OSError, HTTPException, ValueError) as error:
        raise UsageError(
            f"the server cannot be read ({error})",
            where=address,
            remedy="Check that it runs, and its address, such as http://HOST:8000/metrics.",
        ) from error
    return data


class Source:
    """A file, read once, in whatever form an importer asks for.

    Args:
        path: the file, or the `http` address of a running server.

    Raises:
        UsageError: it cannot be read.
    """

    def __init__(self, path: Path | str) -> None:
        self.where = str(path)
        self.path = Path(path)
        if is_address(self.where):
            self.data = fetched(self.where)
            return
        try:
            self.data = self.path.read_bytes()
        except OSError as error:
            raise UsageError(
                f"cannot read the file ({error.strerror})",
                where=str(path),
                remedy="Give a file; `specplan import probe` reads the folder of a probe."
                if self.path.is_dir()
                else "Check the path and its permissions.",
            ) from error

    @cached_property
    def text(self) -> str:
        """As UTF-8; "" when it is none."""
        try:
            return self.data.decode("utf-8")
        except UnicodeDecodeError:
            return ""

    @cached_property
    def documents(self) -> tuple[Any, ...]:
        """The JSON document, or one for each line; () when it is neither."""
        text = self.text.strip()
        for parts in ([text], [line for line in text.splitlines() if line.strip()]):
            try:
                return tuple(json.loads(part) for part in parts)
            except (ValueError, RecursionError):
                continue
        return ()

    def objects(self, *names: str) -> Iterator[Mapping[str, Any]]:
        """All objects of the documents, however deep, that have all these keys."""
        pending = list(reversed(self.documents))
        while pending:
            value = pending.pop()
            if isinstance(value, dict):
                if all(name in value for name in names):
                    yield value
                pending.extend(reversed(list(value.values())))
            elif isinstance(value, list):
                pending.extend(reversed(value))

    def error(self, what: str, remedy: str = BROKEN) -> UsageError:
        """An error about this file."""
        return UsageError(what, where=self.where, remedy=remedy)

    def number(
        self, holder: Mapping[str, Any], name: str, low: float = 0.0, high: float = math.inf
    ) -> float:
        """A finite number of an object, also as text.

        Raises:
            UsageError: it is missing, no number or out of range.
        """
        return self.checked(holder.get(name), name, low, high)

    def checked(self, value: object, name: str, low: float = 0.0, high: float = math.inf) -> float:
        """A finite number in a range, also as text.

        Raises:
            UsageError: it is none.
        """
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            try:
                number = float(value)
            except ValueError:
                number = math.nan
            if math.isfinite(number) and low <= number <= high:
                return number
        wanted = f"a number from {low:g}" if high == math.inf else f"in [{low:g}, {high:g}]"
        raise self.error(f"{name} is {value!r}, expected {wanted}")

    def tokens(self, value: object, name: str, low: int = 0) -> int:
        """A whole number of tokens, `MOST_TOKENS` at most.

        Raises:
            UsageError: it is none.
        """
        number = self.checked(value, name, low, MOST_TOKENS)
        if number != int(number):
            raise self.error(f"{name} is {value!r}, expected a whole number")
        return int(number)

    def numbers(self, value: object, name: str, low: float = 0.0) -> list[float]:
        """A list of finite numbers.

        Raises:
            UsageError: it is none.
        """
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise self.error(f"{name} is {value!r}, expected a list of numbers")
        return [self.checked(item, f"{name}[{index}]", low) for index, item in enumerate(value)]
