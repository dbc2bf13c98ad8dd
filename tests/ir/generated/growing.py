"""Moves that add drafted tokens, or change them: each takes a tree and gives another."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tests.ir.generated.blending import mixed
from tests.ir.generated.builder import Builder, refuse_unless
from tests.ir.generated.drafters import Drafter, drafters_of
from tests.ir.generated.numbers import number
from tests.ir.generated.sources import look_up

T = TypeVar("T")
VOCABULARY = 24
"""Token numbers lie below."""


class TreeGrowth:
    """The drafting part of a round: who drafts, and moves without regions.

    Attributes:
        build: the round.
        kinds: of drafters that may be called.
        rows: the latest rows, where they are in reach.
        loops: loops around what is written now.
    """

    def __init__(self, build: Builder) -> None:
        self.build = build
        self.kinds = drafters_of(build.plan)
        self.rows: str | None = None
        self.loops = 0
        self._drafters: dict[str, Drafter] = {}
        self._race: str | None = None

    def drafter(self, *, fresh: bool = False) -> Drafter:
        """Someone who drafts, mostly one who did before."""
        build = self.build
        before = [one for kind, one in self._drafters.items() if kind in self.kinds]
        if before and not fresh and build.chance(0.6):
            return build.pick(*before)
        kind = build.pick(*self.kinds)
        if kind not in self._drafters:
            self._drafters[kind] = Drafter(build, kind)
        return self._drafters[kind]

    def forget(self) -> None:
        """What ran of a tree is not followed any further."""
        for drafter in self._drafters.values():
            drafter.grew("")

    def attempt(self, move: Callable[[str], T], tree: str) -> T | None:
        """What a move makes of a tree; None, and nothing written, where it does not fit."""
        drafters = {name: (one, one.begun, one.ran) for name, one in self._drafters.items()}
        race, rows, kinds = self._race, self.rows, self.kinds
        done = self.build.attempt(lambda: move(tree))
        if done is None:
            self._race, self.rows, self.kinds, self.loops = race, rows, kinds, 0
            self._drafters = {name: one for name, (one, _, _) in drafters.items()}
            for one, begun, ran in drafters.values():
                one.begun, one.ran = begun, ran
        return done

    def race(self) -> str:
        """The numbers of the plan's races, which draft and target share."""
        if self._race is None:
            refuse_unless(self.loops == 0)
            self._race = self.build.draws("race", "position")
        return self._race

    # ------------------------------------------------ growing

    def step(self, tree: str) -> str:
        """Children of some nodes, out of a model's rows."""
        build, drafter = self.build, self.drafter()
        rows, at = drafter.rows(tree, whole=build.chance(0.15))
        if build.chance(0.1):
            rows = self._blended(tree, rows)
        self.rows = rows
        if at is None or build.chance(0.2):
            at = self.some_nodes(tree)
        grown = build.let(f"grow {tree} at={at} logits={rows}{self._children(at)}", "t")
        drafter.grew(grown)
        return grown

    def _blended(self, tree: str, rows: str) -> str:
        """These rows and another drafter's."""
        build = self.build
        other, _ = self.drafter(fresh=True).rows(tree, whole=True)
        return mixed(build, rows, other)

    def ahead(self, tree: str) -> str:
        """Several levels out of one pass that looks ahead."""
        build, plan = self.build, self.build.plan
        refuse_unless(build.tree(tree).nodes == 0 and self.loops == 0)
        levels = build.random.randint(2, 4)
        run = f"forward target {tree} cache=@kv pending=1 levels={levels}"
        if plan.heads:
            plan.models.setdefault("heads", "")
            plan.states.setdefault("@h", "track target layer=last")
            words = build.pick(str(levels), f"[{levels}]", f"[{levels}]")
            run = f"forward heads {tree} features=@h shift=1 levels={words}"
        else:
            refuse_unless(plan.passes == "whole")
            plan.states.setdefault("@kv", "cache target")
            build.written.append("@kv")
        self.rows = build.let(run, "q")
        for _ in range(levels):
            at = build.let(f"pick {tree} of=newest{build.pick('', ' best=2')}", "f")
            words = self._children(at)
            tree = build.let(f"grow {tree} at={at} rows={self.rows}{words}", "t")
        return tree

    def rescore(self, tree: str) -> str:
        """The same tree with scores of another model, or all of them weighed."""
        build = self.build
        refuse_unless(build.tree(tree).nodes > 0)
        words = ""
        if build.chance(0.7):
            words = f" rows={self.drafter().rows(tree, whole=True)[0]}"
        if not words or build.chance(0.3):
            words += f" factor={number(self, tree)}"
        return build.let(f"score {tree}{words}", "t")

    def some_nodes(self, tree: str) -> str:
        """Nodes of a tree, or the tree itself: all of them, and the root."""
        build = self.build
        nodes = build.tree(tree).nodes
        if nodes == 0 or (nodes <= 3 and build.chance(0.15)):
            return tree
        of = build.pick("newest", "leaves", "all")
        if of == "leaves" and build.chance(0.3):
            start = build.let(f"pick {tree} of=newest best=1", "f")
            return build.let(f"pick {tree} of=from at={start} {self._bound(2)}", "f")
        bound = self._bound(2) if nodes > 2 or of == "all" else ""
        if build.chance(0.3) and "nodes" not in bound:
            bound += f" above={self._bar()}"
        return build.let(f"pick {tree} of={of} {bound}".strip(), "f")

    def _bar(self) -> str:
        """A probability."""
        build = self.build
        bar = build.pick(0.01, 0.05, 0.2)
        return build.let(f'compute "{bar}"', "k") if build.chance(0.5) else str(bar)

    def _bound(self, most: int) -> str:
        """At most so many nodes."""
        build = self.build
        by = build.pick("", " by=own", " by=path")
        bound = f"{build.pick('best', 'worst')}={build.random.randint(1, most)}{by}"
        if self.loops == 0 and build.chance(0.3):
            return "nodes=[0]"
        if build.chance(0.15):
            count = build.let(f'compute "{build.random.randint(1, most)}"', "k")
            return f"{bound} count={count}"
        return bound

    def _children(self, at: str) -> str:
        """How many children, and how they come about."""
        build = self.build
        how = "best"
        if build.chance(0.45):
            how = build.pick("draw", "draw", "draw_distinct", "shared", "minhash")
        if build.plan.races:
            how = build.pick("shared", "minhash") if how != "best" else how
        width = getattr(build.type_of(at), "width", build.random.randint(1, 3))
        if self.loops == 0 and hasattr(build.type_of(at), "width") and build.chance(0.5):
            counts = [build.random.randint(0, 2) for _ in range(width - 1)] + [1]
            words = f" children={build.random.sample(counts, width)}"
        else:
            words = build.pick("", "", " children=2", " children=3")
        if how == "best":
            keep = f" keep={build.random.randint(1, 3)}" if words and build.chance(0.3) else ""
            return words + keep
        by = self.race() if build.plan.races else build.draws()
        if how == "draw_distinct" and words and build.chance(0.4):
            words += f" keep={build.random.randint(1, 3)}"
        return f"{words} how={how} by={by}"

    # ------------------------------------------------ other sources of tokens

    def look(self, tree: str) -> str:
        """Continuations that a source knows."""
        below = self.loops > 0 or self.build.tree(tree).nodes > 0 or self.build.chance(0.3)
        at = self.build.let(f"pick {tree} of=leaves", "f") if below else tree
        return look_up(self.build, tree, at)

    def place(self, tree: str) -> str:
        """Constant tokens."""
        build = self.build
        tokens = [build.random.randrange(VOCABULARY) for _ in range(build.random.randint(1, 3))]
        current = build.tree(tree)
        if current.is_chain and build.chance(0.5):
            tip = build.let(f"pick {tree} of=leaves", "f") if current.nodes else tree
            upto = max(current.depth, 1) + build.random.randint(0, 2)
            return build.let(f"place {tree} at={tip} tokens={tokens[:1]} upto={upto}", "t")
        return build.let(f"place {tree} at={self.some_nodes(tree)} tokens={tokens}", "t")

    def relabel(self, tree: str) -> str:
        """The same shape with other tokens."""
        build = self.build
        nodes = build.tree(tree).nodes
        refuse_unless(nodes > 0)
        match build.pick("rows", "rows", "other", "token"):
            case "rows":
                rows, _ = self.drafter().rows(tree, whole=True)
                more = f" at={self.some_nodes(tree)}" if build.chance(0.3) else ""
                align = build.pick("parent", "self")
                return build.let(f"relabel {tree} logits={rows} align={align}{more}", "t")
            case "other":
                other = self.step(tree) if build.chance(0.5) else self.place(build.let("root", "r"))
                reach = build.tree(other).nodes
                refuse_unless(reach > 0 and (self.loops == 0 or reach == nodes))
                same = f" map={[build.random.randrange(reach) for _ in range(nodes)]}"
                words = "" if (reach == nodes and build.chance(0.5)) or self.loops else same
                return build.let(f"relabel {tree} other={other}{words}", "t")
            case _:
                token = build.random.randrange(VOCABULARY)
                return build.let(f"relabel {tree} token={token} at={self.some_nodes(tree)}", "t")

    def simple(self, tree: str) -> str:
        """One move without regions."""
        moves = (self.step, self.step, self.step, self.look, self.place)
        return self.build.pick(*moves)(tree)
