"""`specplan schema`: the JSON Schema of a problem file."""

from __future__ import annotations

from specplan.cli.options import JsonOption
from specplan.cli.output import print_json


def schema(json: JsonOption = True) -> None:
    """Print the JSON Schema of a problem file, for editors and validators."""
    from specplan import api

    print_json(api.problem_schema())
