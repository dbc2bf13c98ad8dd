"""How often does a reader of one search go back to a room?

    python benchmarks/search_walk.py [PROBLEM] [--stays] [--json]

Plans a problem (a recorded one, without torch) under `sys.setprofile`. A room is a folder of the
source; a file is visited when a function of it is first called. The walk is the list of rooms in
the order of these visits, a stay is a run of visits to one room, and a return is a stay in a room
that was left before. `--stays` prints the walk.
"""

from __future__ import annotations

import argparse
import json
import sys
from itertools import groupby
from pathlib import Path
from types import FrameType

import specplan

ROOT = Path(__file__).parents[1]
PROBLEM = ROOT / "examples/ci/plans/chat-8b-h100/problem.yaml"


def visits(problem: Path) -> list[Path]:
    """Source files, relative to the checkout, in the order in which the search first calls them."""
    from specplan.problems import as_problem

    order: dict[str, None] = {}

    def note(frame: FrameType, event: str, argument: object) -> None:
        # Bodies of modules and classes run at import, which is no step of the search.
        if event == "call" and frame.f_code.co_name != "<module>":
            order.setdefault(frame.f_code.co_filename)

    checked = as_problem(problem)  # reading a file is another walk
    sys.setprofile(note)
    try:
        specplan.optimize(checked)
    finally:
        sys.setprofile(None)
    files = (Path(name).resolve() for name in order)
    inside = [path.relative_to(ROOT) for path in files if path.is_relative_to(ROOT)]
    # Generated functions ("<string>") and an environment inside the checkout are no rooms.
    return [
        path for path in inside if (ROOT / path).is_file() and not path.parts[0].startswith(".")
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Count returns to rooms of one search.")
    parser.add_argument("problem", nargs="?", type=Path, default=PROBLEM)
    parser.add_argument("--stays", action="store_true", help="print every stay with its files")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    stays = [
        (room, [path.name for path in files])
        for room, files in (
            (str(room), list(group))
            for room, group in groupby(visits(options.problem), key=lambda path: path.parent)
        )
    ]
    rooms = {room for room, _ in stays}
    summary = {"stays": len(stays), "rooms": len(rooms), "returns": len(stays) - len(rooms)}
    if options.json:
        print(json.dumps(summary))
        return 0
    if options.stays:
        for room, names in stays:
            print(f"{room:40} {' '.join(names)}")
    print(", ".join(f"{count} {name}" for name, count in summary.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
