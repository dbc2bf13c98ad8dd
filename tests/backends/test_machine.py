"""Machines that a bundle's executables run on, and those that are refused, with the reason."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from specplan.backends import machine
from specplan.backends.machine import features_in, this_machine
from specplan.backends.manifest import Machine
from specplan.ir.errors import MissingCapabilityError

KNOWN = [("Linux", "x86_64"), ("Linux", "aarch64")]
"""Whose list of features is read."""
MACHINE = Machine("Linux", "x86_64", "AVX2", "2.13")


@pytest.mark.parametrize(
    ("here", "words"),
    [
        (Machine("Darwin", "x86_64", "AVX2", "2.13"), r"system Linux \(here Darwin\)"),
        (Machine("Linux", "aarch64", "AVX2", "2.13"), r"processor x86_64 \(here aarch64\)"),
        (Machine("Linux", "x86_64", "DEFAULT", "2.13"), r"instructions AVX2 \(here DEFAULT\)"),
        (Machine("Linux", "x86_64", "AVX2", "2.12"), r"torch 2.13 \(here 2.12\)"),
    ],
)
def test_other_machines_are_refused(here: Machine, words: str) -> None:
    with pytest.raises(MissingCapabilityError, match=words):
        MACHINE.require(here, "bundle")


def test_onnxruntime_is_asked_for_where_a_round_needs_it() -> None:
    needing = replace(MACHINE, onnxruntime="1.31")
    needing.require(needing, "bundle")
    MACHINE.require(needing, "bundle")
    for here, words in ((MACHINE, "missing"), (replace(MACHINE, onnxruntime="1.24"), "1.24")):
        with pytest.raises(MissingCapabilityError, match=rf"onnxruntime 1.31 \(here {words}\)"):
            needing.require(here, "bundle")


def test_instruction_sets_that_the_compiler_used_are_asked_for() -> None:
    """The widest vectors are the same; what the compiler chose for itself is not."""
    info = "processor : 0\nflags\t\t: fpu sse2 avx2 {} avx512f hypervisor aes\n"
    wide, old = (features_in(info.format(name)) for name in ("avx512_bf16 amx_tile fma", "fma"))
    assert wide == ("amx_tile", "avx2", "avx512_bf16", "avx512f", "fma", "sse2")
    made, here = (replace(MACHINE, instructions="AVX512", features=flags) for flags in (wide, old))
    made.require(made, "bundle")
    here.require(made, "bundle")
    with pytest.raises(MissingCapabilityError, match=r"features amx_tile avx512_bf16 \(missing"):
        made.require(here, "bundle")
    mixed = info.format("fma amx_tile") + info.format("fma")
    assert "amx_tile" not in features_in(mixed) and "fma" in features_in(mixed)
    assert features_in("processor\t: 0\nFeatures\t: fp asimd sve\n") == ("asimd", "fp", "sve")
    assert features_in("") == ()


def test_machines_that_can_do_more_are_taken() -> None:
    MACHINE.require(MACHINE, "bundle")
    MACHINE.require(Machine("Linux", "x86_64", "AVX512", "2.13"), "bundle")


def test_this_machine_is_one_that_it_takes() -> None:
    here = this_machine()
    here.require(here, "bundle")
    assert here.features or (here.system, here.architecture) not in KNOWN


@pytest.mark.parametrize(
    ("module", "version"), [(SimpleNamespace(__version__="1.99.3"), "1.99"), (None, "")]
)
def test_the_runtime_is_asked_for_by_its_module(
    monkeypatch: pytest.MonkeyPatch, module: object, version: str
) -> None:
    """Which several distributions bring: onnxruntime, onnxruntime-gpu."""
    monkeypatch.setitem(sys.modules, "onnxruntime", module)
    monkeypatch.setattr(machine, "onnxruntime_version", machine.onnxruntime_version.__wrapped__)
    assert this_machine().onnxruntime == version
