"""The text of a plan: its head, a drafting round with its verification, and its parts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from textwrap import dedent, indent
from types import MappingProxyType
from typing import Any

from specplan.cost_models.models.drafter_shapes import DrafterShape
from specplan.ir.plan import Plan
from specplan.ir.tables.builtin import BUILTIN
from specplan.ir.text.parser import parse_plan
from specplan.ir.values import print_atom
from specplan.passes.share_prefix import share_prefix
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Method

FEATURES = "@states"
"""Hidden states of the target that drafters read."""


@dataclass(frozen=True)
class Pass:
    """A forward pass of a drafter, over whatever nodes.

    Attributes:
        model: its role in the plan.
        attributes: cache, pending tokens and so on, as plan text.
    """

    model: str
    attributes: str

    def over(self, nodes: str) -> str:
        """The op's text over the nodes of a value, `%f`."""
        return f"forward {self.model} {nodes} {self.attributes}"


def draft_passes(draft: str, pending: int = 2) -> tuple[Pass, Pass]:
    """A draft model's first pass, which also runs pending text tokens, and its later ones."""
    cache = f"cache={cache_of(draft)}"
    return Pass(draft, f"{cache} pending={pending}"), Pass(draft, cache)


def head_passes(facts: ProblemFacts, head: str, pending: int) -> tuple[Pass, Pass]:
    """A head's first pass, from the target's hidden states, and its later ones, from its own.

    Later passes of a head whose layers run along the text alone go on behind the layers.

    Args:
        facts: the problem.
        head: role of a head that reads one token's states with the next token.
        pending: text tokens at most that the first pass reads.
    """
    cache, own = cache_of(head), states_of(head)
    first = f"cache={cache} pending={pending} features={FEATURES} shift=1 keep={own}"
    later, drafter = f"features={own} shift=1 keep={own} write=scratch", facts.drafters[head]
    if drafter.kind == "regressive":
        layers = drafter.shape.num_layers
        return Pass(head, first), Pass(head, f"layers=[{layers}:{layers}] {later}")
    later = f"cache={cache} {later}"
    return Pass(head, first), Pass(head, later)


def ahead_pass(facts: ProblemFacts, heads: str, depth: int) -> Pass:
    """The pass over the root of heads for several tokens ahead, all of them.

    Args:
        facts: the problem.
        heads: their role.
        depth: drafted levels of a round.
    """
    drafter, read = facts.drafters[heads], f"features={FEATURES} shift=1"
    if not uncached_of(facts, (heads,)):
        read = f"cache={cache_of(heads)} pending={depth + 1} {read}"
    return Pass(heads, f"{read} levels={drafter.block}")


def uncached_of(facts: ProblemFacts, heads: Iterable[str]) -> tuple[str, ...]:
    """Those that have no layers, and keep no cache."""
    return tuple(name for name in heads if not facts.drafters[name].shape.num_layers)


def features_of(drafter: DrafterShape | None) -> str:
    """Layers of the target whose states a drafter reads, as a track names them; "" for none.

    States at its slots, too, if they are what it reads.
    """
    if drafter is None:
        return ""
    levels = f" levels={drafter.block + 1}" if drafter.kind == "slots" else ""
    return print_atom(drafter.feature_layers or "last") + levels


def draft_and_verify(
    facts: ProblemFacts,
    method: Method[Any],
    drafted: str,
    nodes: int,
    *,
    models: Iterable[str] = (),
    tree: str = "%c",
    beside: str = "",
    rule: str = "recursive",
    verify: str = "",
    mix: str = "",
    features: str = "",
    recurrent: bool = False,
    after: str = "",
    states: Iterable[str] = (),
    policies: Mapping[str, str] = MappingProxyType({}),
    uncached: Collection[str] = (),
) -> Plan:
    """A plan of one round: draft a tree, verify it, accept, emit, commit.

    Args:
        facts: the problem.
        method: whose plan it is.
        drafted: ops that define the tree.
        nodes: drafted nodes of the tree at most.
        models: roles besides the target.
        tree: name of the tree, `%c`.
        beside: name of a second tree that the verifying pass runs as well; its logits are `%m`.
        rule: acceptance rule; at temperature 0 all lossless rules are the greedy one.
        verify: further attributes of the verifying pass.
        mix: ops that combine the target's logits `%l` with others' to `%x`, which are judged.
        features: layers of the target whose hidden states the models read, as `@states`.
        recurrent: the models also read their own hidden states, `@<model>_states`.
        after: ops at the end of the round; `%a` is what was accepted, `%e` what was emitted, and
            `%l` the target's logits.
        states: declarations besides those of the caches, `@name = ...` each.
        policies: further attributes of the caches of some models, by role.
        uncached: models that keep no cache.
    """
    models, commits = tuple(models), []
    greedy = facts.greedy and method.law != "free"
    if features:
        verify = f"keep={FEATURES} {verify}"
        states = (f"{FEATURES} = track target layer={features}", *states)
        commits.append(FEATURES)
    for model in models:
        commits += [cache_of(model)] if model not in uncached else []
        if recurrent:
            commits.append(states_of(model))
            states = (*states, f"{states_of(model)} = track {model} layer=last")
    judged = judge(
        tree, nodes, rule=None if greedy else rule, verify=verify, beside=beside, mix=mix
    )
    body = "\n".join((drafted, judged, *(f"commit {state} %e" for state in commits), after))
    return single_round_plan(
        facts, method, models, body, states=states, policies=policies, uncached=uncached
    )


def single_round_plan(
    facts: ProblemFacts,
    method: Method[Any],
    models: Iterable[str],
    body: str,
    *,
    states: Iterable[str] = (),
    policies: Mapping[str, str] = MappingProxyType({}),
    uncached: Collection[str] = (),
) -> Plan:
    """A plan of one round, `decode`, of any ops.

    Args:
        facts: the problem, for what the plan assumes.
        method: whose plan it is; says its name and what the plan promises.
        models: roles besides the target.
        body: the ops of the round, indented by any common amount.
        states: declarations besides those of the caches, `@name = ...` each.
        policies: further attributes of the caches of some models, by role.
        uncached: models that keep no cache.

    Returns:
        The plan, with a cache `@kv` for the target and `@<model>_kv` for every other model; layers
        that would run a node twice are shared, so that what is priced is what runs.
    """
    models = tuple(models)
    temperature, batches = float(facts.problem.workload.temperature), facts.batch_sizes
    caches = [
        f"{cache_of(role)} = cache {role} {policies.get(role, '')}"
        for role in models
        if role not in uncached
    ]
    shapes = {role: facts.shape(role) for role in ("target", *models)}
    lines = [
        f"plan {method.name}",
        *(f'model {role} digest="{x.digest}" dtype={x.dtype}' for role, x in shapes.items()),
        f"assume temperature={print_atom(temperature)} batch={min(batches)}..{max(batches)} "
        f"context=1..{facts.longest_text}"
        + (" reproducible=false" if method.shares and not facts.greedy else "")
        + ("" if method.lossless else f" law={method.promise(facts)}"),
        *(f"state {text}" for text in ("@kv = cache target", *caches, *states)),
        "round decode {",
        indent(dedent(body).strip("\n"), "  "),
        "}\n",
    ]
    return _plan_of("\n".join(lines))


@lru_cache(maxsize=2048)
def _plan_of(text: str) -> Plan:
    """The plan of a text, read once.

    A search writes each setting several times: to name its rounds, to choose, to price it; what
    plans for an engine, a load or another number format writes nearly all of them again.
    """
    return share_prefix(parse_plan(text))


def plain_plan(facts: ProblemFacts, method: Method[Any]) -> Plan:
    """A plan that drafts nothing: accepting an empty tree gives the bonus token alone."""
    return draft_and_verify(facts, method, "%t = root", 0, tree="%t")


def cache_of(model: str) -> str:
    """The cache of a model besides the target, `@<model>_kv`."""
    return f"@{model}_kv"


def states_of(model: str) -> str:
    """The hidden states of a model besides the target, `@<model>_states`."""
    return f"@{model}_states"


def uniforms(
    facts: ProblemFacts,
    count: int,
    name: str = "%u",
    *,
    stream: str = "draft",
    offset: int = 0,
    use: str = "how=draw",
) -> tuple[str, str]:
    """The op that draws uniforms, and the attributes of the op that uses them.

    Args:
        facts: the problem; at temperature 0 nothing is drawn, and both are empty.
        count: numbers per request.
        name: of the value.
        stream: of the request's uniforms.
        offset: numbers of the stream that others use in this round.
        use: attributes besides `by=`.
    """
    if facts.greedy:
        return "", ""
    after = f" offset={offset}" if offset else ""
    return f"{name} = uniform {count} stream={stream}{after}", f"{use} by={name}"


def number_list(numbers: Sequence[int]) -> str:
    """`2` for one number or several equal ones, else `[2, 1]`: the form of `children=`."""
    if len(set(numbers)) == 1:
        return str(numbers[0])
    return print_atom(tuple(numbers))


def judge(
    tree: str,
    nodes: int,
    *,
    rule: str | None,
    verify: str = "",
    beside: str = "",
    mix: str = "",
) -> str:
    """Verify a tree, accept by a rule, emit, commit the target's cache.

    Args:
        tree: name of the tree, `%c`.
        nodes: drafted nodes of the tree.
        rule: as the plan writes it; None is greedy. It gets uniforms where it declares some and the
            plan names none.
        verify: further attributes of the verifying pass.
        beside: name of a second tree in the same pass; its logits are `%m`.
        mix: ops that combine `%l` with other logits to `%x`, which are judged in its place.
    """
    logits, trees = ("%l, %m", f"{tree} {beside}") if beside else ("%l", tree)
    lines = [f"{logits} = forward target {trees} cache=@kv pending=1 {verify}"]
    lines += [mix] if mix else []
    accept = f"%a = accept {tree} target={'%x' if mix else '%l'}"
    if rule is not None:
        accept += f" rule={rule}"
        declared = BUILTIN.find("rule", rule.partition("(")[0].split()[0])
        draws = declared is None or declared.uniforms_per_node is not None
        if draws and " by=" not in rule:
            lines.append(f"%v = uniform {nodes + 1} stream=accept")
            accept += " by=%v"
    return "\n".join([*lines, accept, "%e = emit %a", "commit @kv %e"])
