"""The engines as the page `docs/engines.md`, and as data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from specplan.backends.engines.structure import DRAFTERS
from specplan.backends.engines.table import LEVELS, Ability, Table

_HEAD = """# Engines

`specplan emit DIR_OR_PROBLEM --engine NAME[@VERSION] --out DIR2` writes what an engine needs to
serve a plan: its configuration, the command that starts it, `README.md` with the predicted figures
and the way to check them, and `projection.json` with the same as data.

- A bundle's plan is emitted as it is where the engine can express it. For a problem the best plan
  of all methods is taken, whether or not it runs here.
- A plan that the engine cannot express gives way to the best one that it can. `projection.json`
  and `README.md` then name the reasons and the **projection loss**: how many times as fast as the
  chosen plan the emitted one is predicted to be, and how fast both are over plain decoding, with
  90 % intervals.
- `backend: NAME` or `backend: NAME@VERSION` in a [problem file](problem.md) lets the search choose
  among plans that the engine can express; every other candidate keeps its price and the reason.
  Nothing is run here then, so that the device is named and acceptance profiles are given.
- A version that is not listed is refused; `--any-version` writes for the newest one listed.
- What an engine can express is data (`backends/engines/NAME.yaml`), read against the structure of a
  plan: who drafts, in which shape, how the length goes by the batch. Every file is checked against
  a JSON Schema (`NAME.schema.json`) before it is written; golden files are in
  `tests/backends/engines/golden/`.
- Each `README.md` says how to force the predicted acceptance in the engine (synthetic in vLLM and
  llama.cpp, simulated in SGLang, forced in TensorRT-LLM), so that the predicted time is tested
  apart from the drafter. With a schedule the predicted tokens of every length are forced. Where the
  engine's switch fails with a drafter, none is written.
- The figures are those of the command: an engine that runs a model on one device is predicted for
  one device of a problem that names several.
- A checkpoint is loaded by its form (`backends/engines/checkpoints.py`): an EAGLE-3 head, P-EAGLE,
  PARD, DFlash, DSpark, in the layout of `speculators` or not. An engine that does not load it
  refuses it.
- `make test-engines` installs the engines that install on a CPU, each in an environment of its own
  under `.work/engines`, lets them read every case, and generates with OpenVINO GenAI, ONNX Runtime
  GenAI and llama.cpp. What the engines said of their options is in `tests/engines/schemas`;
  `make test` holds every emission against it.

## Measuring a running engine

```sh
specplan emit problem.yaml --engine vllm --probe --out probe   # a folder, without any acceptance
probe/probe.sh                                                 # where device and engine are
specplan import probe probe --out probed
specplan optimize probed/problem.yaml
```

- `probe.sh` starts the engine (vLLM, SGLang) without speculation and with each draft model or head
  of the problem, K=5 (`--draft-tokens`), and drives it with the engine's own load generator. It
  skips finished runs when it is started again. `RUNNING=1 URL=http://HOST:PORT ./probe.sh plain`
  measures a server that runs already.
- Acceptance is measured on public prompts, or on your own (`--prompts FILE`, lines of
  `{"text": ...}`). Times are measured at every operating point, on random tokens of exact lengths;
  the import takes the time of a step from them and the accepted tokens from the prompts.
- The import writes an acceptance profile for each drafter (by position for vLLM, a mean length for
  SGLang), the measured times, and a problem that uses both. It names a run that has not finished,
  failed in part or was of another server.
- Lookups (n-grams) are not measured, because engines do not count the steps at which nothing was
  drafted. llama.cpp and TensorRT-LLM have no probe: their tools do not report accepted tokens per
  run of a load generator.

This page is written by `specplan engines --markdown`; a test holds it to the tables.

## What was verified, and how far

"""
_WHO = """
## Who may draft

Shapes of the drafted tokens that the engine verifies; **K(b)**: one draft length for each range of
batch sizes; **0**: drafting may stop at some of them.

"""


def engines_page(tables: Sequence[Table]) -> str:
    """The page, one row per version of an engine."""
    lines = ["| engine | version | level | on | against |", "|---|---|---|---|---|"]
    for table in tables:
        name = f"`{table.engine}` ([{table.title}]({table.home}))"
        lines.append(
            f"| {name} | {table.version} | {table.level} | {table.verified_on} | {table.against} |"
        )
    lines += ["", "Levels:", ""]
    lines += [f"- **{level}**: {words}." for level, words in LEVELS.items()]
    return _HEAD + "\n".join(lines) + "\n" + _WHO + "\n".join(_who(tables)) + "\n"


def engine_as_dict(table: Table) -> dict[str, Any]:
    """What is known of a version of an engine, ready for JSON."""
    return {
        "name": table.engine,
        "title": table.title,
        "version": table.version,
        "level": table.level,
        "verified_on": table.verified_on.isoformat(),
        "verified_against": table.against,
        "drafters": {
            drafter: {
                "shapes": list(ability.shapes),
                "most_tokens": ability.most_tokens,
                "largest_batch": ability.largest_batch,
                "schedule": list(ability.schedule),
                "differs": list(ability.differs),
            }
            for drafter, ability in table.drafters.items()
        },
    }


def engine_rows(tables: Sequence[Table]) -> list[tuple[str, str, str, str]]:
    """Name, version, level and drafters of each, for the terminal."""
    return [
        (
            table.engine,
            table.version,
            table.level,
            ", ".join(d for d in table.drafters if d != "none"),
        )
        for table in tables
    ]


def _who(tables: Sequence[Table]) -> Iterator[str]:
    columns = [f"{table.engine} {table.version}" for table in tables]
    yield f"| drafter | {' | '.join(columns)} |"
    yield "|---|" + "---|" * len(columns)
    for drafter, words in DRAFTERS.items():
        if drafter in ("none", "other"):
            continue
        cells = (_cell(table.drafters.get(drafter)) for table in tables)
        yield f"| {words} | {' | '.join(cells)} |"


def _cell(ability: Ability | None) -> str:
    if ability is None:
        return "-"
    words = ", ".join(ability.shapes)
    if "lengths" in ability.schedule:
        words += "; K(b)" + (", 0" if "stop" in ability.schedule else "")
    if ability.largest_batch is not None:
        words += f"; batch {ability.largest_batch}"
    if ability.most_tokens is not None:
        words += f"; at most {ability.most_tokens}"
    return words
