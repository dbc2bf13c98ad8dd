"""A round as a graph: ops are nodes, values and states the edges between them."""

from __future__ import annotations

from typing import Any

import networkx as nx

from specplan.ir.ops import Op, Repeat, Segment, When
from specplan.ir.plan import Plan, Round
from specplan.ir.printer import print_op
from specplan.ir.scope import operands, states
from specplan.ir.values import Value


def round_graph(item: Round) -> nx.MultiDiGraph[str]:
    """One node per op (`label`: its first line of text, `region`: the op that holds it).

    Edges carry `label`: the value that flows, or the state that orders two ops.
    """
    graph: nx.MultiDiGraph[str] = nx.MultiDiGraph(name=item.name)
    _add(graph, item.ops, None, {}, {})
    return graph


def to_mermaid(plan: Plan) -> str:
    """All rounds as one Mermaid flowchart."""
    lines = ["flowchart TD"]
    for item in plan.rounds:
        graph = round_graph(item)
        lines.append(f"  subgraph {item.name}")
        for node, data in graph.nodes(data=True):
            label = _quoted(str(data["label"])).replace("[", "#91;").replace("]", "#93;")
            lines.append(f'    {item.name}_{node}["{label}"]')
        lines.append("  end")
        for source, target, data in graph.edges(data=True):
            arrow = "-.->" if data["kind"] == "state" else "-->"
            label = data["label"]
            lines.append(f'  {item.name}_{source} {arrow}|"{label}"| {item.name}_{target}')
    return "\n".join(lines) + "\n"


def to_dot(plan: Plan) -> str:
    """All rounds as one Graphviz digraph."""
    lines = [f'digraph "{plan.name}" {{', "  node [shape=box, fontname=monospace];"]
    for item in plan.rounds:
        graph = round_graph(item)
        lines += [f'  subgraph "cluster_{item.name}" {{', f'    label="{item.name}";']
        for node, data in graph.nodes(data=True):
            lines.append(f'    {item.name}_{node} [label="{_quoted(str(data["label"]), "dot")}"];')
        lines.append("  }")
        for source, target, data in graph.edges(data=True):
            style = ", style=dashed" if data["kind"] == "state" else ""
            edge = f"{item.name}_{source} -> {item.name}_{target}"
            lines.append(f'  {edge} [label="{data["label"]}"{style}];')
    return "\n".join([*lines, "}"]) + "\n"


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
        if isinstance(op, Repeat | When | Segment):
            inner = dict(defined)
            if isinstance(op, Repeat):
                inner.update({parameter: node for parameter, _ in op.carried})
            _add(graph, op.body.ops, node, inner, touched)
            for name in op.body.yields:
                if name in inner and inner[name] != node:
                    graph.add_edge(inner[name], node, label=f"yield %{name}", kind="value")
        defined.update({name: node for name in op.results})


def _quoted(text: str, form: str = "mermaid") -> str:
    replaced: dict[str, Any] = {"mermaid": "#quot;", "dot": '\\"'}
    return text.replace('"', replaced[form])
