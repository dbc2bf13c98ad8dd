"""What a round may do to the tree that it drafts: each move takes a tree and gives another."""

from __future__ import annotations

from tests.ir.generated.builder import refuse_unless
from tests.ir.generated.growing import TreeGrowth
from tests.ir.generated.judging import judge
from tests.ir.generated.numbers import flag, number


class Drafting(TreeGrowth):
    """The drafting part of a round: all moves."""

    # ------------------------------------------------ shapes

    def graft(self, tree: str) -> str:
        """A second tree beside the first."""
        build = self.build
        others = []
        for _ in range(build.pick(1, 1, 2)):
            other = build.let("root", "r")
            for _ in range(build.pick(1, 2)):
                other = self.simple(other)
            others.append(other)
        joined = build.random.sample([tree, *others], len(others) + 1)
        words = f"graft {' '.join(joined)} same={build.pick('keep', 'merge')}"
        if build.chance(0.3):
            each = (build.let(f'compute "{build.pick(0.5, 2.0)}"', "w") for _ in joined)
            words += f" weights=[{', '.join(each)}]"
        return build.let(words, "t")

    def prune(self, tree: str) -> str:
        """Some nodes and their ancestors."""
        build = self.build
        nodes = build.tree(tree).nodes
        refuse_unless(nodes > 1)
        best = build.random.randint(1, nodes)
        to = build.pick(
            f"pick {tree} of=all best={best}",
            f"pick {tree} of=all best={best}",
            f"pick {tree} of=leaves best={min(best, 3)}",
            f"pick {tree} of=newest",
        )
        nodes_to = build.let(to, "f")
        return build.let(f"prune {tree} to={nodes_to}", "t")

    def stage(self, tree: str) -> str:
        """What hangs below the tip of a chain is judged by another drafter, and adopted."""
        build = self.build
        refuse_unless(build.tree(tree).is_chain)
        tip = build.let(f"pick {tree} of=leaves", "f")
        grown = self.place(tree) if build.chance(0.2) else build.pick(self.look, self.loop)(tree)
        refuse_unless(build.tree(grown).is_chain)
        rows, _ = self.drafter().rows(grown, whole=True)
        below = tip if build.chance(0.7) or build.tree(tree).nodes else None
        if build.chance(0.3):  # the tip and what hangs below it alone
            some = build.let(f"pick {grown} of=from at={tip}", "f")
            build.let(f"measure {some} count", "m")
        given = build.chance(0.4)  # without the rows it was judged by, any rule may judge it
        keep_law = build.plan.keeps_law and not given
        path = judge(build, grown, rows, at=below, keep_law=keep_law)
        return build.let(f"adopt {grown} {path}" + ("" if given else f" logits={rows}"), "t")

    # ------------------------------------------------ regions

    def loop(self, tree: str) -> str:
        """A move several times over."""
        build = self.build
        name, trip, ends = build.name("t"), build.name("p"), build.chance(0.55)
        carried, total, first = f"{trip} = {tree}", "", ""
        if ends and build.chance(0.5):
            total, first = build.name("s"), build.let('compute "0.0"', "z")
            carried += f", {total} = {first}"
        only = f" only={flag(self, tree)}" if ends and build.chance(0.75) else ""
        results = f"{name}, {build.name('s')}" if total else name
        head = f"{results} = repeat {build.random.randint(1, 3)} ({carried}){only}"
        for drafter in self._drafters.values():
            drafter.grew(trip if drafter.ran == tree and self.loops == 0 else "")
        self.loops += 1
        follower = total and f", {total}"
        with build.region(head, f"yield {trip}{follower}"):
            grown = self.simple(trip)
            stop = ""
            if ends:
                measured = number(self, grown)
                stop = build.let(f'compute "m > {build.pick(0.1, 0.5, 3.0)}" m={measured}', "g")
                if total:
                    follower = ", " + build.let(f'compute "s + m" s={total} m={measured}', "s")
            build.do(f"yield {grown}{follower}" + (f" until={stop}" if stop else ""))
        self.loops -= 1
        self.rows = None
        if ends:
            self.forget()
        for drafter in self._drafters.values():
            drafter.grew(name if drafter.ran == grown else "")
        return name

    def nested(self, tree: str) -> str:
        """A loop in a loop, or a stage in a loop."""
        build = self.build
        refuse_unless(self.loops == 0)
        name, trip = build.name("t"), build.name("p")
        self.forget()
        self.loops += 1
        with build.region(f"{name} = repeat 2 ({trip} = {tree})", f"yield {trip}"):
            moves = (self.loop, self.stage, self.when, self.graft, self.relabel, self.segment)
            grown = build.pick(*moves)(trip)
            build.do(f"yield {grown}")
        self.loops -= 1
        self.forget()
        self.rows = None
        return name

    def when(self, tree: str) -> str:
        """A move for requests whose flag holds."""
        build = self.build
        name, holds = build.name("t"), flag(self, tree)
        with build.region(f"{name} = when {holds} otherwise=[{tree}]", f"yield {tree}"):
            build.do(f"yield {self.any(tree)}")
        self.forget()
        self.rows = None
        return name

    def segment(self, tree: str) -> str:
        """A move that is compiled by itself."""
        build = self.build
        name = build.name("t")
        lane = build.pick("", " lane=a")
        with build.region(f"{name} = segment{lane}", f"yield {tree}"):
            grown = self.any(tree)
            build.do(f"yield {grown}")
        self.rows = None
        for drafter in self._drafters.values():
            drafter.grew(name if drafter.ran == grown else "")
        return name

    def any(self, tree: str) -> str:
        """One of all moves."""
        weights = {
            self.step: 4, self.loop: 5, self.look: 2, self.place: 1, self.relabel: 2,
            self.rescore: 2, self.ahead: 3, self.graft: 2, self.prune: 2, self.stage: 2,
            self.when: 3, self.segment: 1, self.nested: 2,
        }  # fmt: skip
        (move,) = self.build.random.choices([*weights], [*weights.values()])
        return move(tree)
