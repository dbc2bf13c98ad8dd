"""Whole rounds: drafted by moves, verified, judged, emitted, and every written state committed."""

from __future__ import annotations

from specplan.ir.types.value_types import TreeType
from tests.ir.generated.blending import mixed
from tests.ir.generated.builder import Builder, refuse_unless
from tests.ir.generated.drafters import ALONE
from tests.ir.generated.judging import judge
from tests.ir.generated.moves import Drafting
from tests.ir.generated.sources import teach

CARRIED = (
    "tree(nodes=2, depth=2)",
    "tree(nodes=3, depth=3)",
    "tree(nodes=3, depth=3, init=5)",
    "tree(nodes=4, depth=2)",
    "tree(nodes=4, depth=2, parents=[-1, -1, 0, 1])",
    "tree(nodes=3, depth=3, law=drawn)",
    "tree(nodes=4, depth=3, law=drawn)",
)
"""Trees that one round may leave to the next."""


def drafted_round(build: Builder, name: str) -> str:
    """A round that drafts in some way and verifies."""
    drafting = Drafting(build)
    if build.chance(0.3):
        build.plan.states.setdefault("@left", f"value {build.pick(*CARRIED)}")
    drawn = "law=drawn" in build.plan.states.get("@left", "")
    tree = first = build.let("root", "t")
    if "@left" in build.plan.states and (drawn or build.chance(0.7)):
        tree = build.let("load @left", "t")
        if build.chance(0.2) and not drawn:
            tree = build.let(f"graft {first} {tree}", "t")
    for _ in range(build.pick(1, 1, 2, 2, 3)):
        tree = drafting.attempt(drafting.any, tree) or tree
    if build.tree(tree).nodes == 0:
        tree = drafting.attempt(drafting.step, tree) or tree
    judged, rows, verified = _verified(drafting, tree)
    judging = _judging(drafting, judged, verified, rows)
    race = drafting.race() if build.plan.races and build.chance(0.8) else ""
    path = judge(build, judged, judging, keep_law=build.plan.keeps_law, race=race)
    text = build.let(f"emit {path}", "e")
    _finish(build, judged, verified, rows, path, text)
    return build.text(name)


def _judging(drafting: Drafting, judged: str, verified: str, rows: str) -> str:
    """The rows to judge by: the target's, or where the plan may, a mixture or another model's."""
    build = drafting.build
    wants = {"stated": 0.8, "free": 0.15}.get(build.plan.promise, 0.0)
    if judged != verified or not build.chance(wants):
        return rows
    drafting.kinds = ("draft", "small")
    other, _ = drafting.drafter().rows(judged, whole=True)
    if build.chance(0.15):
        return other
    operands = [other]
    if build.plan.promise == "free" and build.chance(0.4):
        operands.append(judged)
    return mixed(build, rows, *build.random.sample(operands, len(operands)))


def plain_round(build: Builder, name: str) -> str:
    """One token per round."""
    drafting = Drafting(build)
    judged, rows, verified = _verified(drafting, build.let("root", "t"))
    path = judge(build, judged, rows, keep_law=build.plan.keeps_law)
    _finish(build, judged, verified, rows, path, build.let(f"emit {path}", "e"))
    return build.text(name)


def _verified(drafting: Drafting, tree: str) -> tuple[str, str, str]:
    """The tree to judge, rows of the target, and the tree of which it has them."""
    build = drafting.build
    if build.plan.passes != "halves" and build.chance(0.15):
        along = drafting.attempt(lambda first: _overlapped(drafting, first), tree)
        if along is not None:
            return along
    run, upper = _pass(build), ""
    if build.plan.passes == "halves":
        lower = f"forward target {tree} cache=@kv pending=1 layers=[0:2] keep=@x gives=[]"
        build.do(lower)
        upper = " layers=[2:4] features=@x"
    elif build.chance(0.12):  # a second tree, of which something may be learned
        other = drafting.attempt(drafting.simple, build.let("root", "r"))
        if other is not None:
            rows, _ = build.let(run.format(f"{tree} {other}"), "l", 2).split(", ")
            return tree, rows, tree
    run = run.format(tree) + upper
    if build.chance(0.15):
        rows = build.name("l")
        with build.region(f"{rows} = segment"):
            build.do(f"yield {build.let(run, 'l')}")
        return tree, rows, tree
    return tree, build.let(run, "l"), tree


def _pass(build: Builder) -> str:
    """The verifying pass over what stands for `{}`."""
    states, keep = build.plan.states, ""
    states.setdefault("@kv", "cache target")
    build.written.append("@kv")
    if build.plan.heads:
        states.setdefault("@h", "track target layer=last")
        build.written.append("@h")
        keep = " keep=@h"
    if build.plan.passes == "halves":
        build.written.append("@x")
    pending = "pending=8 most=64" if build.chance(0.08) else "pending=1"
    return f"forward target {{}} cache=@kv {pending}{build.plan.layers}{keep}"


def _overlapped(drafting: Drafting, tree: str) -> tuple[str, str, str]:
    """The target verifies what was drafted before, while another model drafts on."""
    build = drafting.build
    rows, further = build.name("l"), build.name("t")
    drafting.kinds = ALONE
    with build.region(f"{rows} = segment lane=a", f"yield {tree}"):
        build.do(f"yield {build.let(_pass(build).format(tree), 'l')}")
    with build.region(f"{further} = segment lane=b", f"yield {tree}"):
        build.do(f"yield {build.pick(drafting.loop, drafting.step)(tree)}")
    return further, rows, tree


def _finish(build: Builder, judged: str, verified: str, rows: str, path: str, text: str) -> None:
    """What is kept for later rounds, in any order."""
    alive, written = "", list(dict.fromkeys(build.written))
    keeps_draws = "law=drawn" in build.plan.states.get("@left", "")
    if "@left" in build.plan.states:
        left = build.attempt(lambda: _left(build, judged, rows, text, keeps_draws))
        alive = left or ""
    for state in build.random.sample(written, len(written)):
        spared = state not in ("@kv", "@x", "@h") and alive and build.chance(0.5)
        build.do(f"commit {state} {text}" + (f" alive={alive}" if spared else ""))
    if not keeps_draws:
        teach(build, verified, rows)
    if "@bar" in build.plan.states:
        before, hit = build.let("load @bar", "b"), build.let(_hits(build, judged, path), "m")
        words = build.pick("0.9*b + 0.1*where(hit > 1, 1, 0)", "max(min(b + hit - 1, 2), 0.1)")
        store = build.let(f'compute "{words}" b={before} hit={hit}', "b")
        build.do(f"store @bar {store}")
    if "@part" in build.plan.states:
        build.do("refresh @part")


def _hits(build: Builder, judged: str, path: str) -> str:
    """How much of the draft was right."""
    return build.pick(f"measure {path} accepted", f"measure {judged} said")


def _left(build: Builder, judged: str, rows: str, text: str, keeps_draws: bool) -> str:
    """Store what survives of the tree for the next round."""
    room = dict(
        part.split("=") for part in build.plan.states["@left"].rstrip(")").split("(")[1].split(", ")
        if "=" in part and part.startswith(("nodes", "depth"))
    )  # fmt: skip
    nodes, depth = int(room["nodes"]), int(room["depth"])
    tree = judged
    if not keeps_draws and build.tree(tree).nodes and build.chance(0.5):
        tree = build.let(f"relabel {tree} logits={rows}", "t")
    left = build.let(f"reroot {tree} {text} nodes={min(nodes, depth)}", "t")
    if "parents" in build.plan.states["@left"]:
        left = build.let("load @left", "t")
        rowed = build.let(f"relabel {left} token={build.random.randrange(24)}", "t")
        left = rowed
    survivors = build.tree(left)
    if not keeps_draws and build.chance(0.4) and survivors.is_chain and survivors.nodes:
        tip = build.let(f"pick {left} of=leaves", "f")
        left = build.let(f"place {left} at={tip} tokens=[3] upto={depth}", "t")
    stored = build.tree(left)
    refuse_unless(isinstance(stored, TreeType) and stored.nodes <= nodes and stored.depth <= depth)
    refuse_unless(stored.is_chain or nodes != depth)
    refuse_unless(not keeps_draws or stored.origins <= {"draw"})
    build.do(f"store @left {left}")
    return left
