"""Which backend runs a shape of batches fastest: its rounds are compiled, then timed in turns."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from specplan.backends.bundle import Bundle
from specplan.backends.bundle_executable import load_models
from specplan.backends.machine import this_machine
from specplan.backends.manifest import Executables, Shape
from specplan.backends.registry import get_backend, round_backend, round_backends
from specplan.backends.static.buckets import Bucket, Sampling
from specplan.ir.errors import foreign_words
from specplan.measure.bench.interleave import seconds_in_turns
from specplan.measure.progress import Progress, silent
from specplan.runtime.executable import Executable
from specplan.runtime.generate import generate
from specplan.runtime.requests import Request
from specplan.runtime.sampling import SamplingSettings

MOST_TOKENS = 48
"""New tokens of a timed run, at most."""


class Lowering:
    """The rounds of a bundle's plan, compiled shape by shape.

    Args:
        bundle: with unchanged models.
        work: folder for compiled rounds; those that are there already are used.
        turns: interleaved runs per shape and backend.
        progress: called for every shape.
        backends: that compile rounds; all when None. Those that cannot run here are noted.
    """

    def __init__(
        self,
        bundle: Bundle,
        work: Path,
        turns: int = 7,
        progress: Progress = silent,
        backends: Sequence[str] | None = None,
    ) -> None:
        self.bundle = bundle
        self.work = work
        self.turns = turns
        self.progress = progress
        self.models = load_models(bundle)
        self.plain: Executable = get_backend(bundle.backend).compile(bundle.plan, self.models)
        self.notes: list[str] = []
        self._won: list[tuple[Bucket, str]] = []
        named = round_backends() if backends is None else backends
        missing = {name: round_backend(name).available() for name in named}
        self.backends = [name for name, reason in missing.items() if reason is None]
        self.notes += [f"{name}: {reason}" for name, reason in missing.items() if reason]

    def executables(self, buckets: Sequence[Bucket]) -> Executables:
        """Compile and time shapes."""
        shapes = []
        for done, bucket in enumerate(buckets):
            self.progress("compiling rounds", done, len(buckets))
            shapes.append(self._shape(bucket))
        self.progress("compiling rounds", len(buckets), len(buckets))
        sampling = Sampling.of(SamplingSettings.of(self._requests(Bucket(1, 2))))
        machine, used = this_machine(), {shape.backend for shape in shapes}
        if "onnxruntime" not in used:
            machine = replace(machine, onnxruntime="")
        if "inductor" not in used:  # the others compile to no native code
            machine = replace(machine, features=(), instructions="")
        return Executables(machine, sampling.word, tuple(shapes), tuple(self.notes))

    def fastest(self) -> Path:
        """Folder of the compiled rounds of the shapes that they run fastest."""
        chosen = self.work / "fastest"
        shutil.rmtree(chosen, ignore_errors=True)
        chosen.mkdir(parents=True)
        for bucket, name in self._won:
            for home in self._packages(name).glob(f"*-{bucket.word}"):
                shutil.copytree(home, chosen / home.name)
        return chosen

    def _packages(self, backend: str) -> Path:
        return self.work / "packages" / backend

    def _shape(self, bucket: Bucket) -> Shape:
        executables = {self.bundle.backend: self.plain}
        for name in self.backends:
            try:
                executables[name] = self._compiled(name, bucket)
            except Exception as error:  # whatever a compiler raises: the others run the shape
                self.notes.append(f"{name}, batch {bucket.batch}: {foreign_words(error)}")
        seconds = self._seconds(executables, bucket)
        best = min(seconds, key=lambda name: seconds[name])
        if best in self.backends:
            self._won.append((bucket, best))
        return Shape(bucket.batch, bucket.text, best, seconds)

    def _compiled(self, name: str, bucket: Bucket) -> Executable:
        """The rounds of one backend for a shape, run once; and their forms without drafts."""
        folder, requests = self._packages(name), self._requests(bucket)
        compiled = round_backend(name).compile(self.bundle.plan, self.models, folder, [bucket])
        generate(compiled, requests)
        compiled.prepare(requests)
        return compiled

    def _seconds(self, executables: Mapping[str, Executable], bucket: Bucket) -> dict[str, float]:
        """Seconds per round, the median of runs in turns."""
        requests = self._requests(bucket)

        def timer(executable: Executable) -> Callable[[int], float]:
            return lambda _: generate(executable, requests).seconds_per_round

        runs = {name: timer(executable) for name, executable in executables.items()}
        return {name: median(times) for name, times in seconds_in_turns(runs, self.turns).items()}

    def _requests(self, bucket: Bucket) -> list[Request]:
        return workload_requests(
            self.bundle.problem["workload"], bucket, self.models["target"].vocab_size, MOST_TOKENS
        )


def workload_requests(
    workload: Mapping[str, Any], bucket: Bucket, vocab_size: int, most: int
) -> list[Request]:
    """A full batch of texts that repeat themselves, so that lookups match.

    Args:
        workload: of a problem, as data; its sampling settings are used.
        bucket: the shape that the batch fills.
        vocab_size: of the models.
        most: most new tokens of each.
    """
    new = min(most, max(bucket.text // 2, 1))
    sampling = {name: workload[name] for name in ("temperature", "top_k", "top_p")}
    return [
        Request(
            prompt_tokens=tuple(
                (7 * (place % 23) + row) % vocab_size for place in range(bucket.text - new)
            ),
            max_new_tokens=new,
            seed=row,
            **sampling,
        )
        for row in range(bucket.batch)
    ]
