"""Sources of drafts: what each answers from what it was taught, and how much it keeps."""

from __future__ import annotations

import tracemalloc
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.ir.plan import SourceState
from specplan.ir.tables.declaration import Declaration
from specplan.ir.tables.sources import SOURCE_ENTRIES
from specplan.ir.values import Entry, State
from specplan.runtime.requests import Request
from specplan.runtime.sources.adjacency import Adjacency
from specplan.runtime.sources.automaton import Automaton
from specplan.runtime.sources.continuations import continuation_trees
from specplan.runtime.sources.grammar import GrammarCounts
from specplan.runtime.sources.log import Log
from specplan.runtime.sources.ngram import NgramTable
from specplan.runtime.sources.phrases import Phrases
from specplan.runtime.sources.registry import SOURCES, new_source
from specplan.runtime.sources.source import Source, Wanted
from specplan.runtime.sources.text import lookup as lookup_in_text
from specplan.runtime.sources.trie import Trie
from tests.runtime.stated_trees import draft_paths, stated_paths

texts = st.lists(st.integers(0, 3), min_size=1, max_size=40)


def one(source: Source, text: list[int], wanted: Wanted) -> tuple[list[int], list[int]]:
    """Tokens and parents of what is found for one text, live nodes only."""
    continuations = source.lookup(np.array([text]), np.array([len(text)]), wanted)
    live = continuations.live[0]
    return continuations.tokens[0][live].tolist(), continuations.parents[0][live].tolist()


def of_request(state: SourceState, vocabulary: int) -> Source:
    """A declared source as a request without a grammar uses it."""
    return new_source(state, vocabulary).of_request(Request(prompt_tokens=(0,)))


def taught(source: Source, *every: list[int], last: int = 8) -> Source:
    for text in every:
        source.learn_text(source.begin(0), np.array(text), last)
    return source


@given(text=texts, longest=st.integers(1, 6), length=st.integers(1, 8))
def test_an_automaton_copies_after_the_first_of_the_longest_matches(
    text: list[int], longest: int, length: int
) -> None:
    expected: list[int] = []
    for order in range(min(longest, len(text) - 1), 0, -1):
        ends = [e for e in range(order, len(text)) if text[e - order : e] == text[-order:]]
        if ends:
            grown = list(text)
            for place in range(length):
                grown.append(grown[ends[0] + place])
            expected = grown[len(text) :]
            break
    automaton = taught(Automaton(100), text)
    assert one(automaton, text, Wanted(1, longest, length=length))[0] == expected


@given(text=texts, more=texts)
def test_an_automaton_grows_token_by_token(text: list[int], more: list[int]) -> None:
    wanted, whole = Wanted(1, 8, length=5), [*text, *more]
    once = taught(Automaton(200), whole)
    grown = Automaton(200)
    key = grown.begin(0)
    for end in range(1, len(whole) + 1):
        grown.learn_text(key, np.array(whole[:end]), 1)
    assert one(grown, whole, wanted) == one(once, whole, wanted)


def test_an_automaton_forgets_the_older_half_and_holds_one_text() -> None:
    automaton = Automaton(10)
    key = automaton.begin(0)
    text = list(range(11))
    automaton.learn_text(key, np.array(text), 1)
    assert one(automaton, [*text, 2], Wanted(length=2))[0] == []
    assert one(automaton, [*text, 7], Wanted(length=2))[0] == [8, 9]
    with pytest.raises(UsageError, match="one text"):
        automaton.learn_text(automaton.begin(0), np.array([1]), 1)


@given(text=texts, longest=st.integers(1, 5), length=st.integers(1, 6))
def test_a_log_of_one_text_begins_like_a_lookup_in_it(
    text: list[int], longest: int, length: int
) -> None:
    """One occurrence decides; several are weighed, the newest first among equals."""
    tokens, _ = one(taught(Log(100), text), text, Wanted(1, longest, length=length))
    copied = lookup_in_text(np.array(text), shortest=1, longest=longest, length=1).tolist()
    ends: list[int] = []
    for order in range(min(longest, len(text)), 0, -1):
        ends = [e for e in range(order, len(text)) if text[e - order : e] == text[-order:]]
        if ends:
            break
    counts = Counter(text[end] for end in ends)
    assert bool(tokens) == bool(copied) == bool(counts)
    if counts:
        assert counts[tokens[0]] == max(counts.values())
        if len(set(counts.values())) == 1 == max(counts.values()):
            assert tokens[0] == copied[0]


def test_a_log_keeps_the_newest_tokens_of_all_texts() -> None:
    log = Log(6)
    first, second = log.begin(0), log.begin(0)
    log.learn_text(first, np.array([1, 2, 3, 4]), 1)
    log.learn_text(second, np.array([5, 6, 7]), 1)
    assert one(log, [1], Wanted())[0] == []  # the older text gave way
    assert one(log, [5], Wanted(length=2))[0] == [6, 7]
    log.learn_text(second, np.arange(5, 20), 1)
    assert one(log, [5], Wanted())[0] == [] and one(log, [15], Wanted(length=2))[0] == [16, 17]


def test_a_log_merges_what_followed_and_ends_where_texts_end() -> None:
    log = taught(Log(100), [9, 1, 2, 3], [9, 1, 2, 4], [9, 1, 5], [9])
    tokens, parents = one(log, [9], Wanted(1, 4, children=8, length=3, nodes=5))
    assert tokens == [1, 2, 5, 4, 3] and parents == [-1, 0, 0, 1, 1]
    tokens, parents = one(log, [0, 1], Wanted(1, 4, children=2, length=2))
    assert tokens == [2, 4, 5] and parents == [-1, 0, -1]


FOLLOWED = st.lists(st.sampled_from([0, 1, 4095, 4096, (1 << 31) - 2]), max_size=9)


@given(
    followed=st.lists(st.tuples(st.integers(0, 3), FOLLOWED, st.sampled_from([0.5, 1, 1.25]))),
    length=st.integers(1, 9),
    children=st.integers(1, 5),
    nodes=st.none() | st.integers(1, 50),
    weighed=st.booleans(),
)
def test_trees_of_continuations_are_as_stated(
    followed: list[tuple[int, list[int], float]],
    length: int,
    children: int,
    nodes: int | None,
    weighed: bool,
) -> None:
    wanted = Wanted(1, 1, children, length, nodes)
    continuations = np.full((len(followed), length), -1)
    for row, (_, tokens, _) in enumerate(followed):
        continuations[row, : len(tokens[:length])] = tokens[:length]
    texts, weights = (np.array([each[n] for each in followed]) for n in (0, 2))
    drafts = continuation_trees(
        continuations, texts.astype(np.int64), 4, wanted, weights if weighed else None
    )
    for text, paths in enumerate(draft_paths(drafts)):
        rows = [each for each in followed if each[0] == text]
        stated = stated_paths(
            [tuple(tokens) for _, tokens, _ in rows],
            wanted,
            [weight for *_, weight in rows] if weighed else None,
        )
        assert paths == stated
    assert not drafts.tokens[~drafts.live].any()


def test_n_grams_are_counted_and_the_longest_known_run_decides() -> None:
    table = taught(NgramTable(3, 100), [1, 2, 3, 1, 2, 4, 1, 2, 4, 5, 2, 6], last=3)
    assert one(table, [1, 2], Wanted(1, 2, length=3))[0] == [4, 5, 2]
    assert one(table, [2], Wanted(1, 2, children=2))[0] == [4, 6]  # 6 is newer than 3
    assert one(table, [8, 2], Wanted(2, 2))[0] == []
    assert one(table, [8, 8], Wanted(1, 2))[0] == []


@given(text=texts)
def test_an_n_gram_proposes_what_followed_most_often(text: list[int]) -> None:
    table = taught(NgramTable(4, 500), text, last=4)
    proposed, _ = one(table, text, Wanted(1, 3))
    for order in range(min(3, len(text) - 1), 0, -1):
        counts = Counter(
            text[end] for end in range(order, len(text)) if text[end - order : end] == text[-order:]
        )
        if counts:
            assert counts[proposed[0]] == max(counts.values())
            return
    assert proposed == []


def test_n_grams_that_were_not_seen_for_longest_are_forgotten() -> None:
    table = NgramTable(2, 3)
    taught(table, [1, 2, 3, 4, 5], last=2)
    assert one(table, [1], Wanted())[0] == [] and one(table, [2], Wanted())[0] == [3]


def test_a_trie_follows_counts_and_fills_up_from_shorter_matches() -> None:
    trie = taught(Trie(500), [7, 1, 2], [7, 1, 3], [7, 1, 2], [8, 1, 9], last=3)
    tokens, parents = one(trie, [7], Wanted(1, 2, children=4, length=2, nodes=3))
    assert tokens == [1, 2, 3] and parents == [-1, 0, 0]
    tokens, parents = one(trie, [8, 1], Wanted(1, 2, children=4, length=2, nodes=3))
    assert tokens == [9, 2, 3] and parents == [-1, -1, -1]
    assert one(trie, [8, 1], Wanted(1, 2, children=2, length=2, nodes=3))[0] == [9, 2]
    assert one(trie, [7, 1], Wanted(1, 2, children=2, length=1)) == ([2, 3], [-1, -1])


def test_a_trie_eliminates_prompts_and_keeps_outputs() -> None:
    trie = Trie(500)
    key = trie.begin(3)
    trie.learn_text(key, np.array([1, 2, 3, 4, 5]), 2)
    assert one(trie, [1], Wanted())[0] == [2] and one(trie, [4], Wanted())[0] == [5]
    trie.close(key)
    assert one(trie, [1], Wanted())[0] == [] and one(trie, [4], Wanted())[0] == [5]


@settings(max_examples=30)
@given(every=st.lists(texts, min_size=1, max_size=8), capacity=st.integers(4, 60))
def test_a_trie_never_outgrows_its_capacity(every: list[list[int]], capacity: int) -> None:
    trie = Trie(capacity)
    for text in every:
        taught(trie, text, last=4)
        assert trie.nodes <= capacity


def test_pruning_keeps_what_is_common() -> None:
    trie = taught(Trie(60), *([[1, 2, 3]] * 60), list(range(100, 170)), last=3)
    assert one(trie, [1, 2], Wanted(1, 2))[0] == [3]
    assert one(trie, [100], Wanted())[0] == []


def test_an_adjacency_is_followed_from_token_to_token() -> None:
    adjacency = Adjacency(10, 3)
    adjacency.learn_rows(np.array([1, 2, 1]), np.array([[9, 9, 9], [5, 6, 7], [2, 3, 4]]))
    tokens, parents = one(adjacency, [8, 1], Wanted(children=2, length=2))
    assert tokens == [2, 5, 3] and parents == [-1, 0, -1]  # nothing is known after 3
    assert one(adjacency, [8, 1], Wanted(children=5))[0] == [2, 3, 4]
    assert one(adjacency, [5], Wanted())[0] == []


@given(
    runs=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=5), max_size=30),
    order=st.integers(2, 5),
    width=st.integers(1, 4),
)
def test_phrases_are_the_newest_different_runs_after_a_token(
    runs: list[list[int]], order: int, width: int
) -> None:
    source = Phrases(order, width, 1000)
    source.learn_runs([np.array(run) for run in runs])
    for last in range(4):
        cuts = [run[i : i + order] for run in runs for i in range(max(len(run) - order, 0) + 1)]
        known = [tuple(cut[1:]) for cut in cuts if cut[0] == last and len(cut) > 1]
        newest = list(dict.fromkeys(reversed(known)))[:width]
        tokens, parents = one(source, [9, last], Wanted(1, 1, width, order - 1, 100))
        paths = {()}
        for node, token in enumerate(tokens):
            path, above = (token,), parents[node]
            while above >= 0:
                path, above = (tokens[above], *path), parents[above]
            paths.add(path)
        assert paths == {run[:end] for run in newest for end in range(len(run) + 1)} | {()}
        if newest:  # side by side the newest comes first, other runs by another first token
            first = one(source, [last], Wanted(1, 1, 1, order - 1))[0]
            heaviest = Counter(run[0] for run in newest).most_common()
            assert heaviest[0][1] == dict(heaviest)[first[0]]


def test_phrases_go_by_as_many_tokens_as_are_matched() -> None:
    source = Phrases(4, 4, 100)
    source.learn_runs([np.array(run) for run in ([1, 2, 3, 4], [5, 2, 6, 7], [1, 2, 8])])
    assert one(source, [0, 1, 2], Wanted(2, 2, 1, 2))[0] == [8]  # the newest after 1, 2
    assert one(source, [1, 2], Wanted(2, 2, 4, 2, 10))[0] == [8, 3, 4]
    assert one(source, [5, 2], Wanted(1, 3, 1, 2))[0] == [6, 7]  # the longest match first
    assert one(source, [9, 2], Wanted(2, 3, 1, 2))[0] == []
    assert one(source, [2, 3, 4], Wanted(1, 3, 1, 2))[0] == []


def test_phrases_of_a_text_are_those_of_its_runs() -> None:
    text, order = [0, 1, 2, 0, 1, 3, 0, 2], 3
    grown, from_runs = Phrases(order, 4, 100), Phrases(order, 4, 100)
    key = grown.begin(0)
    for end in range(1, len(text) + 1):
        grown.learn_text(key, np.array(text[:end]), order)
    from_runs.learn_runs([np.array(text[i : i + order]) for i in range(len(text) - order + 1)])
    for last in range(4):
        wanted = Wanted(1, 1, 4, order - 1, 20)
        assert one(grown, [last], wanted) == one(from_runs, [last], wanted)


@pytest.mark.parametrize(
    "kind",
    [k for k, made in SOURCES.items() if {"rows", "text"} & {*made.learns} and not made.one_text],
)
def test_texts_of_a_batch_are_looked_up_as_alone(kind: str) -> None:
    source = of_request(SourceState(name=State("s"), kind=Entry(kind)), 8)
    rng = np.random.default_rng(0)
    rows = "rows" in SOURCES[kind].learns
    if rows:
        source.learn_rows(np.arange(8), rng.permuted(np.tile(np.arange(8), (8, 1)), axis=1))
    else:
        taught(source, rng.integers(0, 4, 80).tolist(), last=5)
    texts, lengths = rng.integers(0, 4, (6, 9)), np.array([9, 3, 5, 9, 1, 2])
    wanted = Wanted(1, 1 if rows else 3, children=2, length=3)
    together = source.lookup(texts, lengths, wanted)
    for row in range(6):
        alone = source.lookup(texts[row : row + 1], lengths[row : row + 1], wanted)
        for mine, theirs in zip(vars(alone).values(), vars(together).values(), strict=True):
            assert mine[0].tolist() == theirs[row].tolist()


@pytest.mark.parametrize("entry", SOURCE_ENTRIES, ids=lambda entry: entry.name)
def test_plans_may_teach_a_source_what_it_learns(entry: Declaration) -> None:
    assert {*(entry.learns or ())} == {*SOURCES[entry.name].learns}


@pytest.mark.parametrize("vocabulary", [2, 20, 300])
@pytest.mark.parametrize("kind", [k for k, made in SOURCES.items() if "text" in made.learns])
def test_memory_stays_below_what_is_stated(kind: str, vocabulary: int) -> None:
    rng = np.random.default_rng(0)
    text = rng.integers(0, vocabulary, 20_000)
    tracemalloc.start()
    try:
        source = of_request(
            SourceState(name=State("s"), kind=Entry(kind, (("capacity", 4000),))), vocabulary
        )
        key = source.begin(0)
        for end in range(2000, len(text) + 1, 2000):
            source.learn_text(key, text[:end], 6)
            source.lookup(text[None, end - 20 : end], np.array([20]), Wanted(1, 8, 1, 4))
            assert tracemalloc.get_traced_memory()[0] <= source.most_bytes + 50_000
    finally:
        tracemalloc.stop()


def test_a_state_of_a_parser_keeps_the_commonest_of_thousands_of_tokens() -> None:
    counts = GrammarCounts(200)
    tracemalloc.start()
    try:
        for token in range(1000, 3000):
            for state in range(200):
                counts.count((state - 100, 5), 7 if token % 2 else token)
        assert tracemalloc.get_traced_memory()[0] <= counts.most_bytes
    finally:
        tracemalloc.stop()
    assert {counts.commonest((state - 100, 5)) for state in range(200)} == {7}


def test_sources_without_a_maker_or_a_folder_are_refused() -> None:
    with pytest.raises(MissingCapabilityError, match="no source oracle"):
        new_source(SourceState(name=State("s"), kind=Entry("oracle")), 8)
    with pytest.raises(UsageError, match="path="):
        new_source(SourceState(name=State("s"), kind=Entry("datastore")), 8)
