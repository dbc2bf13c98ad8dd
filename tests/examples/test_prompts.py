"""The prompts are held out, and the two halves do not share a source."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from recipe import corpus
from recipe.prompts import (
    COUNTS,
    LEFT,
    LONGEST,
    SHORTEST,
    SHORTEST_HEAD,
    head_with_docstring,
    window_hashes,
)
from tokenizers import Tokenizer

Prompts = dict[str, list[dict[str, Any]]]


def test_there_are_as_many_as_promised(prompts: Prompts) -> None:
    for task, count in COUNTS.items():
        assert Counter(p["split"] for p in prompts[task]) == {
            "profile": count // 2,
            "bench": count // 2,
        }
        assert all(p["task"] == task for p in prompts[task])
    ids = [p["id"] for rows in prompts.values() for p in rows]
    assert len(set(ids)) == len(ids)


def test_lengths_are_in_bounds(models: Path, prompts: Prompts) -> None:
    tokenizer = Tokenizer.from_file(str(models / "target" / "tokenizer.json"))
    for prompt in (p for rows in prompts.values() for p in rows):
        assert len(tokenizer.encode(prompt["text"]).ids) == prompt["tokens"]
        shortest = SHORTEST_HEAD if prompt["task"] == "functions" else SHORTEST
        assert shortest <= prompt["tokens"] <= LONGEST


def test_every_source_is_held_out(models: Path, prompts: Prompts) -> None:
    split = {f.path: f.split for f in corpus.read_manifest(models / "corpus.json")}
    assert all(split[p["source"]] == "heldout" for rows in prompts.values() for p in rows)


def test_the_halves_come_from_different_sources(prompts: Prompts) -> None:
    for rows in prompts.values():
        halves = [{p["source"] for p in rows if p["split"] == s} for s in ("profile", "bench")]
        assert not halves[0] & halves[1]


def test_no_two_prompts_share_a_window(prompts: Prompts) -> None:
    """Nor do those of code and prose; a function's start may be a prompt of code too."""
    for tasks in (("code", "prose"), ("functions",)):
        seen: set[int] = set()
        for prompt in (p for task in tasks for p in prompts[task]):
            mine = set(window_hashes(prompt["text"]).tolist())
            assert mine and not mine & seen
            seen |= mine


def test_prompts_are_excerpts_of_their_sources(models: Path, prompts: Prompts) -> None:
    """Where the listed file is installed unchanged, a prompt is found in it word for word."""
    tokenizer = Tokenizer.from_file(str(models / "target" / "tokenizer.json"))
    sources = {p["source"] for task in ("code", "functions") for p in prompts[task]}
    unchanged = {
        file.path: corpus.read_text(file)
        for file in corpus.read_manifest(models / "corpus.json")
        if file.path in sources
        and (corpus.stdlib_root() / file.path).exists()
        and corpus.hash_file(corpus.stdlib_root() / file.path) == file.sha256
    }
    functions = cache(lambda source: [*corpus.functions(unchanged[source])])
    for prompt in prompts["code"]:
        assert prompt["text"] in unchanged.get(prompt["source"], prompt["text"])
    for prompt in prompts["functions"]:
        text = prompt["text"]
        assert head_with_docstring(text) == text and not text.endswith("\n")
        if prompt["source"] in unchanged:
            whole = [
                function for function in functions(prompt["source"]) if function.startswith(text)
            ]
            assert whole
            assert all(len(tokenizer.encode(f).ids) >= prompt["tokens"] + LEFT for f in whole)


def test_the_split_follows_from_the_name(models: Path) -> None:
    for file in corpus.read_manifest(models / "corpus.json"):
        one_in = corpus.TOPIC_HELDOUT_ONE_IN if file.section == "topics" else 10
        assert file.split == corpus.split_of(file.path, one_in)


def test_window_hashes_find_equal_windows() -> None:
    text = "".join(chr(33 + (i * i + i // 7) % 90) for i in range(300))
    windows = window_hashes(text)
    assert len(windows) == len(text) - 63
    assert window_hashes(text[100:164])[0] == windows[100]
    assert len(window_hashes("short")) == 0
