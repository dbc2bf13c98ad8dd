"""Rounds of a fixed form, with numbers of their own: what moves alone do not come to."""

from __future__ import annotations

from collections.abc import Callable

from tests.ir.generated.builder import Builder, Statements
from tests.ir.generated.judging import judge

Template = Callable[[Builder, str], str]


def _judged(build: Builder, name: str, tree: str, rows: str, *more: str) -> str:
    """HeadEvaluator, emit and commit."""
    path = judge(build, tree, rows, keep_law=build.plan.keeps_law)
    text = build.let(f"emit {path}", "e")
    for state in ("@kv", *more):
        build.do(f"commit {state} {text}")
    return build.text(name)


def _below(build: Builder) -> tuple[str, str]:
    """The root, and rows of the target's first layers."""
    build.plan.states.setdefault("@kv", "cache target")
    tree = build.let("root", "t")
    run = f"forward target {tree} cache=@kv pending=1 layers=[0:2] keep=@x"
    return tree, build.let(run, "s")


def exit_confident(build: Builder, name: str) -> str:
    """The first layers answer where they are sure, and the others catch up later."""
    tree, early = _below(build)
    sure = build.let(f"measure {early} {build.pick('margin', 'top1')}", "m")
    behind = build.let("measure @kv lag(layers=2:4)", "m")
    going = build.let(f'compute "c < 0.3 or b >= {build.pick(3, 5)}" c={sure} b={behind}', "g")
    rows = build.name("l")
    with build.region(f"{rows} = when {going} otherwise=[{early}]", f"yield {early}"):
        run = f"forward target {tree} cache=@kv pending=8 layers=[2:4] features=@x"
        build.do(f"yield {build.let(run, 'l')}")
    return _judged(build, name, tree, rows, "@x")


def exit_by_states(build: Builder, name: str) -> str:
    """The states of the first layers say whether they answer."""
    build.plan.states.setdefault("@kv", "cache target")
    build.plan.states.setdefault("@w", "track target layer=1")
    tree = build.let("root", "t")
    run = f"forward target {tree} cache=@kv pending=1"
    lower = build.let(f"{run} layers=[0:1] keep=@w gives=[states]", "h")
    run = f"{run} layers=[1:2] features=@w keep=@x gives=[logits, states]"
    early, states = build.let(run, "s", 2).split(", ")
    weights = f"weights=[{build.pick(0.5, -0.5)}, 1.0], bias={build.pick(-0.25, 0.5)}"
    alike = build.let(f"measure {states} saturation beside={lower}", "m")
    sure = build.let(f"measure {states} logistic({weights})", "m")
    behind = build.let("measure @kv lag(layers=2:4)", "m")
    words = build.pick("c < 0.6 and s < 0.9 or b >= 4", "c < 0.4 or s < 0.7 or b >= 4")
    going = build.let(f'compute "{words}" c={sure} s={alike} b={behind}', "g")
    rows = build.name("l")
    with build.region(f"{rows} = when {going} otherwise=[{early}]", f"yield {early}"):
        run = f"forward target {tree} cache=@kv pending=8 layers=[2:4] features=@x"
        build.do(f"yield {build.let(run, 'l')}")
    return _judged(build, name, tree, rows, "@x", "@w")


def exit_calibrated(build: Builder, name: str) -> str:
    """The first layers answer where they are surer than a number that was tested."""
    tree, early = _below(build)
    build.plan.states.setdefault("@tested", f"value calibrated(init={build.pick(0.3, 0.6)})")
    bar, sure = build.let("load @tested", "b"), build.let(f"measure {early} margin", "m")
    behind = build.let("measure @kv lag(layers=2:4)", "m")
    words = build.pick("c < bar or b >= 4", "c < min(1.0, bar + 0.1*exp(0 - emitted)) or b >= 4")
    going = build.let(f'compute "{words}" c={sure} b={behind} bar={bar}', "g")
    rows = build.name("l")
    with build.region(f"{rows} = when {going} otherwise=[{early}]", f"yield {early}"):
        run = f"forward target {tree} cache=@kv pending=8 layers=[2:4] features=@x"
        build.do(f"yield {build.let(run, 'l')}")
    return _judged(build, name, tree, rows, "@x")


def looking_back(build: Builder, name: str) -> str:
    """The target's slots of the last round say what this one drafts."""
    levels = build.pick(3, 4)
    build.plan.states.setdefault("@kv", "cache target")
    build.plan.states.setdefault("@slots", f"track target layer=last levels={levels}")
    root = tree = build.let("root", "t")
    run = f"forward target {root} layers=[4:4] features=@slots shift=1 levels={levels - 1}"
    ahead = build.let(run, "q")
    for _ in range(levels - 1):
        at = build.let(f"pick {tree} of=newest best=1", "f")
        children = build.pick("", " children=2")
        tree = build.let(f"grow {tree} at={at} rows={ahead}{children}", "t")
    run = f"forward target {tree} cache=@kv pending=1 keep=@slots levels={levels}"
    return _judged(build, name, tree, build.let(run, "l"), "@slots")


def exit_copied(build: Builder, name: str) -> str:
    """The first layers answer where they are sure, and their states fill the others' caches."""
    tree, early = _below(build)
    sure = build.let(f"measure {early} entropy", "m")
    bar = build.pick(1.0, 2.0)
    yes = build.let(f'compute "c <= {bar}" c={sure}', "g")
    no = build.let(f'compute "c > {bar}" c={sure}', "g")
    run = f"forward target {tree} cache=@kv pending=1 layers=[2:4] features=@x"
    with build.region(f"when {yes}"):
        build.do(f"{run} gives=[] only=keys_values")
    rows = build.name("l")
    with build.region(f"{rows} = when {no} otherwise=[{early}]", f"yield {early}"):
        build.do(f"yield {build.let(run, 'l')}")
    return _judged(build, name, tree, rows, "@x")


def pipelined(build: Builder, name: str) -> str:
    """While the upper layers verify, the lower ones run what was guessed half way up."""
    build.plan.states.setdefault("@kv", "cache target")
    tree = build.let("root", "t")
    lower = "cache=@kv pending=1 layers=[0:2] keep=@x gives=[]"
    lag = build.let("measure @kv lag(layers=0:2)", "m")
    missing = build.let(f'compute "lag > 0" lag={lag}', "g")
    with build.region(f"when {missing}"):
        build.do(f"forward target {tree} {lower}")
    half = build.let(f"forward target {tree} layers=[2:2] features=@x", "s")
    guesses = build.let(f"grow {tree} at={tree} logits={half} children={build.pick(2, 3)}", "t")
    rows = build.name("l")
    with build.region(f"{rows} = segment lane=a", f"yield {half}"):
        run = f"forward target {tree} cache=@kv pending=1 layers=[2:4] features=@x"
        build.do(f"yield {build.let(run, 'l')}")
    with build.region("segment lane=b"):
        newest = build.let(f"pick {guesses} of=newest", "f")
        build.do(f"forward target {newest} {lower.replace(' pending=1', '')}")
    return _judged(build, name, guesses, rows, "@x")


def refined(build: Builder, name: str) -> str:
    """A block of constant tokens, refined several times by the draft model, and emitted unseen."""
    build.plan.models.setdefault("draft", "")
    build.plan.states.setdefault("@dkv", "cache draft")
    tree, size = build.let("root", "t"), build.pick(2, 3, 4)
    build.do(f"forward draft {tree} cache=@dkv pending=8 gives=[]")
    block = build.let(f"place {tree} at={tree} tokens=[7] upto={size}", "t")
    first = build.let('compute "0.0"', "z")
    done, trip, trips, index = (build.name(p) for p in "tpsi")
    head = f"{done}, {trips} = repeat {build.pick(2, 3)} ({trip} = {block}, {index} = {first})"
    with build.region(head, f"yield {trip}, {index}"):
        attend = build.pick("", " attend=block")
        rows = build.let(f"forward draft {trip} cache=@dkv write=scratch{attend}", "q")
        align = build.pick("self", "parent")
        filled = build.let(f"relabel {trip} logits={rows} align={align}", "t")
        more = build.let(f'compute "i + 1" i={index}', "i")
        fewer = build.let(f'compute "floor({size} / (j + 1))" j={more}', "k")
        low = build.let(f"pick {filled} of=all worst={size} by=own count={fewer}", "f")
        build.do(f"yield {build.let(f'relabel {filled} token=7 at={low}', 't')}, {more}")
    path = build.let(f"accept {done} rule=all", "a")
    text = build.let(f"emit {path}", "e")
    build.do(f"commit @dkv {text}")
    return build.text(name)


def looking_ahead(build: Builder, name: str) -> str:
    """A window of guesses moves along with the text, and what it says fills a pool of phrases."""
    states = build.plan.states
    states.setdefault("@kv", "cache target")
    states.setdefault("@phrases", "source phrases(order=3, capacity=64)")
    parents = "[-1, 0, 1, 0, 1]" if build.chance(0.5) else "[-1, 0, 1, 2, 3]"
    shape = f"nodes=5, depth={5 if '3' in parents else 3}, parents={parents}"
    states.setdefault("@window", f"value tree({shape}, init={build.random.randrange(24)})")
    root = build.let("root", "t")
    drafted = build.let(f"lookup @phrases {root} at={root} match=[1, 1] children=2 length=2", "t")
    window = build.let("load @window", "w")
    run = f"forward target {drafted} {window} cache=@kv pending=1"
    rows, ahead = build.let(run, "l", 2).split(", ")
    path = judge(build, drafted, rows, keep_law=build.plan.keeps_law)
    text = build.let(f"emit {path}", "e")
    build.do(f"commit @kv {text}")
    tips = build.let(f"pick {window} of=all nodes=[3, 4]", "f")
    grown = build.let(f"grow {window} at={tips} logits={ahead}", "t")
    build.do(f"update @phrases {grown} last={build.pick(2, 3)}")
    moved = build.let(f"relabel {window} other={grown} map=[1, 2, 3, 5, 6]", "t")
    build.do(f"store @window {moved}")
    return build.text(name)


def judged_drafting(build: Builder, name: str) -> str:
    """A module reads the draft model's states and says when to stop."""
    plan = build.plan
    for model in ("draft", "judge"):
        plan.models.setdefault(model, "")
    plan.states.setdefault("@kv", "cache target")
    plan.states.setdefault("@dkv", "cache draft")
    plan.states.setdefault("@y", f"track draft layer={build.pick('last', '1', '[1, 2]')}")
    tree, one = build.let("root", "t"), build.let('compute "1.0"', "z")
    drafted, last, trip, chance = (build.name(p) for p in "tzps")
    head = f"{drafted}, {last} = repeat 3 ({trip} = {tree}, {chance} = {one})"
    how = "" if plan.races or build.chance(0.5) else " how=draw by={}"
    with build.region(head, f"yield {trip}, {chance}"):
        newest = build.let(f"pick {trip} of=newest", "f")
        rows = build.let(f"forward draft {newest} cache=@dkv pending=4 keep=@y", "q")
        by = how.format(build.draws("judged")) if how else ""
        grown = build.let(f"grow {trip} at={newest} logits={rows}{by}", "t")
        score = build.let(f"forward judge {newest} features=@y gives=[score]", "s")
        value = build.let(f"measure {score} score", "m")
        product = build.let(f'compute "p * g" p={chance} g={value}', "s")
        stop = build.let(f'compute "1 - p > {build.pick(0.5, 0.9)}" p={product}', "g")
        build.do(f"yield {grown}, {product} until={stop}")
    run = f"forward target {drafted} cache=@kv pending=1"
    return _judged(build, name, drafted, build.let(run, "l"), "@dkv", "@y")


def _whole(plan: Statements) -> bool:
    return plan.passes == "whole" and not plan.heads and plan.promise in ("target", "free")


def _halves(plan: Statements) -> bool:
    return plan.passes == "halves" and not plan.heads


TEMPLATES: tuple[tuple[Template, Callable[[Statements], bool]], ...] = (
    (exit_confident, lambda plan: _halves(plan) and plan.promise == "free"),
    *((exit_by_states, lambda plan: _halves(plan) and plan.promise == "free"),) * 4,
    *((exit_copied, lambda plan: _halves(plan) and plan.promise == "free"),) * 8,
    (pipelined, lambda plan: _halves(plan) and plan.promise in ("target", "free")),
    (looking_back, _whole),
    (refined, lambda plan: plan.promise == "free"),
    (looking_ahead, _whole),
    (judged_drafting, _whole),
)
"""Rounds, and the plans that they suit."""
