"""What is looked up, and what sources are taught."""

from __future__ import annotations

from specplan.ir.types.value_types import NodesType
from tests.ir.generated.builder import Builder

KINDS = {
    "ngram": ("order", "capacity"),
    "automaton": ("capacity",),
    "log": ("capacity",),
    "trie": ("capacity",),
    "phrases": ("order", "width", "capacity"),
    "adjacency": ("width",),
    "datastore": ("order",),
    "trees": ("order",),
    "grammar": ("capacity",),
}
"""Sources of tokens, and their parameters."""
SIZES = {"order": (3, 4), "capacity": (64, 200), "width": (4, 6)}
MERGING = ("log", "trie", "phrases", "datastore", "trees")
"""Those that merge continuations into one tree."""
DATASTORE = "datastore"
"""The folder that plans name as their datastore."""


def look_up(build: Builder, tree: str, at: str) -> str:
    """The tree with what was found below some nodes."""
    if build.chance(0.25):
        match = build.pick("[1, 3]", "[2, 3]", "[1, 1]", "[0, 2]")
        length = build.random.randint(1, 3)
        words = f"match={match} length={length}"
        if build.chance(0.3):
            words += f" children={build.pick(2, 3)} nodes={build.random.randint(1, 4)}"
        return build.let(f"lookup @text {tree} at={at} {words}", "t")
    kind = build.pick(*KINDS)
    state = _declared(build, kind)
    words = f"match={build.pick('[1, 2]', '[1, 3]', '[2, 3]')}"
    if kind == "adjacency":
        words = "match=[1, 1]"
    elif kind == "phrases":
        words = f"match=[1, 1] children={build.pick(1, 3)} length=2"
    if kind in ("automaton", "grammar"):
        words += f" length={build.random.randint(1, 3)}"
    elif kind != "phrases":
        words += f" children={_children(build, at)} length={build.random.randint(1, 2)}"
    if kind in MERGING and build.chance(0.4):
        words += f" nodes={build.random.randint(1, 4)}"
    return build.let(f"lookup {state} {tree} at={at} {words}", "t")


def _children(build: Builder, at: str) -> str:
    """Continuations per node: one number, or one for each where it is known how many there are."""
    nodes = build.type_of(at)
    if isinstance(nodes, NodesType) and nodes.indices is not None and build.chance(0.5):
        return str([build.random.randint(0, 2) for _ in range(nodes.width - 1)] + [1])
    return str(build.random.randint(1, 3))


def _declared(build: Builder, kind: str) -> str:
    """A source of that kind, declared and taught where it can be."""
    state = f"@{kind}"
    if state in build.plan.states:
        return state
    sizes = (f"{name}={build.pick(*SIZES[name])}" for name in KINDS[kind] if build.chance(0.9))
    words = f"source {kind}({', '.join(sizes)})".replace("()", "")
    scope = build.pick("", "", " scope=request", " scope=process", " scope=group")
    if kind == "automaton":
        scope = ""  # each holds one text
    if kind in ("datastore", "trees"):
        scope = f' scope=read_only path="{DATASTORE}"'
    if scope in (" scope=process", " scope=group"):
        build.plan.shared = True
    place = " at=device" if kind == "adjacency" and build.chance(0.5) else ""
    build.plan.states[state] = words + scope + place
    return state


def teach(build: Builder, tree: str, rows: str) -> None:
    """Teach every source what it can learn of the judged tree; after all lookups of the round."""
    for state in [*build.plan.states]:
        match state.removeprefix("@"):
            case "adjacency":
                build.do(f"update {state} {tree} logits={rows}")
            case "ngram" | "automaton" | "log" | "trie" | "grammar":
                root = build.let("root", "r")
                build.do(f"update {state} {root} last={build.random.randint(2, 5)}")
            case "phrases":
                build.do(f"update {state} {tree} last=3")
