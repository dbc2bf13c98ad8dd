"""Entries of `threads`: which texts begin when, and how they are joined, as pure functions."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from specplan.ir.errors import UsageError
from specplan.ir.tables.builtin import BUILTIN
from specplan.runtime.threads import THREADS, Branches, Thread

Answer = Callable[[Thread], tuple[str, tuple[int, ...]]]


def played(branches: Branches, answer: Answer) -> tuple[list[list[str]], str]:
    """Names of the threads of each stage, and the output, where a stage ends at once."""
    threads: list[Thread] = []
    stages: list[list[str]] = []
    while True:
        known = {one.name for one in threads}
        new = [one for one in branches.begin(threads) if one.name not in known]
        if not new:
            return stages, branches.join(threads)
        stages.append([one.name for one in new])
        waiting = [*threads, *new]  # nothing begins before the last stage has ended
        assert {one.name for one in branches.begin(waiting)} <= {one.name for one in waiting}
        for one in new:
            text, tokens = answer(one)
            threads.append(replace(one, text=text, tokens=tokens, ended=True))


def test_the_folder_and_the_table_know_the_same_entries() -> None:
    assert set(THREADS) == set(BUILTIN.names("threads"))


@pytest.mark.parametrize(("route", "routed"), [("", ""), ("Points?", " Yes."), ("Points?", "no")])
def test_points_of_an_outline_are_written_at_once(route: str, routed: str) -> None:
    outline = " Boil water.\n2. Add tea\n2. again\nnot a point\n3) Wait"
    prompts = {}

    def answer(thread: Thread) -> tuple[str, tuple[int, ...]]:
        prompts[thread.name] = str(thread.after)
        if thread.name == "route":
            return routed, ()
        return (outline if thread.name == "skeleton" else f" <{thread.name}>\n"), ()

    made = THREADS["points"].branches("Give a skeleton.", "Expand point {n}, {point}.", route)
    stages, text = played(made, answer)
    if routed == "no":
        assert stages == [["route"], ["answer"]] and text == " <answer>\n"
        return
    assert stages[-2:] == [["skeleton"], ["point 1", "point 2", "point 3"]]
    assert (stages[0] == ["route"]) == bool(route)
    assert prompts["skeleton"] == "\nGive a skeleton.\n1."
    begin = f"{prompts['skeleton']}{outline}\n"
    assert prompts["point 2"] == f"{begin}Expand point 2, Add tea.\n2. Add tea"
    heads = ("1. Boil water. <point 1>", "2. Add tea <point 2>", "3. Wait <point 3>")
    assert text == "\n".join(heads)


def test_an_outline_without_points_is_the_answer() -> None:
    made = THREADS["points"].branches("Skeleton.", "Point {n}.")
    assert played(made, lambda thread: ("\nno idea", ())) == ([["skeleton"]], "\nno idea")


def test_labels_are_a_list_or_prompts(tmp_path: Path) -> None:
    path = tmp_path / "labels.json"
    path.write_text('["person", "place"]', encoding="utf-8")
    made = THREADS["labels"].branches(str(path))
    assert [one.after for one in made.begin(())] == ["\nperson:", "\nplace:"]
    assert {one.stops for one in made.begin(())} == {("\n",)}
    stages, text = played(made, lambda thread: (f" the {thread.name} ", ()))
    assert stages == [["person", "place"]]
    assert json.loads(text) == {"person": "the person", "place": "the place"}
    path.write_text('{"person": "\\nWho?"}', encoding="utf-8")
    assert THREADS["labels"].branches(str(path)).begin(())[0].after == "\nWho?"
    for wrong in ("3", '{"a": 1}', "no json"):
        path.write_text(wrong, encoding="utf-8")
        with pytest.raises(UsageError, match="labels"):
            THREADS["labels"].branches(str(path))
    with pytest.raises(UsageError, match="cannot be read"):
        THREADS["labels"].branches(str(tmp_path / "none.json"))


def test_forks_begin_where_a_text_forks_and_come_after_it() -> None:
    answers = {
        "main": ("m", (1, 90, 2, 90)),
        "main.1": ("a", (90, 5)),
        "main.3": ("b", (6,)),
        "main.1.0": ("c", ()),
    }
    afters = {}

    def answer(thread: Thread) -> tuple[str, tuple[int, ...]]:
        afters[thread.name] = thread.after
        return answers[thread.name]

    stages, text = played(THREADS["fork"].branches(90, 91), answer)
    assert stages == [["main"], ["main.1", "main.3"], ["main.1.0"]]
    assert afters["main.3"] == (1, 90, 2, 90, 91)
    assert afters["main.1.0"] == (1, 90, 91, 90, 91)
    assert text == "m\na\nc\nb"
    running = Thread(name="main", tokens=(1, 90))  # a fork begins while its text goes on
    assert [one.name for one in THREADS["fork"].branches(90, 91).begin([running])] == ["main.1"]


@pytest.mark.parametrize("tokens", [(1, 7), (1, 2)])
def test_a_second_text_goes_on_after_the_first(tokens: tuple[int, ...]) -> None:
    afters = {}

    def answer(thread: Thread) -> tuple[str, tuple[int, ...]]:
        afters[thread.name] = thread.after
        return (thread.name, tokens)

    stages, text = played(THREADS["after"].branches(7), answer)
    ends = tokens[-1] == 7
    assert stages == ([["first"], ["second"]] if ends else [["first"]])
    assert text == ("firstsecond" if ends else "first")
    assert not ends or afters["second"] == tokens


def test_the_best_thoughts_go_on() -> None:
    """A thought is worth its last digit; the best of all paths is joined."""
    afters = {}

    def answer(thread: Thread) -> tuple[str, tuple[int, ...]]:
        afters[thread.name] = str(thread.after)
        if thread.name.endswith("?"):
            return f" {thread.name[-2]}.5 points", ()
        return f"think {thread.name[-1]}", ()

    made = THREADS["thoughts"].branches("Worth?", width=3, depth=2)
    stages, text = played(made, answer)
    assert [len(stage) for stage in stages] == [3, 3, 9, 9]
    assert stages[2][0] == "/2/0", "the best state first"
    assert afters["/2/0"] == "\nthink 2\n" and afters["/2/0?"] == "\nthink 2\nthink 0\nWorth?"
    assert text == "think 2\nthink 2"
