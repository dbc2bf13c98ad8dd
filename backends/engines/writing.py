"""The files of an emission: checked against the engine's schema, and rendered."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from specplan.backends.engines.job import Emission
from specplan.ir.errors import SpecplanError
from specplan.ir.files import write_atomic


@cache
def read_schemas(engine: str) -> dict[str, Any]:
    """JSON Schemas (draft 2020-12) of an engine's documents by file name, and their `$defs`."""
    source = resources.files("specplan.backends.engines").joinpath(f"{engine}.schema.json")
    schemas: dict[str, Any] = json.loads(source.read_text(encoding="utf-8"))
    return schemas


def check_documents(engine: str, emission: Emission) -> None:
    """Refuse documents that the engine would not accept.

    Raises:
        SpecplanError: a document breaks its schema or has none: a bug of the engine's module.
    """
    from jsonschema import Draft202012Validator

    schemas = read_schemas(engine)
    for name, document in emission.documents.items():
        if name not in schemas:
            raise SpecplanError("the file has no schema", where=f"{engine}: {name}")
        schema = {**schemas[name], "$defs": schemas.get("$defs", {})}
        for error in Draft202012Validator(schema).iter_errors(document):
            key = ".".join(map(str, error.absolute_path))
            raise SpecplanError(
                f"the written file does not fit the engine's schema ({error.message})",
                where=f"{engine}: {name}: {key}",
                remedy="This is a bug of specplan; please report it with the plan.",
            )


def render(emission: Emission) -> dict[str, str]:
    """Every file of an emission by name, as text."""
    files = {name: _document(name, data) for name, data in emission.documents.items()}
    return files | dict(emission.texts)


def write_script(path: Path, command: str) -> None:
    """Write what runs a command in its own folder, from wherever it is started."""
    write_atomic(path, f'#!/bin/sh\nset -eu\ncd "$(dirname "$0")"\n{command}\n')
    path.chmod(0o755)


def _document(name: str, data: Any) -> str:
    if name.endswith(".yaml"):
        return yaml.safe_dump(data, sort_keys=False)
    return json.dumps(data, indent=2, allow_nan=False) + "\n"
