"""What every test shares: no network, and data sets that may or may not be there."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
from hypothesis import settings

from tests.matrix import LONG, sized

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# A busy neighbour makes any example slow: how long one takes is no matter of correctness.
settings.register_profile("specplan", deadline=None, max_examples=sized(30, 100))
settings.load_profile("specplan")

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the repository."""
    return REPOSITORY


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of published data sets beside the repository (SPECPLAN_SHARED names another)."""
    folder = Path(os.environ.get("SPECPLAN_SHARED", REPOSITORY.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"published data sets are not there: {folder}")
    return folder


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the long matrix unless it is asked for, and GPU tests where there is no GPU.

    torch loads only when a GPU test was collected.
    """
    if not LONG:
        left_out = [item for item in items if item.get_closest_marker("long")]
        items[:] = [item for item in items if not item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=left_out)
    needing = [item for item in items if item.get_closest_marker("gpu")]
    if needing and not _has_gpu():
        for item in needing:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


def pytest_collection_finish() -> None:
    """Spare the garbage collector modules and tests, which live to the end anyway.

    A collection walks every object that is not frozen; torch and sympy alone hold a million.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)


def pytest_unconfigure() -> None:
    gc.unfreeze()


def _has_gpu() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()
