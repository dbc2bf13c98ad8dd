"""Damaged bundles are refused with a clear error, or are read as what they were; nothing else.

Half of the mutations leave the manifest's sums as they are, so that integrity is what refuses them.
The other half make the sums anew, as one would who edits a bundle by hand: then the readers behind
them must hold. Those of compiled rounds and kernels are in `test_served.py`.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from specplan.backends.bundle import Bundle, load_bundle, write_bundle, write_executables
from specplan.backends.manifest import Executables, Machine, Shape
from specplan.ir.errors import SpecplanError, UsageError
from specplan.ir.rules.verify import verify_plan
from specplan.ir.text.parser import parse_plan
from tests.backends.mutations import changed, mutated, sum_anew
from tests.matrix import sized
from tests.planner.checkpoints import write_checkpoint

PLANS = Path(__file__).parent.parent / "ir" / "plans"
MACHINE = Machine("Linux", "x86_64", "AVX2", "2.13")
EXECUTABLES = Executables(MACHINE, "greedy", (Shape(1, 256, "inductor", {"inductor": 0.01}),))
CODE = "executables/decode-greedy-b1-t256/round.pt2"
MUTATIONS = sized(1000, 20_000)
"""Of each of the two kinds; those of compiled rounds are in `test_served.py`."""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A bundle with executables; nobody runs these."""
    folder = tmp_path_factory.mktemp("fuzz")
    models = {name: (folder / name, "auto") for name in ("target", "draft")}
    for path, _ in models.values():
        write_checkpoint(path)
    written = write_bundle(
        folder / "bundle",
        plan=parse_plan((PLANS / "draft_chain.plan").read_text()),
        problem={"schema_version": 1, "workload": {"batch_sizes": [1]}},
        report={"candidates": [], "chosen": 0},
        models=models,
        backend="eager",
        versions={"specplan": "0"},
    )
    home = folder / "compiled" / "decode-greedy-b1-t256"
    home.mkdir(parents=True)
    (home / "round.pt2").write_bytes(random.Random(0).randbytes(2000))
    return write_executables(written, EXECUTABLES, folder / "compiled")


def outcome(folder: Path) -> Bundle | SpecplanError:
    """A bundle or a clear error; anything else fails the test."""
    try:
        return load_bundle(folder)
    except SpecplanError as error:
        assert str(error).strip() and "Traceback" not in str(error)
        return error


def files_of(bundle: Bundle) -> list[str]:
    paths = (path for path in bundle.folder.rglob("*") if path.is_file())
    return sorted(path.relative_to(bundle.folder).as_posix() for path in paths)


def test_every_change_is_noticed_by_its_sum(bundle: Bundle) -> None:
    draws, names = random.Random(1), files_of(bundle)
    refused = 0
    for _ in range(MUTATIONS):
        path = bundle.folder / draws.choice(names)
        raw = path.read_bytes()
        path.write_bytes(damaged := mutated(raw, draws))
        outcome_of = outcome(bundle.folder)
        path.write_bytes(raw)
        if path.name != "manifest.json":
            assert isinstance(outcome_of, SpecplanError) == (damaged != raw), (path.name, damaged)
        refused += isinstance(outcome_of, SpecplanError)
    assert refused > 0.9 * MUTATIONS
    assert outcome(bundle.folder) == bundle


def test_readers_hold_where_the_sums_are_made_anew(bundle: Bundle) -> None:
    draws, manifest_path = random.Random(2), bundle.folder / "manifest.json"
    sound, names = manifest_path.read_bytes(), files_of(bundle)
    names.remove(CODE)
    read = 0
    for _ in range(MUTATIONS):
        path = bundle.folder / draws.choice(names)
        raw = path.read_bytes()
        path.write_bytes(changed(path, raw, draws))
        if path != manifest_path:
            sum_anew(bundle.folder, path)
        outcome_of = outcome(bundle.folder)
        if isinstance(outcome_of, Bundle):
            read += 1
            assert not verify_plan(outcome_of.plan)
            assert parse_plan((bundle.folder / "plan.txt").read_text()) == outcome_of.plan
        path.write_bytes(raw)
        manifest_path.write_bytes(sound)
    assert 0 < read < 0.8 * MUTATIONS
    assert outcome(bundle.folder) == bundle


def test_files_that_the_manifest_does_not_list_are_refused(bundle: Bundle) -> None:
    extra = bundle.folder / "executables" / "decode-greedy-b1-t256" / "more.so"
    extra.write_bytes(b"x")
    with pytest.raises(UsageError, match=r"does not list this file: .*more\.so"):
        load_bundle(bundle.folder)
    extra.unlink()
