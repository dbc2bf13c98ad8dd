"""A round as a graph: ops are nodes, values and states the edges between them."""

from __future__ import annotations

from collections.abc import Iterator

import networkx as nx

from specplan.ir.op import Op
from specplan.ir.plan import Plan, Round
from specplan.ir.text.printer import print_op
from specplan.ir.types.scope import operands, states
from specplan.ir.values import Value

_MERMAID = str.maketrans(
    {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "[": "#91;", "]": "#93;"}
)


def round_graph(item: Round) -> nx.MultiDiGraph[str]:
    """One node per op (`label`: its first line of text, `region`: the op that holds it).

    Edges carry `label`, the value that flows or the state that orders two ops, and `kind`, value or
    state. They show one trip of a loop: what is carried flows from the op that gives it first, and
    what is yielded flows into the loop's own node. The graph has no cycle.
    """
    graph: nx.MultiDiGraph[str] = nx.MultiDiGraph(name=item.name)
    _add(graph, item.ops, None, {}, {})
    return graph


def to_mermaid(plan: Plan) -> str:
    """All rounds as one Mermaid flowchart."""
    lines = ["flowchart TD"]
    for index, item in enumerate(plan.rounds):
        graph = round_graph(item)
        lines.append(f'  subgraph r{index}["{_mermaid(item.name)}"]')
        for node, data in graph.nodes(data=True):
            lines.append(f'    r{index}{node}["{_mermaid(data["label"])}"]')
        lines.append("  end")
        for source, target, label, kind in _edges(graph):
            arrow = "-.->" if kind == "state" else "-->"
            lines.append(f'  r{index}{source} {arrow}|"{_mermaid(label)}"| r{index}{target}')
    return "\n".join(lines) + "\n"


def to_dot(plan: Plan) -> str:
    """All rounds as one Graphviz digraph."""
    lines = [f"digraph {_dot(plan.name)} {{", "  node [shape=box, fontname=monospace];"]
    for index, item in enumerate(plan.rounds):
        graph = round_graph(item)
        lines += [f"  subgraph cluster_{index} {{", f"    label={_dot(item.name)};"]
        for node, data in graph.nodes(data=True):
            lines.append(f"    r{index}{node} [label={_dot(data['label'])}];")
        lines.append("  }")
        for source, target, label, kind in _edges(graph):
            style = ", style=dashed" if kind == "state" else ""
            lines.append(f"  r{index}{source} -> r{index}{target} [label={_dot(label)}{style}];")
    return "\n".join([*lines, "}"]) + "\n"


def _edges(graph: nx.MultiDiGraph[str]) -> Iterator[tuple[str, str, str, str]]:
    for source, target, data in graph.edges(data=True):
        yield source, target, data["label"], data["kind"]


def _add(
    graph: nx.MultiDiGraph[str],
    ops: tuple[Op, ...],
    holder: str | None,
    defined: dict[Value, str],
    touched: dict[str, str],
) -> None:
    for op in ops:
        node = f"op{graph.number_of_nodes()}"
        text = print_op(op).splitlines()[0]
        graph.add_node(node, label=text.removesuffix(" {"), region=holder)
        for name in dict.fromkeys(operands(op)):
            if name in defined:
                graph.add_edge(defined[name], node, label=f"%{name}", kind="value")
        for state in dict.fromkeys(states(op)):
            if state in touched:
                graph.add_edge(touched[state], node, label=f"@{state}", kind="state")
            touched[state] = node
        region = op.body
        if region is not None:
            inner = {**defined, **{to: defined[of] for to, of in op.carried if of in defined}}
            _add(graph, region.ops, node, inner, touched)
            given = (*region.yields, *(() if region.until is None else (region.until,)))
            for name in dict.fromkeys(given):
                if name in inner:
                    graph.add_edge(inner[name], node, label=f"yield %{name}", kind="value")
        defined.update({name: node for name in op.results})


def _mermaid(text: str) -> str:
    """Text for a quoted label."""
    return text.translate(_MERMAID)


def _dot(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
