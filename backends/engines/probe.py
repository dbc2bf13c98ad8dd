"""A probe: the folder that measures a running engine with and without its drafters.

Two things are measured apart. How many draft tokens are accepted depends on the text, so each
drafter drafts on real prompts. How long steps take depends on lengths and batch, so every operating
point is run on random tokens of exactly its lengths, on which few draft tokens are accepted.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any, cast

from specplan.backends.engines.job import Emission, Job
from specplan.backends.engines.registry import engine_names
from specplan.backends.engines.table import Table
from specplan.backends.engines.writing import check_documents, render, write_script
from specplan.ir.errors import UsageError
from specplan.ir.files import staged, write_atomic, write_json_atomic
from specplan.ir.text.printer import print_plan

KIND = "probe"
SCHEMA_VERSION = 1
STATEMENT = "probe.json"
PLAIN = "plain"
PROMPTS = "prompts.jsonl"
MOST_PROMPTS = 256
_LEAST_REQUESTS, _WAVES = 8, 4
_WARM_UP_TOKENS = 16


@dataclass(frozen=True)
class Client:
    """How an engine is measured: its server's address and its own load generator.

    Commands have `{requests}`, `{batch}`, `{output_tokens}` and `{result}` to fill in.

    Attributes:
        port: at which the server listens.
        flags: further flags of the server, for `/metrics`.
        suffix: of result files.
        timing: a run on random tokens, with `{prompt_tokens}` and `{seed}` besides.
        own: a run on the prompts of `prompts.jsonl`.
        public: a run on public prompts, which the load generator downloads.
        public_prompts: their number.
        public_name: what they are.
    """

    port: int
    flags: str
    suffix: str
    timing: str
    own: str
    public: str
    public_prompts: int
    public_name: str


@dataclass(frozen=True)
class Arm:
    """One server that is measured.

    Attributes:
        name: of its folder: the drafter's, or `plain`.
        drafter: who drafts, as a profile's key has it; "" for no speculation.
        draft_tokens: per step (K).
        method: that wrote the plan.
        words: the plan's setting.
        job: the plan, for the engine's files.
    """

    name: str
    drafter: str
    draft_tokens: int
    method: str
    words: str
    job: Job


@dataclass(frozen=True)
class Point:
    """One operating point: requests decoded together, and tokens of a prompt and an output."""

    batch: int
    prompt_tokens: int
    output_tokens: int

    @property
    def name(self) -> str:
        """Of its files."""
        return f"b{self.batch}-p{self.prompt_tokens}"

    @property
    def requests(self) -> int:
        """Requests of a run: several waves of the batch."""
        return max(_LEAST_REQUESTS, _WAVES * self.batch)


@dataclass(frozen=True)
class Probe:
    """What is measured.

    Attributes:
        table: of the engine's version.
        arms: the server without speculation first.
        points: operating points.
        prompts: texts to draft on; empty for public ones.
        problem: the problem as JSON data, paths absolute.
        folder: where the files lie.
    """

    table: Table
    arms: tuple[Arm, ...]
    points: tuple[Point, ...]
    prompts: tuple[str, ...]
    problem: Mapping[str, Any]
    folder: Path

    def as_dict(self) -> dict[str, Any]:
        """What `probe.json` states for the import."""
        return {
            "kind": KIND,
            "schema_version": SCHEMA_VERSION,
            "engine": self.table.engine,
            "version": self.table.asked or self.table.version,
            "title": self.table.title,
            "result_suffix": client_of(self.table, self.arms[0].job).suffix,
            "prompts": len(self.prompts) or client_of(self.table, self.arms[0].job).public_name,
            "arms": [
                {
                    "name": arm.name,
                    "drafter": arm.drafter,
                    "draft_tokens": arm.draft_tokens,
                    "method": arm.method,
                    "words": arm.words,
                    "plan": print_plan(arm.job.plan),
                }
                for arm in self.arms
            ],
            "points": [asdict(point) for point in self.points],
            "problem": dict(self.problem),
        }


def client_of(table: Table, job: Job) -> Client:
    """How the engine is measured.

    Raises:
        UsageError: specplan does not know a load generator of this engine.
    """
    build = _builder(table.engine)
    if build is None:
        able = ", ".join(name for name in engine_names() if _builder(name) is not None)
        raise UsageError(
            f"specplan cannot write a probe of {table.title}",
            where="--probe",
            remedy=f"Engines whose own load generator it knows: {able}. For others: `specplan "
            "import acceptance` reads logs, `specplan import device` results of benchmarks.",
        )
    return build(job)


def _builder(engine: str) -> Callable[[Job], Client] | None:
    module = importlib.import_module(f"specplan.backends.engines.{engine}")
    return cast("Callable[[Job], Client] | None", getattr(module, "client", None))


def write_probe(probe: Probe) -> None:
    """Write the folder, in place of an earlier one.

    Raises:
        OSError: the folder cannot be written.
    """
    project = importlib.import_module(f"specplan.backends.engines.{probe.table.engine}").project
    client = client_of(probe.table, probe.arms[0].job)
    with staged(probe.folder) as folder:
        for arm in probe.arms:
            emission: Emission = project(arm.job)
            check_documents(probe.table.engine, emission)
            (folder / arm.name).mkdir()
            for name, text in render(emission).items():
                write_atomic(folder / arm.name / name, text)
            command = f"exec {emission.command}{client.flags}"
            write_script(folder / arm.name / "serve.sh", command)
        if probe.prompts:
            write_atomic(folder / PROMPTS, "".join(map(prompt_line, probe.prompts)))
        write_atomic(folder / "probe.sh", _script(probe, client))
        (folder / "probe.sh").chmod(0o755)
        write_atomic(folder / "README.md", "\n".join(_readme(probe, client)) + "\n")
        write_json_atomic(folder / STATEMENT, probe.as_dict())


def prompt_line(text: str) -> str:
    """A prompt as the load generators of vLLM (`prompt`) and SGLang (`conversations`) read it."""
    import json

    turns = [{"role": "user", "content": text}, {"role": "assistant", "content": ""}]
    return json.dumps({"prompt": text, "conversations": turns}) + "\n"


def _script(probe: Probe, client: Client) -> str:
    names = [arm.name for arm in probe.arms]
    template = resources.files("specplan.backends.engines").joinpath("probe.sh.txt")
    text = template.read_text(encoding="utf-8")
    for mark, value in {
        "TITLE": f"{probe.table.title} {probe.table.asked or probe.table.version}",
        "PORT": str(client.port),
        "SUFFIX": client.suffix,
        "PROMPTS": _prompts_run(probe, client),
        "TIMINGS": "\n".join(_timings(probe.points, client)),
        "ARMS": " ".join(names),
        "CASES": "|".join(names),
        "PLAIN": PLAIN,
    }.items():
        text = text.replace(f"@{mark}@", value)
    return text


def _prompts_run(probe: Probe, client: Client) -> str:
    command = client.own if probe.prompts else client.public
    largest = max(probe.points, key=lambda point: point.batch)
    count = len(probe.prompts) or client.public_prompts
    return _run("prompts", command, requests=count, batch=min(largest.batch, count),
                output_tokens=largest.output_tokens)  # fmt: skip


def _timings(points: Sequence[Point], client: Client) -> Iterator[str]:
    """A run for each point, after one that is not read and warms the server up."""
    largest = max(points, key=lambda point: point.batch)
    warm_up = asdict(largest) | {"output_tokens": _WARM_UP_TOKENS}
    yield _run("warm-up", client.timing, **warm_up, requests=largest.batch, seed=0)
    for seed, point in enumerate(points, start=1):
        yield _run(point.name, client.timing, **asdict(point), requests=point.requests, seed=seed)


def _run(name: str, command: str, **values: int) -> str:
    lines = command.format(result=f'"results/$arm/{name}"', **values).splitlines()
    return f"  run {name} \\\n    " + "\n    ".join(line.strip() for line in lines)


def _readme(probe: Probe, client: Client) -> Iterator[str]:
    table = probe.table
    drafters = ", ".join(f"{arm.name} (K={arm.draft_tokens})" for arm in probe.arms[1:])
    yield f"# Measure {table.title} {table.asked or table.version} for specplan"
    yield from ["", "On the machine with the device, with the engine installed:", ""]
    yield from ["```sh", "./probe.sh", "specplan import probe . --out probed", "```", ""]
    yield (
        f"`probe.sh` starts the engine {len(probe.arms)} times: without speculation (`plain`), and "
        f"with {drafters}. Everything that is printed lies in `results/`. Started again, it goes "
        "on where it stopped. You can copy this folder to another machine, and `results/` back."
    )
    yield from ["", "To measure a server that runs already, started by you as `ARM/serve.sh` says:"]
    yield from ["", "```sh", "RUNNING=1 URL=http://HOST:PORT ./probe.sh plain", "```"]
    yield from ["", "## What is run", ""]
    texts = f"{len(probe.prompts)} prompts of yours" if probe.prompts else client.public_name
    yield (
        f"- Acceptance: each drafter drafts on {texts}. It belongs to such text. To measure it on "
        'your own: `specplan emit --probe --prompts FILE`, with lines of {"text": "..."}.'
        if not probe.prompts
        else f"- Acceptance: each drafter drafts on {texts}."
    )
    points = ", ".join(f"{p.batch} x ({p.prompt_tokens} + {p.output_tokens})" for p in probe.points)
    yield (
        "- Times: every operating point on random tokens of exact lengths, requests x (prompt + "
        f"output tokens): {points}. On such text few draft tokens are accepted; the import takes "
        "the time of a step from it and the accepted tokens from real text. A mixture of experts "
        "may spread random tokens over more experts than text."
    )
    yield "- `/metrics` before and after each run."
    yield from ["", "## Then", ""]
    yield (
        "`specplan import probe` writes acceptance profiles, the measured times and a problem that "
        "uses both. It says what it understood, and the next command is `specplan optimize "
        "probed/problem.yaml`."
    )
