"""Who gives rows to draft from: models, parts of the target, heads, each in its own way."""

from __future__ import annotations

from collections.abc import Callable

from tests.ir.generated.builder import Builder, Statements

POLICIES = (
    "sink_recent(sink=2) budget=8",
    "sink_recent(sink=1) budget=6",
    "retrieved(chunk=2) budget=8",
    "retrieved budget=16",
    "observed(window=3, pool=3) budget=8",
)
"""What a view of the target's cache holds."""


ALONE = ("draft", "small", "budget")
"""Models that run beside the target."""


def drafters_of(plan: Statements) -> tuple[str, ...]:
    """Who may draft: what reads layers of the target needs passes that leave them behind."""
    own = {"whole": ("skip", "view", "heads"), "halves": ("exit",), "thin": ()}[plan.passes]
    return (*ALONE, "scratch", "block", "reader", *own, *(("head", "head") if plan.heads else ()))


class Drafter:
    """A way to get rows of nodes.

    Attributes:
        model: who runs.
        cache: what it attends to.
        begun: it ran in this round.
        ran: a tree of which all nodes but the newest were run; empty where that is not followed.

    Args:
        build: the round.
        kind: one of `drafters_of`.
    """

    def __init__(self, build: Builder, kind: str) -> None:
        self.build, self.kind = build, kind
        self.begun = False
        self.ran = ""
        self.model, self.cache, self._words = self._declare()

    def _declare(self) -> tuple[str, str, Callable[[], str]]:
        """The model, its cache, and the attributes of its forwards."""
        build, states = self.build, self.build.plan.states
        pending = build.pick(12, 16) if self.kind in ("scratch", "block") else build.pick(4, 6, 8)
        match self.kind:
            case "draft" | "scratch":
                cache, declared = "@dkv", "cache draft"
            case "small":
                cache, declared = "@skv", "cache small"
            case "budget":
                budget = build.pick(8, 12, 20)
                sink = build.pick("", "(sink=2)", "(sink=4)") if budget > 12 else "(sink=3)"
                cache, declared = "@bkv", f"cache small policy=sink_recent{sink} budget={budget}"
            case "block":
                cache, declared = "@nkv", "cache small"
            case "head":
                cache, declared = "@hkv", "cache head"
            case "reader":
                cache, declared = "@gkv", "cache reader reads=@kv"
                states.setdefault("@kv", "cache target")
            case "exit":
                return "target", "@kv", lambda: "pending=1 layers=[0:2] keep=@x"
            case "skip":
                blocks = build.pick("attn.1, mlp.2", "attn.2", "mlp.1, attn.2, mlp.2")
                return "target", "@kv", lambda: f"pending=1 skip=[{blocks}] write=scratch"
            case "heads":
                states.setdefault("@kv", "cache target")
                heads = build.pick("[head.0.1]", "[head.1.0, head.2.1, head.3.0]", "[head.3.1]")
                policy = f"by_head(budget={build.pick(4, 7)}, sink=2, retrieval={heads})"
                return "target", "@kv", lambda: f"pending=1 policy={policy} write=scratch"
            case _:
                policy = build.pick(*POLICIES)
                states.setdefault("@part", f"cache target view=@kv policy={policy}")
                return "target", "@part", lambda: f"pending={build.pick(1, 2, 4)} write=scratch"
        model = declared.split()[1]
        build.plan.models.setdefault(model, "")
        states.setdefault(cache, declared)
        return model, cache, lambda: f"pending={pending}"

    def rows(self, tree: str, *, whole: bool = False, more: str = "") -> tuple[str, str | None]:
        """Rows of the newest nodes where those above them ran, else of the whole tree.

        Args:
            tree: all of it may be run.
            whole: all of it is to be run.
            more: further attributes.

        Returns:
            The rows, and the picked nodes; None for the whole tree.
        """
        build = self.build
        nodes: str | None = None
        if self.ran == tree and not whole:
            nodes = build.let(f"pick {tree} of=newest", "f")
        words = self._words()
        if self.kind in ("scratch", "block", "head"):
            if not self.begun:
                self._catch_up(words)
            words = words if build.chance(0.5) else ""
            words += " write=scratch" + (" attend=block" if self.kind == "block" else "")
        if self.kind == "head":
            words += " features=@h shift=1 keep=@h"
        elif self.cache not in build.written and self.kind not in ("skip", "view", "heads"):
            build.written.append(self.cache)
        if self.kind == "exit" and "@x" not in build.written:
            build.written.append("@x")
        self.begun = True
        run = f"forward {self.model} {nodes or tree} cache={self.cache} {words}{more}"
        return build.let(" ".join(run.split()), "q"), nodes

    def grew(self, tree: str) -> None:
        """All nodes of this tree but the newest were run."""
        self.ran = tree

    def _catch_up(self, words: str) -> None:
        """The text is read for good, drafted nodes are not."""
        build = self.build
        root = build.let("root", "r")
        feed = " features=@h shift=1 keep=@h" if self.kind == "head" else ""
        build.do(f"forward {self.model} {root} cache={self.cache} {words}{feed} gives=[]")
        build.written += [self.cache, *(["@h"] if self.kind == "head" else [])]
