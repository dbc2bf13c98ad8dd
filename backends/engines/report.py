"""A projection: what was chosen, what was emitted, what is lost between them; as JSON and words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from specplan.backends.engines.job import Emission, Load
from specplan.backends.engines.table import LEVELS, Table
from specplan.backends.engines.writing import check_documents, render, write_script
from specplan.cost_models.intervals import Interval
from specplan.ir.files import staged, write_atomic, write_json_atomic
from specplan.ir.plan import Plan
from specplan.ir.text.printer import print_plan

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Choice:
    """A plan and what is predicted of it.

    Attributes:
        plan: the plan.
        method: of drafting, as the search calls it.
        words: its setting.
        name: method and setting as users call them.
        speedup: over plain decoding, by the problem's objective.
        loads: figures for each load of the workload.
        assumed: what was assumed of acceptance, by drafter; empty where it was measured.
    """

    plan: Plan
    method: str
    words: str
    name: str
    speedup: Interval
    loads: tuple[Load, ...]
    assumed: Mapping[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON; the plan as text."""
        return {
            "plan": print_plan(self.plan),
            "method": self.method,
            "words": self.words,
            "speedup": asdict(self.speedup),
            "loads": [asdict(load) for load in self.loads],
            "assumed": dict(self.assumed),
        }


@dataclass(frozen=True)
class Projection:
    """A plan as an engine serves it.

    Attributes:
        table: of the engine's version.
        objective: of the problem.
        chosen: the plan that was to be served.
        emitted: the one that is: the same, or the best that the engine can express.
        ratio: how many times as fast as the chosen plan the emitted one is; None for the same.
        refusals: why the engine cannot express the chosen plan.
        emission: files and commands.
        sampling: that the plan was made for, as `Job.sampling`.
        folder: where they are.
    """

    table: Table
    objective: str
    chosen: Choice
    emitted: Choice
    ratio: Interval | None
    refusals: tuple[str, ...]
    emission: Emission
    sampling: Mapping[str, float]
    folder: Path

    @property
    def differs(self) -> tuple[str, ...]:
        """What the engine does otherwise than the emitted plan says."""
        return self.table.differs(self.emitted.plan)

    def as_dict(self) -> dict[str, Any]:
        """Everything but the files, ready for JSON."""
        table, forced = self.table, self.emission.forced
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": "projection",
            "engine": {
                "name": table.engine,
                "version": table.version,
                "asked": table.asked or None,
                "level": table.level,
                "verified_on": table.verified_on.isoformat(),
                "verified_against": table.against,
            },
            "objective": self.objective,
            "expressible": self.ratio is None,
            "refusals": list(self.refusals),
            "chosen": self.chosen.as_dict(),
            "emitted": self.emitted.as_dict(),
            "speed_of_emitted_over_chosen": None if self.ratio is None else asdict(self.ratio),
            "differs": list(self.differs),
            "command": self.emission.command,
            "forced_acceptance": None if forced is None else asdict(forced),
            "sampling": dict(self.sampling) or {"temperature": 0.0},
            "notes": list(self.emission.notes),
        }


def write_projection(projection: Projection) -> None:
    """Write all files of a projection, in place of an earlier one.

    Raises:
        SpecplanError: a file breaks the engine's schema: a bug of its module.
        OSError: the folder cannot be written.
    """
    emission = projection.emission
    check_documents(projection.table.engine, emission)
    files = render(emission) | {"README.md": "\n".join(readme(projection)) + "\n"}
    with staged(projection.folder) as folder:
        for name, text in files.items():
            write_atomic(folder / name, text)
        if emission.script:
            write_script(folder / emission.script, emission.command)
        write_json_atomic(folder / "projection.json", projection.as_dict())


def readme(projection: Projection) -> Iterator[str]:
    """The projection in Markdown, line by line."""
    table, emitted = projection.table, projection.emitted
    yield f"# {table.title} {table.asked or table.version}: {emitted.name}"
    yield ""
    if table.asked and not f"{table.asked}.".startswith(f"{table.version}."):
        yield f"**Not verified for {table.asked}**: these files are those of {table.version}."
        yield ""
    yield from _loss_words(projection)
    yield from [
        "",
        "## Start",
        "",
        "In this folder:",
        "",
        "```sh",
        projection.emission.command,
        "```",
    ]
    for note in (
        *projection.emission.notes,
        *(f"Differs: {words}." for words in projection.differs),
    ):
        yield from ["", note]
    yield from ["", _sampling_words(projection.sampling)]
    yield from ["", "## Predicted", ""]
    yield from _figures(emitted)
    yield from _forced_words(projection)
    yield from ["", "## How far this was verified", ""]
    yield f"Level: {table.level} ({LEVELS[table.level]}), {table.verified_on.isoformat()}."
    yield f"Against: {table.against}."


def _loss_words(projection: Projection) -> Iterator[str]:
    ratio, chosen, emitted = projection.ratio, projection.chosen, projection.emitted
    if ratio is None:
        yield "The chosen plan itself: nothing is lost by the projection."
        return
    verb = "loses" if ratio.mean < 1.0 else "gains"
    yield f"The chosen plan ({chosen.name}) cannot be expressed:"
    yield ""
    yield from (f"- {words}" for words in projection.refusals)
    yield ""
    yield (
        f"This is the best plan that can. It {verb} {abs(ratio.mean - 1.0):.1%}: its speed is "
        f"{ratio.words()} times that of the chosen plan. Over plain decoding the chosen plan is "
        f"predicted to run {chosen.speedup.words()} times as fast, this one "
        f"{emitted.speedup.words()} times."
    )


def _sampling_words(sampling: Mapping[str, float]) -> str:
    if not sampling:
        return "The plan was made for greedy decoding: requests ask for temperature 0."
    asked = ", ".join(f"{name} {value:g}" for name, value in sampling.items())
    return f"The plan was made for requests that ask for {asked} (top_k 0: all tokens)."


def _figures(choice: Choice) -> Iterator[str]:
    for drafter, text in choice.assumed.items():
        yield f'**Assumed, not measured**: the acceptance of "{drafter}": {text}.'
        yield ""
    speed = "tokens per second in all, prompts included"
    yield f"| batch | prompt tokens | output tokens | tokens per step | {speed} |"
    yield "|---|---|---|---|---|"
    for load in choice.loads:
        yield (
            f"| {load.batch} | {load.prompt_tokens} | {load.output_tokens} | "
            f"{load.tokens_per_round.words()} | {load.tokens_per_second.words('.4g')} |"
        )


def _forced_words(projection: Projection) -> Iterator[str]:
    forced = projection.emission.forced
    if forced is None:
        return
    yield from ["", "## Verify with forced acceptance", ""]
    yield (
        "Time and acceptance are predicted apart. Start the engine so that it accepts as many "
        "tokens as are predicted, whatever was drafted (the text is then nonsense), and compare "
        "tokens per second with the table above:"
    )
    runs = [forced.at(load) for load in projection.emitted.loads]
    commands = list(dict.fromkeys(command for command, _ in runs))
    for command in commands:
        yield from ["", "```sh", command, "```", "", "Then:", "", "```sh"]
        yield from (measure for at, measure in runs if at == command)
        yield "```"
    yield from ["", f"Tokens per round: {forced.read}."]
