"""The record of a tuning: one trial per run of a plan, each durable before it counts.

Optuna stores trials: in a journal file, or in any database that optuna opens by a URL, which
several machines may share. A trial is written whole, by one append or one transaction; a process
that is killed leaves every finished trial and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.measure.tuning.file_lock import FileLock

if TYPE_CHECKING:
    import optuna

_JOURNAL = b'{"op_code":'
"""How optuna begins every line of a journal."""


@dataclass(frozen=True)
class Trial:
    """One run of a plan over a group of prompts.

    Attributes:
        machine: name of the machine that ran it.
        turn: number of that machine's turn, from 0; every contender runs once in a turn.
        batch: requests that ran together.
        prompt_tokens: longest prompt, in tokens.
        plan: which plan, as `plan_key` names it.
        method: of the plan.
        family: of the method.
        words: the setting in a few words.
        seconds: of the run, prompts included.
        tokens: emitted in all.
        rounds: of each request, summed.
        warming: seconds of runs before it that do not count, or of starting an engine; 0 where
            there were none.
        point: the plan's point in the domains of a family of which only some settings are tried;
            else empty.
    """

    machine: str
    turn: int
    batch: int
    prompt_tokens: int
    plan: str
    method: str
    family: str
    words: str
    seconds: float
    tokens: int
    rounds: int
    warming: float = 0.0
    point: Mapping[str, Any] = field(default_factory=dict)

    @property
    def load(self) -> tuple[int, int]:
        """Batch and prompt length."""
        return self.batch, self.prompt_tokens

    @property
    def seconds_per_token(self) -> float:
        """Of each request, per output token."""
        return self.seconds * self.batch / self.tokens


@dataclass(frozen=True)
class Failure:
    """A plan that an engine did not serve to the end.

    Attributes:
        machine: name of the machine that tried.
        plan: which plan, as `plan_key` names it.
        method: of the plan.
        words: the setting in a few words.
        reason: what happened.
        log: the end of what the engine and the benchmark printed.
        seconds: that were spent.
    """

    machine: str
    plan: str
    method: str
    words: str
    reason: str
    log: str
    seconds: float


class TrialLog:
    """The trials of one study; see `open_log`."""

    def __init__(self, study: optuna.Study, storage: str) -> None:
        self._study = study
        self._storage = storage
        self._read: dict[int, Trial] = {}
        self.where = _shown(storage)
        self.name: str = study.study_name

    def reopened(self) -> TrialLog:
        """The same study, read anew.

        Needed after an interrupt: one that arrives while optuna applies a line of the journal
        leaves its copy in memory without that trial, though the file has it.
        """
        return open_log(self._storage, Path(self._storage), self.name)

    def trials(self) -> tuple[Trial, ...]:
        """All finished trials, those of other machines too, by number.

        A run that was recorded twice counts once.

        Raises:
            UsageError: the study holds something else.
        """
        import optuna

        finished = (optuna.trial.TrialState.COMPLETE,)
        for stored in self._study.get_trials(deepcopy=False, states=finished):
            if stored.number not in self._read:
                self._read[stored.number] = _read(stored.user_attrs, self.where)
        first: dict[Any, Trial] = {}
        for number in sorted(self._read):
            trial = self._read[number]
            first.setdefault((trial.machine, trial.turn, trial.load, trial.plan), trial)
        return tuple(first.values())

    def add(self, trial: Trial) -> None:
        """Write a finished trial; it is on disk when this returns."""
        import optuna

        self._study.add_trial(
            optuna.trial.create_trial(value=trial.seconds_per_token, user_attrs=asdict(trial))
        )

    def failures(self) -> tuple[Failure, ...]:
        """All failures since they were last forgotten, by number."""
        import optuna

        states = (optuna.trial.TrialState.FAIL,)
        failures: list[Failure] = []
        for stored in self._study.get_trials(deepcopy=False, states=states):
            failures = [*failures, Failure(**stored.user_attrs)] if stored.user_attrs else []
        return tuple(failures)

    def add_failure(self, failure: Failure | None) -> None:
        """Write a failure, or with None that those so far are forgotten."""
        import optuna

        attributes = {} if failure is None else asdict(failure)
        state = optuna.trial.TrialState.FAIL
        self._study.add_trial(optuna.trial.create_trial(state=state, user_attrs=attributes))


def open_log(storage: str | None, journal: Path, name: str) -> TrialLog:
    """Open a study, or begin it.

    Args:
        storage: a URL of a database as optuna takes it (`sqlite:///tune.db`,
            `postgresql://host/base`), or the path of a journal file; None for `journal`.
        journal: the usual journal file.
        name: of the study; a storage may hold many.

    Raises:
        UsageError: the storage cannot be opened.
        MissingCapabilityError: the driver of the database is not installed.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    where = storage or str(journal)
    backend = _database(where) if "://" in where else _journal(Path(where))
    study = optuna.create_study(study_name=name, storage=backend, load_if_exists=True)
    return TrialLog(study, where)


def _read(attributes: Mapping[str, Any], where: str) -> Trial:
    names = {item.name for item in fields(Trial)}
    try:
        return Trial(**{name: value for name, value in attributes.items() if name in names})
    except TypeError as error:
        raise UsageError(
            "the study has trials that are not of a tuning",
            where=where,
            remedy="Give another --storage.",
        ) from error


def _shown(where: str) -> str:
    """A storage to print: a URL without its password."""
    return re.sub(r"(?<=//)([^:/@]*):[^@]*@", r"\1:***@", where)


def _database(url: str) -> optuna.storages.BaseStorage:
    import optuna

    if url.startswith(("redis:", "rediss:")):
        raise UsageError(
            "optuna stores studies in redis as pickles, which are never loaded here",
            where=f"--storage {_shown(url)}",
            remedy="Name a journal file or a database: sqlite:///FILE, mysql://, postgresql://.",
        )
    try:
        return optuna.storages.RDBStorage(url)
    except ImportError as error:
        raise MissingCapabilityError(
            f"the driver of this database is not installed ({error})",
            where=f"--storage {_shown(url)}",
            remedy="Install it, or name a journal file.",
        ) from error
    except Exception as error:  # of SQLAlchemy, and of its drivers, which have roots of their own
        raise UsageError(
            f"the storage cannot be opened ({type(error).__name__}: {error})",
            where=f"--storage {_shown(url)}",
            remedy="Check the URL, or name a journal file.",
        ) from error


def _journal(path: Path) -> optuna.storages.BaseStorage:
    import optuna
    from optuna.storages.journal import JournalFileBackend

    strange = UsageError(
        "this is no journal of a study",
        where=str(path),
        remedy="Name another file for --storage.",
    )
    if not _may_be_journal(path):
        raise strange
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        lock: Any = FileLock(path)
        backend = JournalFileBackend(str(path), lock_obj=lock)
        with lock:
            pass
        return optuna.storages.JournalStorage(backend)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise strange from error


def _may_be_journal(path: Path) -> bool:
    """Whether a file is missing, or begins as a journal does: nothing else is ever written to."""
    if not path.exists():
        return True
    if path.is_dir():
        return False
    with path.open("rb") as file:
        head = file.read(len(_JOURNAL))
    return head == _JOURNAL[: len(head)]
