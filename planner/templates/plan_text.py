"""The parts of plan text that methods share: the head of a plan and the end of its round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from textwrap import dedent, indent
from types import MappingProxyType

from specplan.ir.plan import Plan
from specplan.ir.tables.builtin import BUILTIN
from specplan.ir.text.parser import parse_plan
from specplan.ir.values import print_atom
from specplan.passes.share_prefix import share_prefix
from specplan.planner.facts import ProblemFacts


def single_round_plan(
    facts: ProblemFacts,
    name: str,
    models: Iterable[str],
    body: str,
    *,
    states: Iterable[str] = (),
    kept: Mapping[str, str] = MappingProxyType({}),
    reproducible: bool = True,
    lossless: bool = True,
) -> Plan:
    """A plan of one round, `decode`.

    Args:
        facts: the problem, for what the plan assumes.
        name: the plan's name.
        models: roles beside the target.
        body: the ops of the round, indented by any common amount.
        states: declarations beside those of the caches, `@name = ...` each.
        kept: by role, further attributes of the cache of a model beside the target.
        reproducible: whether the same request and seed always give the same output.
        lossless: whether the output follows the target's own law.

    Returns:
        The plan, with a cache `@kv` for the target and `@<model>_kv` for every other model; layers
        that would run a node twice are shared, so that what is priced is what runs.
    """
    models = tuple(models)
    caches = [f"{cache_of(role)} = cache {role} {kept.get(role, '')}".rstrip() for role in models]
    declared = ("@kv = cache target", *caches, *states)
    promised = "" if reproducible else " reproducible=false"
    promised += "" if lossless else " law=free"
    head = [_head(facts, name, models, promised), *(f"state {text}" for text in declared)]
    return share_prefix(parse_plan("\n".join([*head, *_round(body)])))


def plain_plan(facts: ProblemFacts, name: str) -> Plan:
    """A plan of one round that drafts nothing: accepting an empty tree gives the bonus alone."""
    rule = None if facts.greedy else "recursive"
    return single_round_plan(facts, name, (), "%t = root\n" + judge("%t", 0, rule=rule))


def cache_of(model: str) -> str:
    """The cache of a model beside the target, `@<model>_kv`."""
    return f"@{model}_kv"


def number_list(numbers: Sequence[int]) -> str:
    """`2` for one number or several equal ones, else `[2, 1]`: the form of `children=`."""
    if len(set(numbers)) == 1:
        return str(numbers[0])
    return print_atom(tuple(numbers))


def drafted_chain(length: int, forward: str, *, drawn: bool, result: str = "c") -> str:
    """A chain, grown one token a trip from the newest node `%f`.

    Args:
        length: drafted tokens.
        forward: operands and attributes of the drafting pass.
        drawn: tokens are drawn from the drafter's law; else each is its best.
        result: name of the chain.
    """
    draw = "\n    %u = uniform 1 stream=draft" if drawn else ""
    how = " how=draw by=%u" if drawn else ""
    return f"""%t0 = root
%{result} = repeat {length} (%t = %t0) {{
    %f = pick %t of=newest
    %q = forward {forward}{draw}
    %n = grow %t at=%f logits=%q{how}
    yield %n
}}"""


def judge(tree: str, nodes: int, *, rule: str | None, forward: str = "") -> str:
    """Verify the tree `%tree`, accept by a rule, emit.

    Args:
        tree: the value.
        nodes: drafted nodes of the tree.
        rule: as the plan writes it; None is greedy. It gets uniforms where it declares some.
        forward: further attributes of the verifying pass.
    """
    lines = [f"%l = forward target {tree} cache=@kv pending=1 {forward}".rstrip()]
    judged = f"%a = accept {tree} target=%l"
    if rule is not None:
        judged += f" rule={rule}"
        declared = BUILTIN.find("rule", rule.partition("(")[0])
        if declared is None or declared.uniforms_per_node is not None:
            lines.append(f"%v = uniform {nodes + 1} stream=accept")
            judged += " by=%v"
    lines += [judged, "%e = emit %a", "commit @kv %e"]
    return "\n".join(lines)


def _head(facts: ProblemFacts, name: str, models: tuple[str, ...], promised: str) -> str:
    temperature = float(facts.problem.workload.temperature)
    batches = facts.batch_sizes
    lines = [f"plan {name}"]
    for role in ("target", *models):
        shape = facts.shape(role)
        lines.append(f'model {role} digest="{shape.digest}" dtype={shape.dtype}')
    lines.append(
        f"assume temperature={print_atom(temperature)} batch={min(batches)}..{max(batches)} "
        f"context=1..{facts.longest_text}{promised}"
    )
    return "\n".join(lines)


def _round(body: str) -> list[str]:
    return ["round decode {", indent(dedent(body).strip("\n"), "  "), "}", ""]
