"""Methods of other packages are found by their entry points; broken ones are named."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from specplan.backends.registry import backend_names
from specplan.ir.errors import UsageError
from specplan.planner.method import discover_methods
from specplan.planner.problem.setting_checks import known_backends

METHOD = """
from specplan.planner.methods.autoregressive import Autoregressive

class Other(Autoregressive):
    name = "{name}"

METHOD = Other()
NOT_A_METHOD = 3
"""


@pytest.fixture
def packages(tmp_path: Path) -> Iterator[Path]:
    """A folder on the path of Python, where distributions can be put."""
    sys.path.insert(0, str(tmp_path))
    discover_methods.cache_clear()
    yield tmp_path
    sys.path.remove(str(tmp_path))
    discover_methods.cache_clear()
    sys.modules.pop("other_methods", None)


def install(folder: Path, point: str, name: str = "other") -> None:
    """Put a distribution there whose entry point is `point`."""
    (folder / "other_methods.py").write_text(METHOD.format(name=name))
    info = folder / "other_methods-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-methods\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text(f"[specplan.methods]\nother = {point}\n")


def test_a_method_of_another_package_is_found(packages: Path) -> None:
    install(packages, "other_methods:METHOD")
    assert "other" in discover_methods()


@pytest.mark.parametrize(
    ("point", "name", "says"),
    [
        ("other_methods:NOT_A_METHOD", "other", "not a Method"),
        ("other_methods:NOTHING", "other", "cannot be loaded"),
        ("no_such_module:METHOD", "other", "cannot be loaded"),
        ("other_methods:METHOD", "draft_model", 'already called "draft_model"'),
    ],
)
def test_a_broken_entry_point_is_named(packages: Path, point: str, name: str, says: str) -> None:
    install(packages, point, name)
    with pytest.raises(UsageError, match=says) as caught:
        discover_methods()
    assert point in caught.value.where and caught.value.remedy


def test_backends_are_known_without_importing_them() -> None:
    assert known_backends() == backend_names()
