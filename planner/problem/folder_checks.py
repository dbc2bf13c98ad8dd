"""Checks of the folders that a problem names."""

from __future__ import annotations

from specplan.planner.problem.errors import Origin
from specplan.planner.problem.schema import Problem

DATASTORE = "datastore"
DATASTORE_FILE = "datastore.json"
"""Comes last: without it there is no datastore."""


def check_folders(problem: Problem, origin: Origin) -> None:
    """Refuse a folder for tables that is a file, and a datastore that is missing.

    Raises:
        UsageError: naming the key.
    """
    if problem.profiles.exists() and not problem.profiles.is_dir():
        raise origin.usage(
            "profiles",
            f"{problem.profiles} is a file",
            "Name a folder for measured tables; it is made when it is missing.",
        )
    make = "Make one with `specplan datastore build`"
    if DATASTORE in problem.sources and problem.datastore is None:
        raise origin.usage(
            DATASTORE, f'the source "{DATASTORE}" needs a folder', f"{make} and name it here."
        )
    if problem.datastore is not None and not (problem.datastore / DATASTORE_FILE).is_file():
        raise origin.usage(
            DATASTORE, f"there is no finished datastore in {problem.datastore}", f"{make}."
        )
