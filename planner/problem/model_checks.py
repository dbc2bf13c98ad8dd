"""Checks of the model folders: files, architectures, tokenizers, vocabularies, lengths, memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from specplan.cost_models.models.drafter_shapes import is_drafter_folder, read_drafter
from specplan.cost_models.models.files.gguf_config import check_gguf_runs
from specplan.cost_models.models.files.gguf_headers import read_gguf
from specplan.cost_models.models.model_shape import ModelShape, is_gguf
from specplan.ir.errors import SpecplanError, UsageError
from specplan.ir.files import read_json
from specplan.planner.problem.errors import Errors, Origin, attempt
from specplan.planner.problem.models import TargetModel
from specplan.planner.problem.paths import cache_readable, is_model_id
from specplan.planner.problem.schema import Problem
from specplan.planner.problem.workload import read_trace


@dataclass(frozen=True)
class TokenTable:
    """What gives token numbers their meaning.

    Attributes:
        tokens: token text by number, added tokens included.
        merges: byte-pair merges in order; empty for other kinds of tokenizer.
    """

    tokens: dict[int, str]
    merges: tuple[tuple[str, ...], ...]


def read_tokenizer(path: Path) -> TokenTable:
    """Read a tokenizer.json.

    Raises:
        UsageError: when the file is missing, is not JSON, or holds no vocabulary.
    """
    value = read_json(path, "tokenizer")
    try:
        model = value["model"]
        vocabulary = model["vocab"]
        if isinstance(vocabulary, dict):  # BPE, WordPiece, WordLevel
            tokens = {int(number): token for token, number in vocabulary.items()}
        else:  # Unigram: [token, score] pairs
            tokens = {number: entry[0] for number, entry in enumerate(vocabulary)}
        for added in value.get("added_tokens") or ():
            tokens[int(added["id"])] = added["content"]
        merges = tuple(_pair(merge) for merge in model.get("merges") or ())
    except (KeyError, TypeError, IndexError, ValueError, AttributeError) as error:
        raise UsageError(
            "the tokenizer has no readable vocabulary (model.vocab)",
            where=str(path),
            remedy="Save it again with the tokenizers library.",
        ) from error
    return TokenTable(tokens, merges)


def first_difference(target: TokenTable, draft: TokenTable) -> str:
    """The first token number or merge on which two tokenizers differ, in words; empty if none."""
    for number in sorted(target.tokens.keys() | draft.tokens.keys()):
        ours, theirs = target.tokens.get(number), draft.tokens.get(number)
        if ours != theirs:
            return (
                f"token {number} is {_shown(theirs)} for the draft model and {_shown(ours)} for "
                "the target"
            )
    pairs = zip_longest(target.merges, draft.merges)
    for index, (ours_pair, theirs_pair) in enumerate(pairs):
        if ours_pair != theirs_pair:
            return (
                f"merge {index} is {_shown(theirs_pair)} for the draft model and "
                f"{_shown(ours_pair)} for the target"
            )
    return ""


def _pair(merge: Any) -> tuple[str, ...]:
    """A merge, written `"a b"` or `["a", "b"]`."""
    return tuple(merge.split(" ")) if isinstance(merge, str) else tuple(merge)


def _shown(value: str | Sequence[str] | None) -> str:
    if value is None:
        return "missing"
    return repr(value if isinstance(value, str) else " ".join(value))


SPECULATIVE_SLACK = 17
"""Positions past the text that a round may touch: the deepest draft (16) and the bonus token."""


@dataclass(frozen=True)
class _Folder:
    """A model folder with the key that names it."""

    key: str
    model: TargetModel


def check_models(problem: Problem, origin: Origin, *, weights_needed: bool) -> Errors:
    """What is wrong with model folders: that they cannot be planned for, or do not work together.

    Args:
        problem: a problem whose paths are absolute.
        origin: where it was written, for messages.
        weights_needed: whether the models must be run, so that config.json alone will not do.

    Yields:
        UsageError: a broken folder, a draft model that does not match, a length out of reach.
        MissingCapabilityError: an architecture that is not supported.
        InfeasibleError: a memory limit below the target's weights.
    """
    target = _Folder("models.target", problem.models.target)
    shape: ModelShape | None = None
    try:
        _check_files(target, origin, weights_needed)
        shape = _shape(target, origin)
    except SpecplanError as error:
        yield error
    if shape is not None:
        yield from attempt(_check_positions, target, shape, problem, origin)
        yield from attempt(_check_memory, shape, problem, origin)
    for index, draft in enumerate(problem.models.drafts):
        folder = _Folder(f"models.drafts.{index}", draft)
        run = weights_needed and not is_drafter_folder(draft.path)
        try:
            _check_files(folder, origin, run)
            if shape is not None:
                _check_draft(target, shape, folder, problem, origin)
        except SpecplanError as error:
            yield error


def _check_draft(
    target: _Folder, shape: ModelShape, draft: _Folder, problem: Problem, origin: Origin
) -> None:
    """Refuse a draft model or drafter that does not fit the target, whose shape this is."""
    if is_drafter_folder(draft.model.path):
        with origin.key(f"{draft.key}.path"):
            read_drafter(draft.model.path, shape, **draft.model.formats)
        return
    draft_shape = _shape(draft, origin)
    _check_tokenizers(target, draft, origin)
    _check_vocabulary(shape, draft_shape, draft, origin)
    _check_positions(draft, draft_shape, problem, origin)


def _check_files(folder: _Folder, origin: Origin, weights_needed: bool) -> None:
    path, key = folder.model.path, f"{folder.key}.path"
    if not path.exists():
        raise _no_folder(path, key, origin)
    if folder.model.plans_only and weights_needed:
        raise origin.usage(
            key,
            "weight_format, kv_format but for float16, bfloat16 and fp8, and a placement in host "
            "memory are for planning only, and the models must be run to measure",
            "Name a device and give ready acceptance profiles, or a checkpoint folder as stored.",
        )
    if path.is_file() and is_gguf(path):
        return _check_gguf(path, key, origin) if weights_needed else None
    if not path.is_dir():
        raise origin.usage(
            key,
            f"{path} is a file",
            "Give the folder that holds config.json and the weights, or a GGUF file.",
        )
    if not (path / "config.json").is_file():
        raise origin.usage(
            key,
            f"{path} has no config.json",
            "Give a transformers checkpoint folder (config.json, model.safetensors, "
            "tokenizer.json).",
        )
    if not weights_needed:
        return
    if not any(path.glob("*.safetensors")):
        raise origin.usage(
            key,
            f"{path} has no weights (*.safetensors), and the models must be run to measure",
            "Add the weights, or name a device and give ready acceptance profiles.",
        )
    if not (path / "tokenizer.json").is_file():
        raise origin.usage(
            key,
            f"{path} has no tokenizer.json",
            "Save the tokenizer in the tokenizers format beside the weights.",
        )


def _check_gguf(path: Path, key: str, origin: Origin) -> None:
    """Refuse a GGUF file whose model does not run, or that comes without a tokenizer."""
    with origin.key(key):
        model = read_gguf(path)
        check_gguf_runs(model)
    inside = any(name.startswith("tokenizer.ggml.tokens") for name in model.metadata)
    if not inside and not (path.parent / "tokenizer.json").is_file():
        raise origin.usage(
            key,
            f"{path} holds no tokenizer, and there is no tokenizer.json beside it",
            "Save one beside it.",
        )


def _no_folder(path: Path, key: str, origin: Origin) -> UsageError:
    model_id, base = "/".join(path.parts[-2:]), origin.base(key)
    if path.parent.exists() or not is_model_id(model_id):
        return origin.usage(
            key, f"there is no folder {path}", f"Check the path; it is relative to {base}."
        )
    if not cache_readable():
        return origin.usage(
            key,
            f"there is no folder {path}, and without huggingface_hub its cache is not searched",
            "Check the path, or install huggingface_hub to name models by their ids.",
        )
    return origin.usage(
        key,
        f"there is no folder {path}, nor a model of that id in the Hugging Face cache",
        f"Check the path, which is relative to {base}; or fetch the model: "
        f"`hf download {model_id}` (config.json and tokenizer.json are enough to plan).",
    )


def _shape(folder: _Folder, origin: Origin) -> ModelShape:
    with origin.key(f"{folder.key}.path"):
        return folder.model.shape()


def _check_tokenizers(target: _Folder, draft: _Folder, origin: Origin) -> None:
    ours, theirs = target.model.path / "tokenizer.json", draft.model.path / "tokenizer.json"
    if is_gguf(target.model.path) or is_gguf(draft.model.path):
        return  # a GGUF file has a form of its own for them; vocabularies are compared by size
    if not ours.is_file() and not theirs.is_file():
        return
    if ours.is_file() and theirs.is_file() and ours.read_bytes() == theirs.read_bytes():
        return
    with origin.key(f"{target.key}.path"):
        of_target = read_tokenizer(ours)
    with origin.key(f"{draft.key}.path"):
        of_draft = read_tokenizer(theirs)
    difference = first_difference(of_target, of_draft)
    if difference:
        raise origin.usage(
            f"{draft.key}.path",
            f"its tokenizer is not the target's: {difference}",
            "A draft model must share the target's tokenizer; take another draft model.",
        )


def _check_vocabulary(
    shape: ModelShape, draft: ModelShape, folder: _Folder, origin: Origin
) -> None:
    if draft.vocab_size != shape.vocab_size:
        raise origin.usage(
            f"{folder.key}.path",
            f"its vocabulary has {draft.vocab_size} entries, the target's {shape.vocab_size}",
            "Take a draft model with the target's vocabulary, or pad the smaller embedding.",
        )


def _check_positions(folder: _Folder, shape: ModelShape, problem: Problem, origin: Origin) -> None:
    workload = problem.workload
    if workload.trace is not None:
        with origin.key("workload.trace"):
            requests = read_trace(workload.trace)
        longest = max(requests, key=lambda r: r.prompt_tokens + r.output_tokens)
        prompt, output, key = longest.prompt_tokens, longest.output_tokens, "workload.trace"
    else:
        prompt, output = max(workload.lengths, default=0), workload.output_tokens or 0
        key = "workload.output_tokens"
        if prompt + SPECULATIVE_SLACK >= shape.max_positions:
            key = "workload.prompt_" + ("lengths" if workload.prompt_lengths else "tokens")
    needed = prompt + output + SPECULATIVE_SLACK
    if needed > shape.max_positions:
        raise origin.usage(
            key,
            f"a request needs {needed} positions ({prompt} prompt + {output} output + "
            f"{SPECULATIVE_SLACK} for drafts), {folder.key} has {shape.max_positions}",
            f"Keep prompt and output within {shape.max_positions - SPECULATIVE_SLACK} tokens, or "
            "take a model with more positions.",
        )


def _check_memory(shape: ModelShape, problem: Problem, origin: Origin) -> None:
    limit = problem.limits.memory
    weights = shape.resident_bytes
    if limit is not None and limit < weights:
        raise origin.infeasible(
            "limits.memory",
            f"the target's weights alone take {weights / 1e9:.3g} GB, "
            f"the limit is {limit / 1e9:.3g} GB",
            "Raise limits.memory, or take a smaller target or dtype.",
        )
