"""Numbers of a round and conditions on them."""

from __future__ import annotations

from typing import Protocol

from tests.ir.generated.builder import Builder


class Around(Protocol):
    """Where a number is wanted."""

    build: Builder
    rows: str | None


FORMULAS = (
    "m", "abs(m - 1)", "min(m, 2) + max(m, 0)", "exp(0 - abs(m))", "log(1 + abs(m))",
    "floor(m * 3) % 2", "where(m > 1, m, log(2)) / 2", "-m * 0.5 + 1",
)  # fmt: skip
CONDITIONS = (
    "m < {x}", "m >= {x}", "m > {x} or m == 0", "m <= {x} and not m != m", "not m > {x}",
)  # fmt: skip


def number(around: Around, tree: str) -> str:
    """Something measured, remembered or computed."""
    build = around.build
    kinds = ["tree", "tree", "value", "uniform", "carried", "some"]
    kinds += ["rows"] * 9 if around.rows is not None else []
    kinds += ["lag"] if build.plan.passes == "halves" else []
    if build.chance(0.2):
        build.plan.shared = True
        own = build.let(f"measure {tree} count", "m")
        return build.let(f"measure {own} {build.pick('batch_max', 'batch_mean', 'batch_sum')}", "m")
    match build.pick(*kinds):
        case "rows":
            op = f"measure {around.rows} {build.pick('top1', 'margin', 'entropy')}"
        case "tree" if build.chance(0.5):
            op = f"measure {tree} listed(tokens=[0, 3, 7, 12], numbers=[0.5, 1.0, 2.5, 0.25])"
        case "tree":
            op = f"measure {tree} count"
        case "some":
            some = build.let(f"pick {tree} of={build.pick('leaves', 'newest', 'all')}", "f")
            op = f"measure {some} count"
        case "value":
            op = f"measure {tree} value(best={build.random.randint(1, 4)})"
        case "uniform":
            op = f"measure {build.draws('coin' + build.name('')[1:])} uniform"
        case "lag":
            op = f"measure @kv lag(layers={build.pick('0:2', '2:4')})"
        case _:
            build.plan.states.setdefault("@bar", f"value number(init={build.pick(0.5, 1.0)})")
            op = "load @bar"
    measured = build.let(op, "m")
    if build.chance(0.5):
        return build.let(f'compute "{build.pick(*FORMULAS)}" m={measured}', "m")
    return measured


def flag(around: Around, tree: str) -> str:
    """A condition on a number."""
    build = around.build
    words = build.pick(*CONDITIONS).format(x=build.pick(0.2, 0.6, 1.5, 3.0))
    if build.chance(0.25):
        around_it = build.pick("batch < 2", "context > 16", "emitted < 6", "phase == 0")
        words = f"{around_it} and m >= 0 or {words}"
        build.plan.shared = True
    return build.let(f'compute "{words}" m={number(around, tree)}', "g")
