"""`specplan init`: a problem file to start from, with a comment on every key."""

from __future__ import annotations

import json as json_text
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from specplan.cli.options import JsonOption, ProblemSource, takes_problem
from specplan.cli.output import print_json
from specplan.ir.errors import UsageError
from specplan.ir.files import write_atomic

EXAMPLE: dict[str, Any] = {
    "target": "models/target",
    "drafts": {},
    "device": "8xh100-sxm",
    "backend": "vllm",
    "batch": [1, 16, 64],
    "prompt": [1024],
    "output": 512,
    "objective": "latency",
}
"""What the file says where no flag says otherwise, by the words of the short form."""

_TEMPLATE = """\
# A problem of specplan. Plan for it with:  specplan optimize {file}
# docs/problem.md explains every key; `specplan schema` is its JSON Schema, for editors.
schema_version: 1

models:
  # A folder with config.json (enough to plan), or the id of a model in the Hugging Face cache.
  # Relative paths start at the folder of this file; ~ and $HOME are replaced.
{cached}  target: {{path: {target}}}
  # What may draft: smaller models with the target's tokenizer, EAGLE-3 heads, DFlash drafters.
{drafts}
# What may draft without a model: prompt_lookup (n-grams of the prompt), mtp (the target's own
# modules), suffix, trie, ngram, automaton, adjacency, datastore, jacobi, lookahead, token_graph.
sources: [prompt_lookup]

# A name from `specplan devices`, with 8x before it for eight of them; or `measured`: this machine.
device: {device}
# What runs the plan: an engine (vllm, sglang, tensorrt_llm), eager to run it here, none to plan.
{backend}

workload:
  batch_sizes: {batch}  # requests decoded together
  {prompt}  # of a prompt
  output_tokens: {output}  # of an output
  # Tokens at the start of every prompt that are in the prefix cache: no prefill for them.
  {cached_prefix}
  temperature: {temperature}  # 0 is greedy decoding
  # prompts: prompts.jsonl  # lines of {{"text": ...}}, to measure acceptance on this machine

# How much of a draft the target accepts, by drafter: a file that `specplan profile acceptance`
# measured, or that `specplan import acceptance` made of an engine's log.
{acceptance}
# latency: least time per token of a request, prompt included; tpot: least time per output token
# while decoding, prompts aside; throughput: most tokens/s of the device;
# goodput: most requests/s within the limits, at workload.request_rate.
objective: {objective}

# What a plan must not exceed; leave a limit out if it does not matter.
{limits}"""

_NO_DRAFTS = """\
  # drafts:
  #   - {name: eagle, path: models/eagle3-head}
  #   - {name: small, path: models/small}
"""
_NO_ACCEPTANCE = """\
# acceptance:
#   eagle: eagle-acceptance.json
"""
_LIMITS = {"tpot": "20ms", "ttft": "500ms", "memory": "80GB"}
"""Limits of a plan, with an example of each."""


@takes_problem(metavar="FILE", help="The file to write; - is stdout.")
def init(
    problem: ProblemSource,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    new_head: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=DIR",
            help="Plan for an EAGLE-3 head that is not trained yet: write its config.json to DIR.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Write a problem file with a comment on every key; flags fill it in."""
    if problem.settings:
        raise UsageError(
            "a new file has no keys to set yet",
            where="--set",
            remedy="Edit the file, or give --set to `specplan optimize`.",
        )
    file = problem.path or Path("problem.yaml")
    if str(file) != "-" and file.exists() and not force:
        raise UsageError(
            "the file exists already", where=str(file), remedy="Name another one, or add --force."
        )
    short = problem.short if new_head is None else _with_head(problem.short, new_head)
    text = problem_text(file, short)
    _check(text, Path() if str(file) == "-" else file.parent, short)
    if str(file) == "-":
        print(text, end="")
        return
    write_atomic(file, text)
    if json:
        print_json({"problem": str(file)})
        return
    print(f"Problem: {file}")
    print(f"Edit it, then: specplan optimize {shlex.quote(str(file))}")


def _check(text: str, folder: Path, short: Mapping[str, Any]) -> None:
    """Refuse flags that no command would take from the file; models may come later.

    Raises:
        UsageError: names the flag.
    """
    from specplan.ir.text.yaml_text import read_yaml
    from specplan.planner.problem.errors import Origin, flag_of, raise_together
    from specplan.planner.problem.loading import problem_form
    from specplan.planner.problem.paths import resolve_paths
    from specplan.planner.problem.setting_checks import check_backends, check_device
    from specplan.planner.problem.short_form import KEY_OF
    from specplan.planner.problem.workload import check_workload

    value, _ = read_yaml(text, "the new file")
    origin = Origin(flags={KEY_OF[word]: flag_of(word) for word in short})
    problem = resolve_paths(problem_form(value, origin), folder)
    backends = check_backends(problem, origin, runs_models=False)
    checks = (check_device(problem, origin), backends, check_workload(problem, origin))
    raise_together([error for check in checks for error in check], origin)


def _with_head(short: Mapping[str, Any], new_head: str) -> Mapping[str, Any]:
    """The words of the short form with a head whose config.json is written.

    Raises:
        UsageError: the flag is no NAME=DIR, there is no target, or the folder has a config already.
    """
    from specplan.cost_models.models.new_heads import eagle3_config
    from specplan.ir.files import read_json, write_json_atomic
    from specplan.planner.problem.paths import model_folder

    name, _, folder = new_head.partition("=")
    if not name or not folder or "target" not in short:
        raise UsageError(
            "it needs a name, a folder and --target",
            where=f"--new-head {new_head}",
            remedy="Write --target PATH --new-head eagle=models/eagle3-head",
        )
    config = Path(folder).absolute() / "config.json"
    if config.exists():
        raise UsageError(
            "the folder has a config.json already",
            where=str(config),
            remedy=f"Name another folder, or plan for that head: --draft {new_head}",
        )
    target = model_folder(Path(short["target"]), Path.cwd()) / "config.json"
    config.parent.mkdir(parents=True, exist_ok=True)
    write_json_atomic(config, eagle3_config(read_json(target, "model config"), str(target)))
    return {**short, "drafts": {**short.get("drafts", {}), name: str(config.parent)}}


def problem_text(file: Path, short: Mapping[str, Any]) -> str:
    """The text of a problem file with comments.

    Args:
        file: where it will stand.
        short: what it says beyond `EXAMPLE`, by the words of the short form.
    """
    value = EXAMPLE | {**short}
    return _TEMPLATE.format(
        file="problem.yaml" if str(file) == "-" else shlex.quote(str(file)),
        cached="" if "target" in short else _cached(),
        target=_yaml(value["target"]),
        drafts=_drafts(value["drafts"]),
        device=_yaml(value["device"]),
        backend=_one_or_several("backend", "backends", value["backend"]),
        batch=_yaml(value["batch"]),
        prompt=_one_or_several("prompt_tokens", "prompt_lengths", value["prompt"]),
        output=value["output"],
        cached_prefix=_or_comment("cached_prefix", value, "512"),
        temperature=value.get("temperature", 0.0),
        acceptance=_acceptance(value.get("acceptance", {})),
        objective=value["objective"],
        limits=_limits(value),
    )


def _or_comment(key: str, value: Mapping[str, Any], example: str) -> str:
    """A key where it is given, else a comment with an example."""
    return f"{key}: {value[key]}" if key in value else f"# {key}: {example}"


def _cached() -> str:
    """A comment with the models of the Hugging Face cache."""
    from specplan.planner.problem.paths import cached_models

    models = cached_models()
    return f"  # In the Hugging Face cache: {', '.join(models)}\n" if models else ""


def _yaml(value: Any) -> str:
    """A value in one line of YAML; words that need no quotes have none."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_yaml, value))}]"
    text = str(value)
    plain = all(letter.isalnum() or letter in "/._-~$@" for letter in text)
    return text if plain and text[:1] not in "@-~" else json_text.dumps(value, ensure_ascii=False)


def _drafts(drafts: Mapping[str, Any]) -> str:
    if not drafts:
        return _NO_DRAFTS
    lines = (f"    - {{name: {name}, path: {_yaml(path)}}}\n" for name, path in drafts.items())
    return f"  drafts:\n{''.join(lines)}"


def _acceptance(profiles: Mapping[str, Any]) -> str:
    if not profiles:
        return _NO_ACCEPTANCE
    lines = (f"  {_yaml(name)}: {_yaml(value)}\n" for name, value in profiles.items())
    return f"acceptance:\n{''.join(lines)}"


def _limits(value: Mapping[str, Any]) -> str:
    own = {name: value[name] for name in _LIMITS if name in value}
    lines = [
        "limits:" if own else "# limits:",
        *(f"  {name}: {_yaml(text)}" for name, text in own.items()),
        *(f"#   {name}: {text}" for name, text in _LIMITS.items() if name not in own),
    ]
    return "\n".join(lines) + "\n"


def _one_or_several(one: str, several: str, value: Any) -> str:
    if isinstance(value, list) and len(value) > 1:
        return f"{several}: {_yaml(value)}"
    return f"{one}: {_yaml(value[0] if isinstance(value, list) else value)}"
