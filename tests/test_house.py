"""Rules of the house that no linter knows: packaging, file sizes, unsafe calls, lazy imports."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
SOURCE_FOLDERS = (
    "ir", "cost_models", "passes", "planner", "runtime", "backends", "measure", "src/specplan",
)  # fmt: skip
HEAVY = ("torch", "transformers", "scipy", "sympy", "pydantic", "networkx", "numpy", "typer")
LONGEST_FILE = 300


def setuptools_table() -> dict[str, Any]:
    with (REPOSITORY / "pyproject.toml").open("rb") as file:
        table: dict[str, Any] = tomllib.load(file)["tool"]["setuptools"]
    return table


def source_files(*suffixes: str) -> Iterator[Path]:
    for folder in SOURCE_FOLDERS:
        for path in sorted((REPOSITORY / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix in suffixes:
                yield path.relative_to(REPOSITORY)


def package_of(folder: Path) -> str:
    """The installed name of a folder of the repository."""
    if folder.parts[:2] == ("src", "specplan"):
        return ".".join(("specplan", *folder.parts[2:]))
    return ".".join(("specplan", *folder.parts))


def test_every_package_on_disk_is_listed_and_the_other_way_round() -> None:
    on_disk = {package_of(path.parent) for path in source_files(".py")}
    assert on_disk == set(setuptools_table()["packages"])


def test_every_package_has_an_init_file() -> None:
    without = {path.parent for path in source_files(".py")} - {
        path.parent for path in source_files(".py") if path.name == "__init__.py"
    }
    assert not without


def test_every_data_file_is_packaged() -> None:
    patterns: dict[str, list[str]] = setuptools_table()["package-data"]
    packages = set(setuptools_table()["packages"])
    unpackaged = []
    for path in source_files(".yaml", ".json", ".jsonl", ".typed", ".txt", ".md", ".csv"):
        folder = path.parent  # data lies in a package, or in a plain folder below one
        while package_of(folder) not in packages:
            folder = folder.parent
        name = path.relative_to(folder).as_posix()
        if not any(fnmatch(name, pattern) for pattern in patterns.get(package_of(folder), [])):
            unpackaged.append(str(path))
    assert not unpackaged


@pytest.mark.parametrize("path", source_files(".py"), ids=str)
def test_files_are_short(path: Path) -> None:
    lines = (REPOSITORY / path).read_text(encoding="utf-8").count("\n")
    assert lines < LONGEST_FILE, "when a file needs a table of contents it is two files"


UNSAFE = re.compile(
    r"\bimport pickle\b|\bpickle\.loads?\b|\btorch\.(load|save)\(|trust_remote_code\s*=\s*True"
    r"|\byaml\.(load|unsafe_load)\(|\b(eval|exec)\(|shell\s*=\s*True"
)


def test_no_unsafe_loading() -> None:
    found = [
        f"{path}:{number}: {line.strip()}"
        for path in source_files(".py")
        for number, line in enumerate((REPOSITORY / path).read_text().splitlines(), start=1)
        if UNSAFE.search(line) and ".eval()" not in line
    ]
    assert not found


def test_sibling_packages_are_imported_by_their_full_name() -> None:
    bare = re.compile(
        r"^\s*(from|import) (ir|cost_models|passes|planner|runtime|backends|measure)\b"
    )
    found = [
        f"{path}:{number}: {line.strip()}"
        for path in source_files(".py")
        for number, line in enumerate((REPOSITORY / path).read_text().splitlines(), start=1)
        if bare.match(line)
    ]
    assert not found


def modules_after(code: str) -> set[str]:
    """The top-level modules loaded in a fresh interpreter after running `code`."""
    probe = f"{code}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True, cwd=REPOSITORY
    )
    return set(done.stdout.splitlines()[-1].split())


def test_import_specplan_is_light() -> None:
    assert not modules_after("import specplan") & set(HEAVY)


@pytest.mark.parametrize("folder", ["ir", "cost_models", "passes", "planner", "cli", "api"])
def test_planning_loads_no_torch(folder: str) -> None:
    loaded = modules_after(f"import specplan.{folder}")
    assert not loaded & {"torch", "transformers", "tokenizers", "onnxruntime", "triton"}


def test_public_names_exist() -> None:
    import specplan

    for name in specplan.__all__:
        assert getattr(specplan, name) is not None
    assert set(specplan.__all__) <= set(dir(specplan))
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = specplan.nothing_of_the_kind
