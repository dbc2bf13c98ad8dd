"""Documents agree with the code: keys, links, examples and commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import specplan

REPOSITORY = Path(__file__).resolve().parent.parent
PAGES = sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md")])


def keys(schema: dict[str, Any], root: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Dotted keys of every leaf of a JSON Schema; items of a list are written `[]`."""
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    if "properties" in schema:
        for name, value in schema["properties"].items():
            yield from keys(value, root, f"{prefix}.{name}" if prefix else name)
    elif "$ref" in schema.get("items", {}):
        yield from keys(schema["items"], root, f"{prefix}[]")
    else:
        yield prefix


def test_every_key_of_a_problem_is_documented() -> None:
    page = (REPOSITORY / "docs/problem.md").read_text()
    schema = specplan.problem_schema()
    assert [key for key in keys(schema, schema) if f"`{key}`" not in page] == []


def test_no_documented_key_is_unknown() -> None:
    page = (REPOSITORY / "docs/problem.md").read_text()
    schema = specplan.problem_schema()
    known = {*keys(schema, schema), "models.drafts"}
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    documented = {key for row in rows for key in re.findall(r"`([^`]+)`", row)}
    assert documented == known


def test_the_example_problem_fits_the_schema() -> None:
    page = (REPOSITORY / "docs/problem.md").read_text()
    example, *_ = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    jsonschema.validate(
        yaml.safe_load(example.replace("2.0e9", "2.0e+9")), specplan.problem_schema()
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_named_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    named = {target for page in PAGES for target in re.findall(r"`make ([a-z]+)", page.read_text())}
    assert named <= targets
