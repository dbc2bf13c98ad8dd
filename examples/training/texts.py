r"""Prompts to train a drafter on: from Python's standard library, or from a log of conversations.

    python examples/training/texts.py --out .work/training/code.jsonl --count 1200
    python examples/training/texts.py --out .work/training/chat.jsonl --log log.jsonl \
        --tokenizer models/target

`specplan train` lets the target answer them, at the workload's temperature and lengths, and learns
the answers. Without `--log` a prompt is the start of a module, class or function of this Python's
standard library, of files that the reference models were trained on: what acceptance and speed are
measured on (`examples/prompts`) is of other files. With `--whole` texts are pieces of these files,
for `specplan train --as-is`; with `--target` they are prompts and what a model writes greedily
after them, to be learned likewise. The library is under the PSF licence.

A log has a conversation a line, `{"id": ..., "messages": [{"role": ..., "content": ...}, ...]}`.
Every turn of an assistant gives a prompt: what came before it, by the chat template of
`--tokenizer`. The split of a prompt is that of its conversation, by a hash of its id, so that no
conversation is both learned and measured on: 90 % `train`, 5 % `profile` (acceptance), 5 % `bench`
(speed). So the same file can be the problem's `workload.prompts`.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import takewhile
from pathlib import Path
from textwrap import dedent
from typing import Any

HERE = Path(__file__).resolve().parent
CORPUS = HERE.parent / "reference_models/corpus.json"
LEAST, MOST = 240, 560
"""Characters of a prompt: about 96 to 200 tokens of the reference tokenizer."""
PIECE = 1200
"""Characters of a piece of a file."""
BATCH = 64
"""Prompts that are answered at once."""
START = re.compile(r"^(?: {4}| {0})(?:class |def |async def |@)", re.MULTILINE)


def library_prompts(corpus: Path, count: int, seed: int, whole: bool) -> list[dict[str, Any]]:
    """Starts of modules, classes and functions, or whole files, in an order of the seed."""
    library, files = Path(sysconfig.get_path("stdlib")), json.loads(corpus.read_text())["files"]
    wanted = [
        one["path"] for one in files if one["split"] == "train" and one["section"] == "stdlib"
    ]
    every: dict[str, str] = {}
    for name in wanted:
        path = library / name
        if path.is_file():
            cut = pieces if whole else starts
            every |= {prompt: name for prompt in cut(path.read_text(errors="ignore"))}
    chosen = sorted(every.items())
    random.Random(seed).shuffle(chosen)
    return [
        {"id": f"train-{number:04}", "split": "train", "source": name, "text": text}
        for number, (text, name) in enumerate(chosen[:count])
    ]


def starts(source: str) -> Iterator[str]:
    """Of the file and of each of its classes and functions, at the margin, whole lines."""
    for begin in (0, *(match.start() for match in START.finditer(source))):
        lines = source[begin : begin + MOST].split("\n")[:-1]
        margin = len(lines[0]) - len(lines[0].lstrip()) if lines else 0
        inside = takewhile(lambda line, margin=margin: not line[:margin].strip(), lines)
        text = dedent("\n".join(inside)).rstrip()
        if len(text) >= LEAST:
            yield text


def pieces(source: str) -> Iterator[str]:
    """All of a file, whole lines, about 400 tokens each."""
    piece = ""
    for line in source.splitlines(keepends=True):
        if piece and len(piece) + len(line) > PIECE:
            yield piece.rstrip()
            piece = ""
        piece += line
    yield piece.rstrip()


def logged_prompts(log: Path, tokenizer: Path) -> Iterator[dict[str, Any]]:
    """A prompt for each turn of an assistant, with the split of its conversation."""
    from transformers import AutoTokenizer

    words = AutoTokenizer.from_pretrained(tokenizer, local_files_only=True)
    for line in log.read_text().splitlines():
        talk = json.loads(line)
        messages, split = talk["messages"], split_of(str(talk["id"]))
        for turn, message in enumerate(messages):
            if turn and message["role"] == "assistant":
                yield {
                    "id": f"{talk['id']}-{turn}", "split": split, "source": str(talk["id"]),
                    "text": words.apply_chat_template(
                        messages[:turn], tokenize=False, add_generation_prompt=True
                    ),
                }  # fmt: skip


def split_of(conversation: str) -> str:
    """Of a conversation, by a hash of its id: always the same."""
    place = int(sha256(conversation.encode()).hexdigest(), 16) % 20
    return {18: "profile", 19: "bench"}.get(place, "train")


def answered(rows: Sequence[dict[str, Any]], target: Path, tokens: int) -> Iterator[dict[str, Any]]:
    """Prompts with greedy answers behind them, prompts of like length at once."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    words = AutoTokenizer.from_pretrained(target, local_files_only=True, padding_side="left")
    words.pad_token = words.pad_token or words.eos_token
    # As the example serves it; bfloat16, as it is stored, has no fast ops on most CPUs.
    model = AutoModelForCausalLM.from_pretrained(
        target, local_files_only=True, dtype=torch.float32
    ).eval()
    ordered = sorted(rows, key=lambda row: len(row["text"]))
    for first in range(0, len(ordered), BATCH):
        batch = ordered[first : first + BATCH]
        given = words([row["text"] for row in batch], return_tensors="pt", padding=True)
        with torch.inference_mode():
            written = model.generate(**given, max_new_tokens=tokens, do_sample=False)
        answers = written[:, given["input_ids"].shape[1] :]
        yield [
            {**row, "text": row["text"] + words.decode(answer, skip_special_tokens=True)}
            for row, answer in zip(batch, answers, strict=True)
        ]


def write(path: Path, batches: Iterable[Sequence[dict[str, Any]]]) -> int:
    """Append batches to a file as they come; the number of rows."""
    count = 0
    with path.open("a", encoding="utf-8") as file:
        for batch in batches:
            file.writelines(json.dumps(row) + "\n" for row in batch)
            file.flush()
            count += len(batch)
    return count


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="JSON Lines to write")
    parser.add_argument("--count", type=int, default=1200, help="prompts from the library")
    parser.add_argument("--whole", action="store_true", help="pieces of whole files, for --as-is")
    parser.add_argument("--target", type=Path, help="a model that answers, for --as-is")
    parser.add_argument("--tokens", type=int, default=192, help="of an answer")
    parser.add_argument("--seed", type=int, default=0, help="of their order")
    parser.add_argument("--log", type=Path, help="conversations, JSON Lines")
    parser.add_argument(
        "--tokenizer", type=Path, help="folder of the target, with its chat template"
    )
    options = parser.parse_args(arguments)
    if (options.log is None) != (options.tokenizer is None):
        parser.error("--log and --tokenizer go together")
    if options.log is None:
        rows = library_prompts(CORPUS, options.count, options.seed, options.whole)
    else:
        rows = list(logged_prompts(options.log, options.tokenizer))
    path = options.out
    path.parent.mkdir(parents=True, exist_ok=True)
    batches: Iterable[list[dict[str, Any]]] = [rows]
    if options.target is None:
        path.unlink(missing_ok=True)
    else:  # what an earlier call was ended in goes on
        known = path.read_text("utf-8").splitlines() if path.is_file() else []
        known = [line for line in known if line.endswith("}")]
        path.write_text("".join(f"{line}\n" for line in known), "utf-8")
        done = {json.loads(line)["id"] for line in known}
        left = [row for row in rows if row["id"] not in done]
        batches = answered(left, options.target, options.tokens)
    print(f"{path}: {write(path, batches)} prompts")


if __name__ == "__main__":
    main()
