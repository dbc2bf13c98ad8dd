"""Compiled rounds in a folder, each in a folder of its own, and the backends that make them."""

from __future__ import annotations

import tempfile
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from specplan.backends.static.buckets import Bucket, Sampling
from specplan.backends.static.executable import StaticExecutable
from specplan.backends.static.graph import RoundGraph
from specplan.backends.static.identity import (
    check_identity,
    identity,
    is_made_for,
    named_weights,
    write_identity,
)
from specplan.backends.static.session import Program, States, TextProgram
from specplan.ir.capabilities import Capabilities, require_support
from specplan.ir.errors import MissingCapabilityError, SpecplanError, UsageError, foreign_words
from specplan.ir.files import staged
from specplan.ir.plan import Plan
from specplan.ir.rules.verify import check_plan
from specplan.runtime.models.heads.looking_ahead import looking_ahead
from specplan.runtime.models.modules import Module


class RoundBackend(ABC):
    """A backend that compiles rounds ahead of time, for the shapes of the batches they meet.

    Attributes:
        capabilities: what it can run.
        fused_on: kinds of device on which what it compiles calls kernels of our own.
        captured_on: kinds of device on which what it compiles is captured in CUDA graphs.
    """

    capabilities: Capabilities
    fused_on: frozenset[str] = frozenset()
    captured_on: frozenset[str] = frozenset()

    @property
    def version(self) -> str:
        """Of what compiles, where that is not torch."""
        return ""

    def made_by(self, models: Mapping[str, Module]) -> dict[str, str]:
        """What else compiled rounds depend on, for `identity`: digests by what they are of."""
        return {}

    @abstractmethod
    def available(self) -> str | None:
        """None when it can run here, else what is missing; imports nothing heavy."""

    @abstractmethod
    def write(self, graph: RoundGraph, tensors: Sequence[Tensor], folder: Path) -> None:
        """Compile a round for tensors of these shapes.

        The number of slots attended to stays free, so that one package serves texts of all lengths.

        Args:
            graph: the round.
            tensors: as `Interface.read` names them; none is changed.
            folder: exists; gets the package's files.

        Raises:
            Exception: whatever the compiler raises.
        """

    @abstractmethod
    def load(self, folder: Path, models: Mapping[str, Module]) -> Program:
        """A compiled round, with the weights of these models."""

    def joined(self, models: Mapping[str, Module]) -> frozenset[str]:
        """Models whose rotation, writes to the cache and attention it runs as one op."""
        return frozenset()

    def text_program(
        self, name: str, model: Module, slots: int, after: States = ()
    ) -> TextProgram | None:
        """What takes text into a cache of so many slots, and writes states after layers."""
        return None

    def check(self, models: Mapping[str, Module], *, frozen: bool) -> None:
        """Refuse what cannot be compiled, or run, before anything is built.

        Args:
            models: by the names the plan gives them.
            frozen: nothing will be compiled.

        Raises:
            MissingCapabilityError: says what is missing, or which model does not run and why.
        """
        missing = None if frozen else self.available()
        if missing is not None:
            raise MissingCapabilityError(missing, where=f"backend {self.capabilities.backend}")

    def compile(
        self,
        plan: Plan,
        models: Mapping[str, Module],
        folder: Path | None = None,
        buckets: Sequence[Bucket] = (),
        *,
        frozen: bool = False,
        failed: set[Bucket] | None = None,
    ) -> StaticExecutable:
        """An executable for a plan; a round is compiled when a batch first meets its shape.

        Args:
            plan: any plan; it is verified here.
            models: by the names the plan gives them; others make no difference.
            folder: where compiled rounds are and go; one that lasts as long as the process when
                None.
            buckets: shapes to fit batches into.
            frozen: nothing is compiled: rounds that are not in the folder, and those that do not
                load or run here, run as graphs, eagerly.
            failed: gets the shapes of rounds that did not load or run.

        Raises:
            UsageError: the plan breaks a rule, or a model is missing.
            MissingCapabilityError: names the first op, or the model, that cannot run here, or what
                is missing to compile it.
        """
        check_plan(plan)
        require_support(plan, self.capabilities)
        run = {"target", *plan.models_run}
        models = {name: model for name, model in models.items() if name in run}
        models = looking_ahead(models, plan.models_run)
        self.check(models, frozen=frozen)
        packages = Packages(self, models, folder, frozen, set() if failed is None else failed)
        return StaticExecutable(
            plan,
            models,
            packages,
            buckets,
            self.fused_on,
            self.captured_on,
            self.joined(models),
            self.text_program,
            packages.has,
        )


@dataclass
class Packages:
    """Compiled rounds in a folder.

    Attributes:
        backend: makes and loads them.
        models: whose weights they share.
        folder: where they are; a temporary one, which lasts as long as this, when None.
        frozen: nothing is compiled.
        failed: shapes of rounds that did not load or run, where nothing is compiled.
    """

    backend: RoundBackend
    models: Mapping[str, Module]
    folder: Path | None
    frozen: bool = False
    failed: set[Bucket] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._weights = named_weights(self.models)
        self._made_by = self.backend.made_by(self.models)
        home = self.folder
        if home is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="specplan-")
            home = Path(self._temporary.name)
        self._home = home

    def __call__(self, graph: RoundGraph, bucket: Bucket, tensors: Sequence[Tensor]) -> Program:
        """The compiled round, from the folder where it is there.

        Raises:
            MissingCapabilityError: nothing is compiled, and the one in the folder is of another
                version.
        """
        home = self._home / package_name(graph, bucket)
        wanted = identity(graph, self._weights) | self._made_by
        if self.frozen:
            return self._frozen(graph, bucket, home, wanted) if home.is_dir() else graph
        if not is_made_for(home, wanted):
            with staged(home) as staging:
                self.backend.write(graph, tensors, staging)
                write_identity(staging, wanted)
        return self.backend.load(home, self.models)

    def has(self, graph: RoundGraph, bucket: Bucket) -> bool:
        """Whether a round of this shape is compiled, or will be."""
        return not self.frozen or (self._home / package_name(graph, bucket)).is_dir()

    def _frozen(
        self, graph: RoundGraph, bucket: Bucket, home: Path, wanted: Mapping[str, str]
    ) -> Program:
        check_identity(home, wanted)

        def fail(error: Exception) -> None:
            self.failed.add(bucket)
            warnings.warn(
                f"{home}: the compiled round does not run here ({foreign_words(error)});"
                " its shape is interpreted. Compile it here: `specplan compile DIR`.",
                RuntimeWarning,
                stacklevel=2,
            )

        try:
            return FallbackOnFailure(self.backend.load(home, self.models), graph, fail)
        except SpecplanError:
            raise
        except Exception as error:  # whatever a runtime raises
            fail(error)
            return graph


class FallbackOnFailure:
    """A compiled round; the round as a graph, if the first run of the compiled one fails.

    Args:
        program: the compiled round.
        graph: the same round, eagerly.
        fail: is called with the error.
    """

    def __init__(
        self, program: Program, graph: RoundGraph, fail: Callable[[Exception], None]
    ) -> None:
        self._program = program
        self._graph = graph
        self._fail = fail
        self._ran = False

    def __call__(self, *tensors: Tensor) -> Tensor:
        """Run the round.

        A run that failed halfway has written to slots that the same round writes again, and to
        what goes from round to round, which is put back.
        """
        if self._ran:
            return self._program(*tensors)
        first = len(tensors) - sum(len(parts) for _, parts in self._graph.interface.values)
        before = [tensor.clone() for tensor in tensors[first:]]
        self._ran = True
        try:
            return self._program(*tensors)
        except SpecplanError:
            raise
        except Exception as error:  # whatever a runtime raises
            self._fail(error)
        for tensor, value in zip(tensors[first:], before, strict=True):
            tensor.copy_(value)
        self._program = self._graph
        return self._graph(*tensors)  # type: ignore[no-any-return]


def check_packages(
    backend: RoundBackend,
    executable: StaticExecutable,
    folder: Path,
    sampling: Sampling,
    buckets: Iterable[Bucket],
) -> None:
    """Refuse compiled rounds that are missing, or that another version made; loads none.

    Args:
        backend: made them.
        executable: of the plan and its models.
        folder: of the compiled rounds.
        sampling: of the batches.
        buckets: shapes, each with a compiled round at least.

    Raises:
        UsageError: a shape has none.
        MissingCapabilityError: one is of another version; says in what it differs.
    """
    weights, made_by = named_weights(executable.models), backend.made_by(executable.models)
    forms = [executable.forms(item.name, sampling) for item in executable.lowered.rounds]
    for bucket in buckets:
        homes = {folder / package_name(g, bucket): g for one in forms for g in one.values()}
        there = [home for home in homes if home.is_dir()]
        if not there:
            raise UsageError(
                f"there is no compiled round for {bucket.word}",
                where=str(folder),
                remedy="Compile it again: `specplan compile DIR`.",
            )
        for home in there:
            check_identity(home, identity(homes[home], weights) | made_by)


def package_name(graph: RoundGraph, bucket: Bucket) -> str:
    """Name of a compiled round's folder."""
    return f"{graph.name}-{graph.sampling.word}-{bucket.word}"
