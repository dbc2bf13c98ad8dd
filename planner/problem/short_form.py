"""The short form of a problem, as flags and Python keywords write it, and `key=value` settings."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from specplan.ir.errors import UsageError
from specplan.ir.text.yaml_text import read_yaml
from specplan.planner.problem.schema import SCHEMA_VERSION

KEY_OF = {
    "target": "models.target.path",
    "drafts": "models.drafts",
    "device": "device",
    "backend": "backend",
    "batch": "workload.batch_sizes",
    "prompt": "workload.prompt_tokens",
    "output": "workload.output_tokens",
    "cached_prefix": "workload.cached_prefix",
    "acceptance": "acceptance",
    "objective": "objective",
    "memory": "limits.memory",
    "tpot": "limits.tpot",
    "ttft": "limits.ttft",
    "temperature": "workload.temperature",
    "request_rate": "workload.request_rate",
    "methods": "methods",
    "sources": "sources",
}
"""The key of the schema that each word of the short form sets."""

_PLURAL = {"backend": "backends", "workload.prompt_tokens": "workload.prompt_lengths"}
"""Keys that have another name where they take several values."""


def merged(document: Mapping[str, Any] | None, short: Mapping[str, Any]) -> dict[str, Any]:
    """A problem document with the values of a short form in place of its own.

    Args:
        document: the content of a problem file; None starts a new problem.
        short: values by the words of `KEY_OF`; None leaves a key as it is. `drafts` maps names to
            folders, `batch`, `prompt` and `backend` take one value or several.

    Raises:
        UsageError: a word is not in `KEY_OF`, or a key of the document is not a mapping.
    """
    whole = {"schema_version": SCHEMA_VERSION} if document is None else copy.deepcopy({**document})
    for word, value in short.items():
        if word not in KEY_OF:
            raise UsageError(f'unknown word "{word}"', remedy=f"Known: {', '.join(KEY_OF)}.")
        if value is not None:
            _put(whole, *_entry(word, value))
    return whole


def with_settings(document: Mapping[str, Any], settings: Iterable[str]) -> dict[str, Any]:
    """A problem document with each `key=value` set: a dotted key, a value as YAML has it.

    Raises:
        UsageError: a setting is not `key=value`, or its value is not YAML.
    """
    whole = copy.deepcopy({**document})
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not all(key.split(".")):
            raise UsageError(
                "a setting is written KEY=VALUE",
                where=f"--set {setting}",
                remedy="Write the dotted key of the problem file, such as "
                "--set workload.temperature=0.7",
            )
        value, _ = read_yaml(text, f"--set {key}")
        _put(whole, key, value)
    return whole


def replaces(key: str, other: str) -> bool:
    """Whether setting a dotted key takes away what another one was set to."""
    above, _, _ = key.rpartition(".")
    others = (f"{above}.{name}".lstrip(".") for name in _REPLACED.get(key, ()))
    return f"{other}.".startswith(f"{key}.") or other in others


def _entry(word: str, value: Any) -> tuple[str, Any]:
    """The key of the schema, and what is written there."""
    key = KEY_OF[word]
    several = not isinstance(value, str | Mapping) and isinstance(value, Iterable)
    if word == "drafts" and isinstance(value, Mapping):
        return key, [
            {"name": name, **(entry if isinstance(entry, Mapping) else {"path": entry})}
            for name, entry in value.items()
        ]
    if word == "batch":
        return key, list(value) if several else [value]
    if several:
        values = list(value)
        if key in _PLURAL:
            return (_PLURAL[key], values) if len(values) > 1 else (key, *values)
        return key, values
    return key, value


def _put(document: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key, and take out the keys that it replaces."""
    node: Any = document
    *above, last = key.split(".")
    for depth, part in enumerate(above):
        if isinstance(node, list) and part.isdecimal() and int(part) < len(node):
            node = node[int(part)]
            continue
        if not isinstance(node, dict) or not isinstance(node.setdefault(part, {}), dict | list):
            raise UsageError(
                f'there is no mapping "{".".join(above[: depth + 1])}" to set {key} in',
                remedy="Set the whole key, or correct the problem file.",
            )
        node = node[part]
    for other in _REPLACED.get(key, ()):
        if isinstance(node, dict):
            node.pop(other, None)
    if isinstance(node, list) and last.isdecimal() and int(last) < len(node):
        node[int(last)] = value
    elif isinstance(node, dict):
        node[last] = value
    else:
        raise UsageError(f"there is no entry {key}", remedy="Number the entries of a list from 0.")


_REPLACED = {
    "backend": ("backends",),
    "backends": ("backend",),
    "workload.prompt_tokens": ("prompt_lengths", "trace"),
    "workload.prompt_lengths": ("prompt_tokens", "trace"),
    "workload.output_tokens": ("trace",),
}
"""Keys beside one that say the same in another way."""
