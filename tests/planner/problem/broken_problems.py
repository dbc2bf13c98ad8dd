"""Broken problems: what is changed, the exit code, the key that the message names, its words."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specplan.ir.errors import InfeasibleError, MissingCapabilityError, UsageError
from tests.planner.checkpoints import (
    MERGES,
    VOCABULARY,
    write_checkpoint,
    write_prompts,
)

Edit = Callable[[dict[str, Any], Path], None]


@dataclass(frozen=True)
class Broken:
    """One way to break the good problem, and what the user is told."""

    name: str
    edit: Edit
    key: str
    says: str
    exit_code: int = UsageError.exit_code


CASES: list[Broken] = []


def put(dotted: str, value: Any) -> Edit:
    """Set a key of the problem."""

    def edit(problem: dict[str, Any], folder: Path) -> None:
        node: Any = problem
        *above, last = dotted.split(".")
        for part in above:
            node = node[int(part)] if isinstance(node, list) else node[part]
        if isinstance(node, list):
            node[int(last)] = value
        else:
            node[last] = value

    return edit


def drop(dotted: str) -> Edit:
    """Take a key out of the problem."""

    def edit(problem: dict[str, Any], folder: Path) -> None:
        *above, last = dotted.split(".")
        node: Any = problem
        for part in above:
            node = node[part]
        del node[last]

    return edit


def write(name: str, text: str) -> Edit:
    """Write a file beside the problem."""

    def edit(problem: dict[str, Any], folder: Path) -> None:
        (folder / name).write_text(text, encoding="utf-8")

    return edit


def remove(name: str) -> Edit:
    """Take away a file that the problem names."""
    return lambda problem, folder: (folder / name).unlink()


def checkpoint(name: str, **changes: Any) -> Edit:
    """Write a checkpoint anew, changed."""
    return lambda problem, folder: _rewrite(folder / name, changes)


def _rewrite(folder: Path, changes: dict[str, Any]) -> None:
    (folder / "model.safetensors").unlink(missing_ok=True)
    write_checkpoint(folder, **changes)


def both(*edits: Edit) -> Edit:
    """Several changes."""

    def edit(problem: dict[str, Any], folder: Path) -> None:
        for one in edits:
            one(problem, folder)

    return edit


def case(name: str, key: str, says: str, edit: Edit, exit_code: int = 2) -> None:
    CASES.append(Broken(name, edit, key, says, exit_code))


# The shape of the file
case("unknown key", "limit", 'Did you mean "limits"?', put("limit", {}))
case("unknown nested key", "workload.batchsizes", "batch_sizes", put("workload.batchsizes", [1]))
case("unknown key of a draft", "models.drafts.0.pth", "path", put("models.drafts.0.pth", "x"))
case(
    "unknown limit",
    "limits.slo",
    "Known: memory, quality, request_latency, tpot",
    put("limits.slo", 1.0),
)
case("no models", "models", "required", drop("models"))
case("no target", "models.target", "required", drop("models.target"))
case("no workload", "workload", "required", drop("workload"))
case("no batch sizes", "workload.batch_sizes", "required", drop("workload.batch_sizes"))
case("no version", "schema_version", "required", drop("schema_version"))
case("a future version", "schema_version", "version 2", put("schema_version", 2))
case("a version in words", "schema_version", "whole number", put("schema_version", "one"))
case("drafts no list", "models.drafts", "a list", put("models.drafts", "draft"))
case("target a path", "models.target", "mapping", put("models.target", "target"))
case("a path that is a number", "models.target.path", "path", put("models.target.path", 3))
case("no draft name", "models.drafts.0.name", "required", put("models.drafts", [{"path": "draft"}]))

# Numbers
case("empty batches", "workload.batch_sizes", "empty", put("workload.batch_sizes", []))
case("batch of zero", "workload.batch_sizes.1", "at least 1", put("workload.batch_sizes", [1, 0]))
case("negative batch", "workload.batch_sizes.0", "at least 1", put("workload.batch_sizes", [-2]))
case("half a batch", "workload.batch_sizes.0", "whole number", put("workload.batch_sizes", [1.5]))
case("batch in words", "workload.batch_sizes.0", "whole", put("workload.batch_sizes", ["two"]))
case("batch true", "workload.batch_sizes.0", "whole number", put("workload.batch_sizes", [True]))
case(
    "a prompt length twice",
    "workload.prompt_lengths.1",
    "prompt length 8 stands twice",
    both(drop("workload.prompt_tokens"), put("workload.prompt_lengths", [8, 8])),
)
case(
    "one prompt length and several",
    "workload.prompt_lengths",
    "both given",
    put("workload.prompt_lengths", [8, 16]),
)
case("a batch twice", "workload.batch_sizes.2", "twice", put("workload.batch_sizes", [1, 4, 1]))
case("no list of batches", "workload.batch_sizes", "a list", put("workload.batch_sizes", 4))
case("empty prompts", "workload.prompt_tokens", "at least 1", put("workload.prompt_tokens", 0))
case("no output", "workload.output_tokens", "at least 1", put("workload.output_tokens", -8))
case("negative temperature", "workload.temperature", "at least 0", put("workload.temperature", -1))
case(
    "no finite temperature",
    "workload.temperature",
    "finite",
    put("workload.temperature", float("inf")),
)
case("temperature null", "workload.temperature", "a number", put("workload.temperature", None))
case("top_p of zero", "workload.top_p", "greater than 0", put("workload.top_p", 0.0))
case("top_p above one", "workload.top_p", "at most 1", put("workload.top_p", 1.2))
case("negative top_k", "workload.top_k", "at least 0", put("workload.top_k", -1))
case("no memory", "limits.memory", "greater than 0", put("limits.memory", 0))
case("negative tpot", "limits.tpot", "greater than 0", put("limits.tpot", -0.1))
case("milliseconds", "limits.tpot", "Did you mean 20ms?", put("limits.tpot", 20))
case("milliseconds, as text", "limits.ttft", "Did you mean 500ms?", put("limits.ttft", "500"))
case("an unknown unit", "limits.memory", "units: B, kB, MB", put("limits.memory", "80 GBit"))
case("ttft in words", "limits.ttft", "a number", put("limits.ttft", "fast"))
case("no time", "limits.request_latency", "greater than 0", put("limits.request_latency", 0.0))
case("negative seed", "seed", "at least 0", put("seed", -1))

# Lengths and files of the workload
case(
    "trace and lengths",
    "workload.prompt_tokens",
    "both given",
    both(
        write("t.jsonl", '{"prompt_tokens": 8, "output_tokens": 8}\n'),
        put("workload.trace", "t.jsonl"),
    ),
)
case("no lengths", "workload.prompt_tokens", "not known", drop("workload.prompt_tokens"))
case("half the lengths", "workload.output_tokens", "not known", drop("workload.output_tokens"))


def trace(text: str | None) -> Edit:
    """Replace the lengths by a trace of this text."""
    edits = [drop("workload.prompt_tokens"), drop("workload.output_tokens")]
    edits += [put("workload.trace", "trace.jsonl")]
    return both(*edits) if text is None else both(*edits, write("trace.jsonl", text))


case("no trace file", "workload.trace", "cannot read", trace(None))
case("empty trace", "workload.trace", "is empty", trace("\n\n"))
case(
    "trace not JSON",
    "workload.trace",
    "trace.jsonl:2",
    trace('{"prompt_tokens": 4, "output_tokens": 4}\nprompt 4\n'),
)
case("trace without outputs", "workload.trace", '"output_tokens"', trace('{"prompt_tokens": 4}\n'))
case(
    "trace too long",
    "workload.trace",
    "positions",
    trace('{"prompt_tokens": 250, "output_tokens": 250}\n'),
)
case("no prompts file", "workload.prompts", "cannot read", remove("prompts.jsonl"))
case("prompts a folder", "workload.prompts", "it is a folder", put("workload.prompts", "."))
case("empty prompts file", "workload.prompts", "is empty", write("prompts.jsonl", ""))
case("prompts not JSON", "workload.prompts", "prompts.jsonl:1", write("prompts.jsonl", "hello\n"))
case("prompts a list", "workload.prompts", "not an object", write("prompts.jsonl", '["a"]\n'))
case("prompt without text", "workload.prompts", 'no "text"', write("prompts.jsonl", '{"id": "1"}'))
case(
    "prompt of another kind",
    "workload.prompts",
    '"task"',
    write("prompts.jsonl", '{"text": "a", "task": 3}'),
)
case(
    "two prompts of one id",
    "workload.prompts",
    "already in line 1",
    write("prompts.jsonl", '{"text": "a", "id": "1"}\n{"text": "b", "id": "1"}\n'),
)
case(
    "few prompts",
    "workload.prompts",
    "at least 4",
    lambda problem, folder: write_prompts(folder / "prompts.jsonl", count=3),
)
case("no prompt of the task", "workload.task", 'Did you mean "code"?', put("workload.task", "cod"))
case(
    "prompts not UTF-8",
    "workload.prompts",
    "not UTF-8",
    lambda problem, folder: (folder / "prompts.jsonl").write_bytes(b"\xff\xfe{}") and None,
)

# Words
case(
    "unknown dtype",
    "models.target.dtype",
    'Did you mean "bfloat16"?',
    put("models.target.dtype", "bfloat"),
)
case("unknown method", "methods.0", 'Did you mean "draft_model"?', put("methods", ["draft_modle"]))
case("a method twice", "methods.1", "twice", put("methods", ["autoregressive"] * 2))
case("no methods", "methods", "empty", put("methods", []))
case("unknown source", "sources.0", 'Did you mean "prompt_lookup"?', put("sources", ["lookup"]))
case("a method without its source", "methods.2", "sources leaves out", put("sources", []))
case(
    "a method without its draft",
    "methods.1",
    "models.drafts has none",
    both(put("models.drafts", []), put("acceptance", {})),
)
case("unknown device", "device", "Known: ", put("device", "quantum"))
case("another device", "device", "Known: a10, ", put("device", "x20"))
case("a form of a device", "device", '"8xh100-pcie" or "8xh100-sxm"?', put("device", "8xH100"))
case("no devices", "device", "must be at least 1. Write 8xh100-sxm", put("device", "0xh100-sxm"))
case("a stack", "device", '"h100-sxm@vllm"?', put("device", "h100-smx@vllm"))
case("a misspelt word", "device", 'Did you mean "measured"?', put("device", "mesured"))
case("no device file", "device", "no device file", put("device", "profiles/here.json"))
case("unknown backend", "backend", 'Did you mean "eager"?', put("backend", "eagre"))
case("one of several", "backends.1", 'Did you mean "vllm"?', put("backends", ["eager", "vlm"]))
case("a backend twice", "backends.1", "twice", put("backends", ["eager", "eager"]))
case("none of several", "backends.0", "refuses no plan", put("backends", ["none", "eager"]))
case(
    "one backend and several",
    "backends",
    "both given",
    both(put("backend", "onnxruntime"), put("backends", ["eager"])),
)
case("goodput of no load", "workload.request_rate", "not known", put("objective", "goodput"))
case("a load for latency", "workload.request_rate", "no effect", put("workload.request_rate", 2.0))
case(
    "no requests",
    "workload.request_rate",
    "greater than 0",
    both(put("objective", "goodput"), put("workload.request_rate", 0)),
)
case("unknown objective", "objective", 'Did you mean "latency"?', put("objective", "latncy"))
case(
    "unknown drafter",
    "acceptance.drft",
    'Did you mean "draft"?',
    put("acceptance", {"drft": "draft-acceptance.json"}),
)
case("no profile", "acceptance.draft", "no acceptance profile", remove("draft-acceptance.json"))
case("profiles a file", "profiles", "is a file", put("profiles", "prompts.jsonl"))

# Draft models
SECOND = {"name": "draft", "path": "draft"}
case(
    "a draft called target",
    "models.drafts.0.name",
    "plan language",
    put("models.drafts.0.name", "target"),
)
case(
    "a draft called as an op",
    "models.drafts.0.name",
    "plan language",
    put("models.drafts.0.name", "forward"),
)
case(
    "a draft with a dash",
    "models.drafts.0.name",
    "must match",
    put("models.drafts.0.name", "my-draft"),
)
case(
    "two drafts of one name",
    "models.drafts.1.name",
    "two draft models",
    lambda problem, folder: problem["models"]["drafts"].append(SECOND),
)

# Model folders
case("no target folder", "models.target.path", "no folder", put("models.target.path", "targt"))
case("target a file", "models.target.path", "is a file", put("models.target.path", "prompts.jsonl"))
case("no config", "models.target.path", "no config.json", remove("target/config.json"))
case("config not JSON", "models.target.path", "config.json", write("target/config.json", "{"))
case("no weights", "models.drafts.0.path", "no weights", remove("draft/model.safetensors"))
case(
    "broken weights",
    "models.drafts.0.path",
    "safetensors",
    write("draft/model.safetensors", "x" * 99),
)


def deeper(problem: dict[str, Any], folder: Path) -> None:
    """Give the target layers enough to place some."""
    write_checkpoint(folder / "target", num_hidden_layers=4)


case(
    "layers placed that there are not",
    "models.target.path",
    "9 layers are to be read",
    put("models.target.placement", {"link": "disk", "layers": 9}),
)
case(
    "layers placed where rounds are compiled",
    "models.target.placement",
    "not by onnxruntime",
    both(deeper, put("models.target.placement", {"link": "disk"}), put("backend", "onnxruntime")),
)
case(
    "layers placed and rounded",
    "models.target.placement",
    "not rounded to",
    both(
        deeper, put("models.target.placement", {"link": "disk"}), put("models.target.dtype", "Q8_0")
    ),
)
case("no tokenizer", "models.drafts.0.path", "no tokenizer.json", remove("draft/tokenizer.json"))
case(
    "tokenizer not JSON",
    "models.drafts.0.path",
    "not valid JSON",
    write("draft/tokenizer.json", "{"),
)
case(
    "tokenizer without words",
    "models.drafts.0.path",
    "vocabulary",
    write("draft/tokenizer.json", json.dumps({"model": {}})),
)
case(
    "a missing layer",
    "models.target.path",
    "parameters",
    lambda problem, folder: _more_layers(folder / "target" / "config.json"),
)
case(
    "another vocabulary",
    "models.drafts.0.path",
    "token 0 is 'b'",
    checkpoint("draft", vocabulary=["b", "a", *VOCABULARY[2:]]),
)
case(
    "other merges",
    "models.drafts.0.path",
    "merge 1",
    checkpoint("draft", merges=[MERGES[0], ["c", "d"]]),
)
case(
    "a padded vocabulary",
    "models.drafts.0.path",
    "has 32 entries",
    checkpoint("draft", vocab_size=32),
)
case(
    "an unknown architecture",
    "models.target.path",
    "mamba",
    checkpoint("target", model_type="mamba"),
    MissingCapabilityError.exit_code,
)
case(
    "a mixture of experts",
    "models.target.path",
    "mixture of experts",
    checkpoint("target", num_local_experts=8),
    MissingCapabilityError.exit_code,
)
case("a long prompt", "workload.prompt_tokens", "positions", put("workload.prompt_tokens", 300))
case("a long output", "workload.output_tokens", "positions", put("workload.output_tokens", 215))
case(
    "a draft with few positions",
    "workload.output_tokens",
    "models.drafts.0 has 64",
    checkpoint("draft", max_position_embeddings=64),
)
case("gates that are missing", "gates", "there is no file", put("gates", "gates.tsv"))
case("exits that are missing", "token_exits", "there is no file", put("token_exits", "e.tsv"))
case("a corpus that is missing", "datastore", "no finished", put("datastore", "corpus"))
case(
    "a corpus that is not named",
    "datastore",
    "needs a folder",
    put("sources", ["prompt_lookup", "datastore"]),
)
case(
    "memory below the weights",
    "limits.memory",
    "the target's weights",
    put("limits.memory", 1000.0),
    InfeasibleError.exit_code,
)


def _more_layers(path: Path) -> None:
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**config, "num_hidden_layers": 5}), encoding="utf-8")
