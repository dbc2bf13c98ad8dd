"""How large is the code?

    python benchmarks/code_size.py [REVISION] [--json]

Counts lines of code of the tracked sources, by top-level folder: without docstrings, comments,
imports and blank lines. YAML counts where it states formulas; device sheets, tables of engines and
published figures do not. `REVISION` counts another commit.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
from collections import Counter
from collections.abc import Iterator

NO_SOURCE = ("tests", "benchmarks", "examples", "docs")
FORMULAS = "cost_models/formulas/"


def code_lines(source: str) -> int:
    """Lines of a module that are neither docstring, comment, import nor blank."""
    skipped: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        prose = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        text = prose and isinstance(node.value.value, str)  # type: ignore[attr-defined]
        if text or isinstance(node, ast.Import | ast.ImportFrom):
            skipped.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))  # type: ignore[attr-defined]
    return sum(
        1
        for number, line in enumerate(source.splitlines(), start=1)
        if number not in skipped and line.strip() and not line.strip().startswith("#")
    )


def sources(revision: str | None) -> Iterator[tuple[str, str]]:
    """Path and text of every tracked source, in the work tree or in a revision."""
    listing = ["git", "ls-files"] if revision is None else ["git", "ls-tree", "-r", "--name-only"]
    command = listing if revision is None else [*listing, revision]
    for path in subprocess.run(command, capture_output=True, text=True, check=True).stdout.split():
        formulas = path.startswith(FORMULAS) and path.endswith(".yaml")
        if path.split("/")[0] in NO_SOURCE or not (path.endswith(".py") or formulas):
            continue
        if revision is None:
            with open(path, encoding="utf-8") as file:
                yield path, file.read()
        else:
            shown = ["git", "show", f"{revision}:{path}"]
            yield path, subprocess.run(shown, capture_output=True, text=True, check=True).stdout


def count(revision: str | None) -> Counter[str]:
    """Lines of code by top-level folder."""
    lines: Counter[str] = Counter()
    for path, text in sources(revision):
        if path.endswith(".py"):
            lines[path.split("/")[0]] += code_lines(text)
        else:
            lines[path.split("/")[0]] += sum(
                1
                for line in text.splitlines()
                if line.strip() and not line.lstrip().startswith("#")
            )
    return lines


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("revision", nargs="?")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    lines = count(arguments.revision)
    total = sum(lines.values())
    if arguments.json:
        print(json.dumps({"folders": dict(lines), "total": total}))
        return
    for folder, number in lines.most_common():
        print(f"{folder:<14}{number:>8,}")
    print(f"{'all':<14}{total:>8,}")


if __name__ == "__main__":
    main()
