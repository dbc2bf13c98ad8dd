"""Held-out prompts for three tasks: code, prose and functions.

A prompt begins where a reader would begin (a file, a class, a function, a paragraph), is about 96
to 200 tokens long, and shares no window of 64 characters with the text the models were trained on,
nor with another prompt of its task. Prompts of the ``profile`` half (to measure acceptance on) and
of the ``bench`` half (to measure speed on) come from different files and topics.

A prompt of ``functions`` is the head of a function with its docstring, moved to the margin: 48 to
200 tokens, with at least ``LEFT`` left to write.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from recipe import bpe, corpus, store
from recipe.stages import Plan, sources

WINDOW = 64
SHORTEST, LONGEST = 96, 200
SHORTEST_HEAD = 48
LEFT = 64
COUNTS = {"code": 240, "prose": 120, "functions": 96}
SPLITS = ("profile", "bench")
_PRIME = 1_099_511_628_211

Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Candidate:
    """A possible prompt."""

    source: str
    text: str
    tokens: int


def window_hashes(text: str, width: int = WINDOW) -> Hashes:
    """A 64-bit polynomial hash of every window of ``width`` (a power of two) bytes."""
    value = np.frombuffer(text.encode("utf-8"), dtype=np.uint8).astype(np.uint64)
    if len(value) < width:
        return np.zeros(0, dtype=np.uint64)
    power, done = np.uint64(_PRIME), 1
    with np.errstate(over="ignore"):
        while done < width:
            value = value[:-done] * power + value[done:]
            power, done = power * power, done * 2
    return value


def train_texts(files: list[corpus.SourceFile]) -> list[str]:
    """Everything any stage trains on, as it is trained on."""
    code = corpus.documents(files, "train", ("stdlib", "tests"))
    return code + corpus.prose_documents(files, "train")


def _cut(tokenizer: Tokenizer, text: str, aim: int) -> tuple[str, int] | None:
    """The start of ``text``, to the line end nearest to ``aim`` tokens if one is in bounds."""
    encoding = tokenizer.encode(text[: LONGEST * 12])
    ends = [stop for _, stop in encoding.offsets]
    if len(ends) < SHORTEST:
        return None
    best = ends[min(aim, len(ends)) - 1]
    breaks = [
        n
        for n in range(SHORTEST, min(LONGEST, len(ends)) + 1)
        if text[ends[n - 1] :].startswith("\n")
    ]
    if breaks:
        best = ends[min(breaks, key=lambda n: abs(n - aim)) - 1]
    cut = text[:best]
    count = len(tokenizer.encode(cut).ids)
    return (cut, count) if SHORTEST <= count <= LONGEST else None


def _code_starts(source: str) -> list[int]:
    """Offsets of the file's start and of its classes and functions (decorators included)."""
    offsets = np.cumsum([0, *(len(line) + 1 for line in source.split("\n"))])
    starts = {0}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            starts.add(int(offsets[first - 1]))
    return sorted(starts)


def head_with_docstring(function: str) -> str | None:
    """A function up to the end of its docstring, or None where it has none."""
    first = ast.parse(function).body[0].body[0]  # type: ignore[attr-defined]
    if isinstance(first, ast.Expr) and isinstance(getattr(first.value, "value", None), str):
        return "\n".join(function.split("\n")[: first.end_lineno])
    return None


def _function_starts(tokenizer: Tokenizer, source: str, text: str) -> Iterator[Candidate]:
    """The head and docstring of each function of which enough is left to write."""
    for function in corpus.functions(text):
        head = head_with_docstring(function)
        if head is not None:
            count, whole = (len(tokenizer.encode(t).ids) for t in (head, function))
            if SHORTEST_HEAD <= count <= min(LONGEST, whole - LEFT):
                yield Candidate(source, head, count)


def _prose_starts(text: str) -> list[int]:
    """Offsets of paragraphs that begin at the margin or nearly so."""
    starts, at = [], 0
    for paragraph in text.split("\n\n"):
        body = paragraph.lstrip("\n")
        if body[:1].strip() or body[:4].strip():
            starts.append(at + len(paragraph) - len(body))
        at += len(paragraph) + 2
    return starts


def _spans(
    tokenizer: Tokenizer, source: str, text: str, starts: list[int], rng: np.random.Generator
) -> Iterator[Candidate]:
    """Candidates of one document that do not overlap one another."""
    free = 0
    for start in starts:
        if start < free:
            continue
        cut = _cut(tokenizer, text[start:], int(rng.integers(SHORTEST + 8, LONGEST - 8)))
        if cut is not None:
            free = start + len(cut[0])
            yield Candidate(source, *cut)


def candidates(
    tokenizer: Tokenizer, files: list[corpus.SourceFile], task: str, seed: int
) -> list[Candidate]:
    """Every candidate of a task, from held-out files and topics only."""
    rng = np.random.default_rng([seed, 4, len(task)])
    out: list[Candidate] = []
    for file in files:
        if file.split != "heldout" or file.section == "tests":
            continue
        text = corpus.read_text(file)
        if task == "code" and file.section == "stdlib":
            out += _spans(tokenizer, file.path, text, _code_starts(text), rng)
        elif task == "functions" and file.section == "stdlib":
            out += _function_starts(tokenizer, file.path, text)
        elif task == "prose" and file.section == "topics":
            out += _spans(tokenizer, file.path, text, _prose_starts(text), rng)
        elif task == "prose" and file.section == "stdlib":
            for doc in corpus.docstrings(text):
                out += _spans(tokenizer, file.path, doc, [0], rng)
    return out


def unseen(found: list[Candidate], trained: list[str], taken: set[int]) -> list[Candidate]:
    """Candidates that share no window with the trained text, nor with one taken before."""
    hashes = [window_hashes(c.text) for c in found]
    wanted = np.unique(np.concatenate(hashes)) if hashes else np.zeros(0, dtype=np.uint64)
    seen: list[Hashes] = []
    for start in range(0, len(trained), 50):
        windows = window_hashes("\n\n\n".join(trained[start : start + 50]))
        seen.append(np.intersect1d(wanted, windows))
    known = np.unique(np.concatenate(seen)) if seen else wanted[:0]
    kept = []
    for candidate, windows in zip(found, hashes, strict=True):
        mine = set(windows.tolist())
        if len(windows) and not np.isin(windows, known).any() and not mine & taken:
            taken |= mine
            kept.append(candidate)
    return kept


def choose(found: list[Candidate], count: int) -> dict[str, list[Candidate]]:
    """Deal sources to the two halves evenly, then take prompts of each half round robin."""
    by_source: dict[str, list[Candidate]] = {}
    for candidate in found:
        by_source.setdefault(candidate.source, []).append(candidate)
    half = count // 2
    halves: dict[str, list[list[Candidate]]] = {s: [] for s in SPLITS}
    cap = max(4, count // 12)
    weight = dict.fromkeys(SPLITS, 0)
    for source in sorted(by_source, key=lambda s: (-len(by_source[s]), s)):
        split = min(SPLITS, key=lambda s: weight[s])
        halves[split].append(by_source[source])
        weight[split] += min(cap, len(by_source[source]))
    out = {}
    for split, lists in halves.items():
        deepest = max((len(x) for x in lists), default=0)
        spread = [x[i] for i in range(deepest) for x in lists if i < len(x)]
        out[split] = spread[:half]
    return out


def stage(plan: Plan) -> None:
    """Write a file for each task."""
    tokenizer = bpe.load_tokenizer(plan.out / "target")
    files = sources(plan)
    trained, taken = train_texts(files), set[int]()
    for task, count in COUNTS.items():
        if task == "functions":  # they may begin as prompts of another task do
            taken = set()
        found = candidates(tokenizer, files, task, plan.seed)
        if task == "prose":  # the manual first, docstrings where it does not suffice
            found.sort(key=lambda c: not c.source.startswith("topics:"))
        kept = unseen(found, trained, taken)
        rows = []
        for split, chosen in choose(kept, count).items():
            for n, c in enumerate(chosen):
                row = {"id": f"{task}-{split}-{n:03d}", "task": task, "split": split}
                row |= {"source": c.source, "tokens": str(c.tokens), "text": c.text}
                rows.append(json.dumps({**row, "tokens": c.tokens}, ensure_ascii=False))
        store.write_text(plan.prompts / f"{task}.jsonl", "\n".join(rows) + "\n")
        plan.console.print(f"{task}: {len(found)} candidates, {len(kept)} unseen, {len(rows)} kept")
