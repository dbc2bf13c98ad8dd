"""What lies below the planner knows no method, and modules import each other downhill."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from specplan.planner.method import discover_methods
from tests.test_house import REPOSITORY, package_of, source_files

BELOW = ("ir", "cost_models", "passes", "runtime", "backends")
"""Folders below the planner."""
ENGINES = "backends/engines"
NAMED = {
    "ir/tables/builtin.py": {
        "cascade",
        "contrastive",
    },  # the same as the rule of an earlier version, which is refused
    "cost_models/acceptance/draft_sources.py": {"suffix"},  # a source by its word in problem files
    "cost_models/models/heads/eagle.py": {"eagle3"},  # what checkpoints say they are
    "cost_models/models/heads/own_modules.py": {"mtp"},
    "cost_models/models/heads/reading.py": {"eagle3", "mtp"},
    f"{ENGINES}/checkpoints.py": {"eagle3"},  # what checkpoints say they are
    f"{ENGINES}/openvino_genai.py": {"draft_model", "prompt_lookup"},  # keys of engines' own files
    f"{ENGINES}/vllm.py": {"draft_model", "eagle3", "mtp", "suffix"},
}
"""Words of other tables and of the world outside that some method's name equals."""
READ_BY_PATTERN = {
    "ir/blocks.py": "names of a model's blocks",
    "ir/text/json_form.py": "names in plans",
    "ir/text/lexer.py": "plan text",
    "ir/text/yaml_text.py": "numbers in YAML",
    "ir/values.py": "plan text",
    "cost_models/acceptance/old_profiles.py": "drafters' names in profiles of earlier versions",
    "cost_models/acceptance/importers/sglang_log.py": "log lines of SGLang",
    "cost_models/acceptance/importers/vllm_log.py": "log lines of vLLM",
    "cost_models/placement.py": "names of tensors",
    "cost_models/prometheus_text.py": "what a serving engine reports",
    "cost_models/models/files/gguf_config.py": "names of tensors",
    "cost_models/models/heads/own_modules.py": "names of tensors",
    "cost_models/models/modules.py": "names of modules",
    "cost_models/models/files/stored_parts.py": "names of tensors",
    "cost_models/devices/device.py": "names of devices",
    "backends/engines/endings.py": "formulas that end drafts early",
    "cost_models/devices/measured/table.py": "what a table's reader complains of",
    "cost_models/devices/silicon/package.py": "numbers of versions",
    "runtime/models/heads/loading.py": "names of tensors",
    "runtime/threads/points.py": "points of an outline that a model wrote",
    "runtime/threads/thoughts.py": "scores that a model wrote",
    "backends/machine.py": "what the system says of its processor",
    "backends/onnx_export/exporting.py": "names and complaints of the exporter",
    "backends/onnxruntime/package.py": "what a session complains of",
}
"""Modules that use `re`, and what they read by it: of drafters and profiles old names alone."""


def _below() -> Iterator[tuple[str, ast.Module]]:
    """Modules below the planner, by path."""
    for path in source_files(".py"):
        if path.parts[0] in BELOW:
            yield path.as_posix(), _parsed(path)


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse((REPOSITORY / path).read_text(encoding="utf-8"))


def _words(tree: ast.Module) -> Iterator[str]:
    """String literals of a module, its docstrings left out."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docstrings
        ):
            yield node.value


def test_no_method_is_named_below_the_planner() -> None:
    methods = {*discover_methods()}
    named_by_place = {
        place: named for place, tree in _below() if (named := methods & {*_words(tree)})
    }
    assert named_by_place == {place: named for place, named in NAMED.items() if named & methods}
    named = {"ir/tables/laws", "runtime/laws"}
    files = {path.as_posix() for path in source_files(".py") if path.stem in methods}
    assert {one.rpartition("/")[0] for one in files} - {"planner/methods"} <= named


def test_few_modules_below_the_planner_read_by_patterns() -> None:
    users = {
        place
        for place, tree in _below()
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        and "re" in {getattr(node, "module", None), *(alias.name for alias in node.names)}
    }
    assert users == set(READ_BY_PATTERN)


def _run_on_import(body: Iterable[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    """Imports that run when a module does: those of functions and of type checkers do not."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from _run_on_import(node.orelse)
        else:
            inner = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.stmt)]
            inner += [part for handler in getattr(node, "handlers", ()) for part in handler.body]
            yield from _run_on_import(inner)


def _modules() -> dict[str, Path]:
    """Modules of the package by their full names; a package by its `__init__`."""
    by_name = {}
    for path in source_files(".py"):
        package = package_of(path.parent)
        by_name[package if path.stem == "__init__" else f"{package}.{path.stem}"] = path
    return by_name


def _needs(name: str, tree: ast.Module, modules: dict[str, Path]) -> set[str]:
    """Modules that one has to run first: what it imports, and the packages around these."""
    wanted = set()
    for node in _run_on_import(tree.body):
        for alias in node.names:
            whole = node.module if isinstance(node, ast.ImportFrom) else alias.name
            inner = f"{whole}.{alias.name}"
            wanted.add(inner if inner in modules else whole or "")
    around = {
        ".".join(one.split(".")[:size]) for one in wanted for size in range(1, one.count(".") + 1)
    }
    own = {".".join(name.split(".")[:size]) for size in range(1, name.count(".") + 2)}
    return (wanted | (around - own)) & modules.keys()


def _circle(modules: dict[str, Path]) -> str:
    """Modules that import each other, one after another; empty where none do."""
    graph = {name: _needs(name, _parsed(path), modules) for name, path in modules.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return " imports ".join(error.args[1])
    return ""


def test_no_module_imports_itself_by_way_of_others() -> None:
    modules = _modules()
    assert len(modules) > 500
    assert not _circle(modules)


@pytest.mark.parametrize(
    ("last", "module"),
    [
        ("from one import first", "first"),
        ("import one.first", "first"),
        ("try:\n    from one.first import NAME\nexcept ImportError:\n    pass", "first"),
        ("class Late:\n    from one import first", "first"),
        ("from one import second", "one.second"),
        ("from one.inner import other", ""),
        ("def late():\n    from one import first", ""),
        ("if TYPE_CHECKING:\n    from one import first", ""),
        ("from elsewhere import first", ""),
    ],
)
def test_a_circle_is_found(last: str, module: str, tmp_path: Path) -> None:
    """`first` imports `second`, that `inner`, and this something at last."""
    texts = {
        "one": "",
        "one.first": "from one.second import NAME",
        "one.second": "from one.inner import NAME",
        "one.inner": f"from one.inner.last import NAME\n{last}",
        "one.inner.last": "NAME = 1",
        "one.inner.other": "NAME = 1",
    }
    modules = {}
    for name, text in texts.items():
        modules[name] = tmp_path / name
        modules[name].write_text(text, encoding="utf-8")
    circle = _circle(modules)
    assert module in circle and bool(circle) == bool(module)
