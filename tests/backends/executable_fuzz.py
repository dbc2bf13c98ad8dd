"""Damaged executables and kernels, opened and run: a process of its own, as parsers of others run.

    python -m tests.backends.executable_fuzz SEED COUNT FOLDER...

prints, for each bundle, the number and the file of each change before it is tried, then one JSON
line: how often files of each kind were refused, run, interpreted, or ran to other tokens.
"""

from __future__ import annotations

import json
import random
import sys
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path

import torch

from specplan.backends.bundle import load_bundle
from specplan.backends.bundle_executable import load_models, open_executable
from specplan.backends.kernels.kernel_folder import read_kernels
from specplan.backends.kernels.variants import INDEX
from specplan.backends.machine import check_kernels, check_machine
from specplan.backends.manifest import KERNELS, MANIFEST
from specplan.ir.errors import SpecplanError
from specplan.runtime.generate import generate
from specplan.runtime.models.causal import CausalModel
from tests.backends.mutations import changed, sum_anew
from tests.backends.served_bundle import REQUESTS

OTHER = "other tokens"


def outcome(folder: Path, models: dict[str, CausalModel]) -> tuple[str, object]:
    """`refused`, `run` or `interpreted`, and the tokens and launches that came of it."""
    try:
        bundle = load_bundle(folder)
        check_machine(bundle)
        check_kernels(bundle, "sm_90")
        kernels = read_kernels(folder / KERNELS, "sm_90")
        launches = [
            replace(kernels[name].kernel, shared_bytes=0, sha256="")
            for name in ("gated_silu_fp32", "rms_norm_fp32")  # those that its rounds launch
        ]
        executable = open_executable(bundle, models)
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always")
            tokens = generate(executable, REQUESTS).completions[0].tokens
    except SpecplanError as error:
        assert str(error).strip() and "Traceback" not in str(error)
        return "refused", None
    return "interpreted" if noted else "run", (tokens, launches)


def damage(folder: Path, path: Path, draws: random.Random) -> None:
    """Change a file, and make all sums anew that are of it."""
    before = json.loads((folder / MANIFEST).read_bytes())["files"].get(
        path.relative_to(folder).as_posix()
    )
    path.write_bytes(changed(path, path.read_bytes(), draws))
    if path.name == MANIFEST:
        return
    after = sum_anew(folder, path)
    index = folder / KERNELS / INDEX
    if path.suffix == ".cubin":
        index.write_text(index.read_text().replace(before, after))
        sum_anew(folder, index)


def main(folder: Path, seed: int, count: int) -> None:
    """Change one file, see what becomes of the bundle, put it back; `count` times."""
    torch.set_num_threads(1)
    draws, models = random.Random(seed), load_models(load_bundle(folder))
    _, sound = outcome(folder, models)
    assert sound is not None
    whole = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    compiled = [path for path in whole if path.parent.name.startswith("decode")]
    others = [path for path in whole if KERNELS in path.parts or path.name == MANIFEST]
    outcomes: Counter[str] = Counter()
    for number in range(count):
        path = draws.choice(sorted(compiled if draws.random() < 0.7 else others))
        print(number, path.name, flush=True)
        damage(folder, path, draws)
        how, what = outcome(folder, models)
        outcomes[f"{path.name if path in compiled else path.suffix} {how}"] += 1
        if how != "refused" and what != sound:
            outcomes[f"{path.name} {OTHER}"] += 1
        for changed_path in {path, folder / MANIFEST, folder / KERNELS / INDEX}:
            changed_path.write_bytes(whole[changed_path])
    assert outcome(folder, models)[1] == sound
    print(json.dumps(outcomes))


if __name__ == "__main__":
    for bundle_folder in sys.argv[3:]:
        main(Path(bundle_folder), int(sys.argv[1]), int(sys.argv[2]))
