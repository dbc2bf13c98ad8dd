"""Reads what torch-tensorrt converts out of its wheels, without installing or running them.

    pip download torch-tensorrt==2.13.0 --no-deps --only-binary=:all: --python-version 3.12 -d W
    python benchmarks/read_torch_tensorrt.py W/*.whl [--out FOLDER]

One file per version: targets with their converters, the ops that it decomposes or keeps, and the
settings of its compiler with their defaults. Only sources are parsed (`ast`).
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "backends" / "tensorrt" / "conversion" / "registries"
CONVERSION = "torch_tensorrt/dynamo/conversion"
CONVERTERS = ("aten_ops_converters", "ops_evaluators", "prims_ops_converters")
LOWERING = "torch_tensorrt/dynamo/lowering"
DECORATOR, DECOMPOSITION = "dynamo_tensorrt_converter", "register_torch_trt_decomposition"


def read_wheel(path: Path) -> dict[str, Any]:
    """What a wheel of torch-tensorrt says of itself, as `registries/VERSION.json` has it."""
    with zipfile.ZipFile(path) as archive:

        def source(name: str) -> ast.Module:
            return ast.parse(archive.read(name))

        converters: dict[str, list[dict[str, Any]]] = {}
        for module in CONVERTERS:
            tree = source(f"{CONVERSION}/{module}.py")
            evaluates = module == "ops_evaluators"
            for target, one, high in converters_in(tree):
                rows = converters.setdefault(target, [])
                row = one | ({"evaluates": True} if evaluates else {})
                rows.insert(0 if high else len(rows), row)
        versions = assigned(source("torch_tensorrt/_version.py"))
        groups = assigned(source(f"{LOWERING}/_decomposition_groups.py"))
        own = own_decompositions(source(f"{LOWERING}/_decompositions.py"))
        defaults = assigned(source("torch_tensorrt/dynamo/_defaults.py"))
        settings = keywords_of(source("torch_tensorrt/dynamo/_compiler.py"), "compile", defaults)
    return {
        "version": versions["__version__"],
        "tensorrt": versions["__tensorrt_version__"],
        "wheel": path.name,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "converters": dict(sorted(converters.items())),
        "decomposed_by_torch": sorted(map(target_of, groups["torch_enabled_decompositions"].elts)),
        "kept": sorted(map(target_of, groups["torch_disabled_decompositions"].elts)),
        "decomposed": sorted(own),
        "settings": settings,
    }


def converters_in(tree: ast.Module) -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Target, conditions and priority of every converter, in the order of registration.

    Those of packages that are not part of it (modelopt) are left out: they are inside `try`.
    """
    for function in functions_in(tree.body):
        for decorator in reversed(function.decorator_list):
            if not isinstance(decorator, ast.Call) or ast.unparse(decorator.func) != DECORATOR:
                continue
            given = {one.arg: one.value for one in decorator.keywords}
            if ast.unparse(given.get("enabled", ast.Constant(True))) != "True":
                continue
            row: dict[str, Any] = {}
            if "capability_validator" in given:
                row["if"] = condition_of(given["capability_validator"])
            for word, name in (
                ("dynamic", "supports_dynamic_shapes"),
                ("allocator", "requires_output_allocator"),
            ):
                if name in given and ast.unparse(given[name]) == "True":
                    row[word] = True
            high = ast.unparse(given.get("priority", ast.Constant(""))).endswith("HIGH")
            yield target_of(decorator.args[0]), row, high


def functions_in(body: list[ast.stmt]) -> Iterator[ast.FunctionDef]:
    """Functions of a module, those under a test of TensorRT's version among them."""
    for statement in body:
        if isinstance(statement, ast.FunctionDef):
            yield statement
        elif isinstance(statement, ast.If) and "version" in ast.unparse(statement.test):
            yield from functions_in(statement.body)


def target_of(node: ast.expr) -> str:
    """An op as graphs name it: `aten.add.Tensor`, without an overload where all are meant."""
    return ast.unparse(node).removeprefix("torch.ops.")


def condition_of(node: ast.expr) -> str:
    """A condition of a node as it is written, in one line."""
    return ast.unparse(node.body if isinstance(node, ast.Lambda) else node)


def own_decompositions(tree: ast.Module) -> Iterator[str]:
    """Ops that torch-tensorrt rewrites by functions of its own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            for one in node.decorator_list:
                if isinstance(one, ast.Call) and ast.unparse(one.func) == DECOMPOSITION:
                    name = target_of(one.args[0])
                    if "." in name:  # else the parameter of a helper
                        yield name
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "replace_inplace_op":
            yield target_of(node.args[0])


def assigned(tree: ast.Module) -> dict[str, Any]:
    """Values of a module's names: constants as they are, all else as syntax."""
    values: dict[str, Any] = {}
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        for target in targets:
            if isinstance(target, ast.Name) and value is not None:
                values[target.id] = value.value if isinstance(value, ast.Constant) else value
    return values


def keywords_of(tree: ast.Module, name: str, defaults: dict[str, Any]) -> dict[str, str]:
    """Keyword arguments of a function with their defaults, as they are written there."""
    (function,) = (
        one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == name
    )
    words: dict[str, str] = {}
    for argument, default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
        word = "" if default is None else ast.unparse(default)
        known = defaults.get(word.removeprefix("_defaults."))
        if known is not None or word.startswith("_defaults."):
            word = ast.unparse(known) if isinstance(known, ast.AST) else repr(known)
        words[argument.arg] = word
    return words


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheels", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    for wheel in options.wheels:
        read = read_wheel(wheel)
        path = options.out / f"{read['version']}.json"
        path.write_text(formatted(read), encoding="utf-8")
        print(f"{path}: {len(read['converters'])} targets")


def formatted(read: dict[str, Any]) -> str:
    """JSON with a line for each target."""
    lines = []
    for key, value in read.items():
        if isinstance(value, dict):
            rows = (f"  {json.dumps(one)}: {json.dumps(row)}" for one, row in value.items())
            lines.append(f"{json.dumps(key)}: {{\n" + ",\n".join(rows) + "\n }")
        elif isinstance(value, list):
            lines.append(
                f"{json.dumps(key)}: [\n  " + ",\n  ".join(map(json.dumps, value)) + "\n ]"
            )
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(value)}")
    return "{\n " + ",\n ".join(lines) + "\n}\n"


if __name__ == "__main__":
    main()
