"""Rules of the house that no linter knows: packaging, file sizes, unsafe calls, lazy imports."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
SOURCE_FOLDERS = (
    "ir", "cost_models", "passes", "planner", "runtime", "backends", "measure", "training",
    "src/specplan",
)  # fmt: skip
HEAVY = ("torch", "transformers", "scipy", "sympy", "pydantic", "networkx", "numpy", "typer")
LONGEST_FILE = 300


def source_files(*suffixes: str) -> Iterator[Path]:
    for folder in SOURCE_FOLDERS:
        for path in sorted((REPOSITORY / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix in suffixes:
                yield path.relative_to(REPOSITORY)


def test_every_package_has_an_init_file() -> None:
    without = {path.parent for path in source_files(".py")} - {
        path.parent for path in source_files(".py") if path.name == "__init__.py"
    }
    assert not without


def package_of(folder: Path) -> str:
    """The installed name of a folder of the repository."""
    return installed_name(folder).replace("/", ".")


def installed_name(path: Path) -> str:
    """Where a file of the repository lies in the installed package."""
    parts = path.parts[1:] if path.parts[0] == "src" else ("specplan", *path.parts)
    return "/".join(parts)


def test_wheel_and_sdist_hold_what_the_tree_holds(tmp_path: Path) -> None:
    """Every module and data file, as real files: `src/specplan/X` is a link to folder X."""
    copy = tmp_path / "tree"
    ignored = shutil.ignore_patterns(".*", "build", "dist", "__pycache__", "tests", "examples")
    shutil.copytree(REPOSITORY, copy, symlinks=True, ignore=ignored)
    build = (
        "from setuptools import build_meta as b; print(b.build_wheel('out'), b.build_sdist('out'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", build], capture_output=True, text=True, check=True, cwd=copy
    )
    wheel, sdist = done.stdout.splitlines()[-1].split()
    expected = {
        installed_name(path)
        for path in source_files(".py", ".yaml", ".json", ".typed", ".txt", ".j2", ".cpp", ".h")
    }
    with zipfile.ZipFile(copy / "out" / wheel) as archive:
        assert {name for name in archive.namelist() if ".dist-info/" not in name} == expected
    with tarfile.open(copy / "out" / sdist) as archive:
        members = {one.name.partition("/")[2]: one for one in archive.getmembers()}
    assert {f"src/{name}" for name in expected} <= set(members)
    assert not [name for name, one in members.items() if one.issym() or one.islnk()]


def test_files_are_short() -> None:
    """When a file needs a table of contents, it is two files."""
    lines = {
        path: (REPOSITORY / path).read_text(encoding="utf-8").count("\n")
        for path in source_files(".py", ".cpp", ".h")
    }
    assert not {path: count for path, count in lines.items() if count >= LONGEST_FILE}


UNSAFE = re.compile(
    r"\bimport pickle\b|\bpickle\.loads?\b|\btorch\.(load|save)\(|trust_remote_code\s*=\s*True"
    r"|\byaml\.(load|unsafe_load)\(|\b(eval|exec)\(|shell\s*=\s*True"
)


def test_no_unsafe_loading() -> None:
    unsafe = [
        f"{path}:{number}: {line.strip()}"
        for path in source_files(".py")
        for number, line in enumerate((REPOSITORY / path).read_text().splitlines(), start=1)
        if UNSAFE.search(line) and ".eval()" not in line
    ]
    assert not unsafe


def test_sibling_packages_are_imported_by_their_full_name() -> None:
    bare = re.compile(
        r"^\s*(from|import) (ir|cost_models|passes|planner|runtime|backends|measure)\b"
    )
    short = [
        f"{path}:{number}: {line.strip()}"
        for path in source_files(".py")
        for number, line in enumerate((REPOSITORY / path).read_text().splitlines(), start=1)
        if bare.match(line)
    ]
    assert not short


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
