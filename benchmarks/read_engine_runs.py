"""Rows of public collections of engine benchmarks, as one file for `serving.py --rows`.

    python benchmarks/read_engine_runs.py --out rows.json [--accelmark DIR] [--cookbook DIR]
        [--gpustack DIR] [--inferencex DIR]

Each DIR is a checkout: github.com/FreedomIntelligence/AccelMark, sgl-project/sgl-cookbook,
gpustack/gpustack, and the folder `packages/app/cypress/fixtures/api` of InferenceX-app.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from engine_rows import accelmark, inferencex, serving_pages

READERS = {
    "accelmark": accelmark.rows,
    "cookbook": serving_pages.cookbook_rows,
    "gpustack": serving_pages.gpustack_rows,
    "inferencex": inferencex.rows,
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", type=Path, required=True)
    for name in READERS:
        parser.add_argument(f"--{name}", type=Path)
    options = vars(parser.parse_args(arguments))
    rows = [row for name, read in READERS.items() if options[name] for row in read(options[name])]
    options["out"].write_text(json.dumps(rows, indent=1), encoding="utf-8")
    print(f"{len(rows)} rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
