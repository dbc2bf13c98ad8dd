"""Runs in the environment of SGLang: its arguments, their whole resolution, and its checks.

A CUDA device is declared, and packages of kernels, which a CPU cannot load, are replaced by empty
modules. Argument: folder of cases. Prints one JSON document.
"""

import importlib.abc
import importlib.machinery
import json
import logging
import os
import sys
import types
from pathlib import Path

KERNELS = (
    "torchvision", "torchaudio", "sgl_kernel", "flashinfer", "deep_gemm", "cutlass", "quack",
    "flash_attn",
)  # fmt: skip


class Any:
    """Something with every attribute, that can be called."""

    def __init__(self, *a, **k):
        pass

    def __call__(self, *a, **k):
        return Any()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Any()


class Kind(type):
    """A class with every attribute."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Any()


class Empty(types.ModuleType):
    """A module with every name; those with a capital are classes."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if not name[0].isupper():
            return Any()
        kind = Kind(name, (), {"__init__": lambda self, *a, **k: None})
        setattr(self, name, kind)
        return kind


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the packages of kernels."""

    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in KERNELS:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = Empty(spec.name)
        module.__path__ = []
        return module

    def exec_module(self, module):
        module.__version__ = "9.9.9"


sys.meta_path.insert(0, Finder())
os.environ["HF_HUB_OFFLINE"] = "1"
import torch  # noqa: E402

torch.cuda.is_available = lambda: True
torch.cuda.device_count = lambda: 8
torch.cuda.get_device_capability = lambda *a, **k: (9, 0)
torch.cuda.get_device_name = lambda *a, **k: "NVIDIA H200"
torch.cuda.mem_get_info = lambda *a, **k: (140 * 2**30, 141 * 2**30)
torch.cuda.get_device_properties = lambda *a, **k: types.SimpleNamespace(
    multi_processor_count=132, total_memory=141 * 2**30, name="NVIDIA H200", major=9, minor=0,
    gcnArchName="",
)  # fmt: skip
torch.cuda.current_device = lambda: 0
torch.cuda.set_device = lambda *a: None
torch.version.cuda = "13.0"

import sglang  # noqa: E402
from sglang.srt import server_args  # noqa: E402

logging.disable(logging.ERROR)


def check(case):
    """Why a case is not taken; "" where it is."""
    here = Path.cwd()
    os.chdir(case)
    try:
        arguments = server_args.prepare_server_args(["--config", "sglang.yaml"])
        arguments.resolve_once()
        arguments.check_server_args()
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error}"[:600]
    finally:
        os.chdir(here)
    return ""


def options():
    """Names and choices of the server's options."""
    import argparse

    parser = argparse.ArgumentParser()
    server_args.ServerArgs.add_cli_args(parser)
    by_name = {}
    for action in parser._actions:
        for name in action.option_strings:
            choices = [str(one) for one in action.choices] if action.choices else None
            by_name[name.lstrip("-")] = {"choices": choices} if choices else {}
    return by_name


def main():
    cases = {case.name: check(case) for case in sorted(Path(sys.argv[1]).iterdir())}
    print(json.dumps({"cases": cases, "version": sglang.__version__, "options": options()}))


main()
