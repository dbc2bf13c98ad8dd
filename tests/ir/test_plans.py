"""Every plan on disk is said in the language: it reads, prints, verifies, and has a picture."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import networkx as nx
import pytest

import specplan.ir
from specplan.ir import (
    parse_ops,
    parse_plan,
    plan_from_json,
    plan_to_json,
    print_op,
    print_plan,
    print_round,
    round_graph,
    to_dot,
    to_mermaid,
    verify_plan,
)
from specplan.ir.ops import OPS
from specplan.ir.plan import walk, walk_plan
from specplan.ir.types.infer import infer_round
from specplan.ir.types.value_types import NodesType, TreeType
from tests.ir.plans_on_disk import FOLDER, NAMES, plan_of, text_of

every_plan = pytest.mark.parametrize("name", NAMES)


@every_plan
def test_the_file_is_the_canonical_text(name: str) -> None:
    assert print_plan(plan_of(name)) == text_of(name)
    assert plan_of(name).name == name


@every_plan
def test_what_is_printed_reads_back_as_an_equal_plan(name: str) -> None:
    plan = plan_of(name)
    again = parse_plan(print_plan(plan))
    assert again == plan and hash(again) == hash(plan)
    for item in plan.rounds:
        body = "\n".join(print_round(item).splitlines()[1:-1])
        assert parse_ops(body) == item.ops
        assert parse_ops("\n".join(print_op(op) for op in item.ops)) == item.ops


@every_plan
def test_the_json_form_reads_back_as_an_equal_plan(name: str) -> None:
    document = json.dumps(plan_to_json(plan_of(name)), allow_nan=False)
    assert plan_from_json(json.loads(document)) == plan_of(name)


@every_plan
def test_no_rule_is_broken(name: str) -> None:
    assert verify_plan(plan_of(name)) == ()


@every_plan
def test_sizes_hold_together(name: str) -> None:
    for item in plan_of(name).rounds:
        for step in infer_round(plan_of(name), item).steps:
            for given in step.gives:
                if isinstance(given, TreeType):
                    assert 0 <= given.depth <= given.nodes
                    if given.parents is not None:
                        assert len(given.parents) == given.nodes
                        assert all(-1 <= p < i for i, p in enumerate(given.parents))
                        assert max(given.depths or (0,)) <= given.depth
                if isinstance(given, NodesType) and given.indices is not None:
                    assert len(given.indices) == given.width


def test_every_op_is_used_somewhere() -> None:
    ledger = [parse_plan(path.read_text()) for path in (FOLDER / "ledger").glob("*.plan")]
    plans = [*ledger, *map(plan_of, NAMES)]
    used = {op.keyword for plan in plans for op in walk_plan(plan)}
    assert used == set(OPS)


@every_plan
def test_comments_and_spaces_mean_nothing(name: str) -> None:
    lines = text_of(name).splitlines()
    noisy = "\r\n\n".join(f"\t {line}  # said by {index}" for index, line in enumerate(lines))
    assert parse_plan(f"\n# a plan\n{noisy}") == plan_of(name)


@every_plan
def test_a_round_is_a_graph_without_cycles_with_one_node_per_op(name: str) -> None:
    for item in plan_of(name).rounds:
        graph = round_graph(item)
        ops = list(walk(item.ops))
        assert nx.is_directed_acyclic_graph(graph)
        assert [data["label"] for _, data in graph.nodes(data=True)] == [
            print_op(op).splitlines()[0].removesuffix(" {") for op in ops
        ]
        read_or_given = sum(bool(op.results) for op in ops)
        assert graph.number_of_edges() >= read_or_given


def test_the_picture_of_a_loop_shows_one_trip() -> None:
    graph = round_graph(plan_of("draft_chain").round("decode"))
    edges = {(source, target, data["label"]) for source, target, data in graph.edges(data=True)}
    assert ("op0", "op2", "%t") in edges, "the first tree flows into the body"
    assert ("op5", "op1", "yield %n") in edges, "what is yielded flows into the loop"
    assert ("op1", "op6", "%c") in edges, "and from there on"
    assert ("op3", "op11", "@dkv") in edges, "the commit comes after the forward"


@every_plan
def test_mermaid_edges_join_declared_nodes(name: str) -> None:
    text = to_mermaid(plan_of(name))
    assert text.startswith("flowchart TD\n") and text.endswith("\n")
    declared = set(re.findall(r'^    (r\d+op\d+)\["[^"\[\]<>]+"\]$', text, re.MULTILINE))
    edges = re.findall(r'^  (r\d+op\d+) -\.?->\|"[^"]+"\| (r\d+op\d+)$', text, re.MULTILINE)
    assert len(declared) == len(list(walk_plan(plan_of(name))))
    assert edges and {end for edge in edges for end in edge} <= declared
    assert text.count("subgraph") == text.count("\n  end\n") == len(plan_of(name).rounds)
    assert len(text.splitlines()) == 1 + len(declared) + len(edges) + 2 * text.count("subgraph")


@every_plan
def test_dot_edges_join_declared_nodes(name: str) -> None:
    text = to_dot(plan_of(name))
    quoted = r'"(?:[^"\\]|\\.)*"'
    declared = set(re.findall(rf"^    (r\d+op\d+) \[label={quoted}\];$", text, re.MULTILINE))
    edge = rf"^  (r\d+op\d+) -> (r\d+op\d+) \[label={quoted}(?:, style=dashed)?\];$"
    edges = re.findall(edge, text, re.MULTILINE)
    assert len(declared) == len(list(walk_plan(plan_of(name))))
    assert edges and {end for edge in edges for end in edge} <= declared


def test_names_with_dots_and_quotes_are_drawn() -> None:
    text = text_of("skipped_layers").replace("round decode", "round a.end")
    plan = parse_plan(text.replace("plan skipped_layers", "plan with.dots"))
    assert 'digraph "with.dots" {' in to_dot(plan)
    assert 'subgraph r0["a.end"]' in to_mermaid(plan)
    assert r"compute \"m < b\" m=%m b=%b" in to_dot(plan)
    assert "compute #quot;m #lt; b#quot; m=%m b=%b" in to_mermaid(plan)


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_graphviz_reads_the_pictures() -> None:
    for name in NAMES:
        subprocess.run(["dot", "-Tcanon"], input=to_dot(plan_of(name)).encode(), check=True)


def test_public_names_exist() -> None:
    for name in specplan.ir.__all__:
        assert getattr(specplan.ir, name) is not None
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = specplan.ir.nothing_of_the_kind
