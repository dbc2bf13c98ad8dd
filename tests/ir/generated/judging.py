"""The rule that judges a tree: one that fits it, its draws, and what the plan promises."""

from __future__ import annotations

from specplan.ir.tables.acceptance import RULE_ENTRIES
from specplan.ir.tables.declaration import Declaration
from specplan.ir.types.value_types import TreeType
from specplan.ir.values import Range
from tests.ir.generated.builder import Builder, refuse_unless


def judge(
    build: Builder, tree: str, rows: str, *, at: str | None = None, keep_law: bool, race: str = ""
) -> str:
    """HeadEvaluator a tree by rows.

    Args:
        build: the round.
        tree: what is judged.
        rows: of its nodes.
        at: below which node; None for the root.
        keep_law: the rule is to keep the law of the rows.
        race: uniforms of the plan's races; none where empty.

    Returns:
        The path.
    """
    fitting = [rule for rule in RULE_ENTRIES if _fits(build, rule, build.tree(tree), keep_law)]
    if build.plan.races:  # numbers that are read again serve races alone
        fitting = [rule for rule in fitting if rule.uniforms_per_node is None or race]
        fitting = [
            rule for rule in fitting if rule.uniforms_per_node is None or rule.shares_uniforms
        ]
    refuse_unless(bool(fitting))
    reading = [rule for rule in fitting if rule.reads_probs]
    rule = build.pick(*(reading or fitting)) if build.chance(0.4) else build.pick(*fitting)
    words = f"accept {tree} target={rows} rule={entry_text(build, rule)}"
    if rule.uniforms_per_node is not None:
        words += f" by={race or build.draws('judge')}"
    return build.let(words + (f" at={at}" if at else ""), "a")


def _fits(build: Builder, rule: Declaration, tree: TreeType, keep_law: bool) -> bool:
    if not rule.needs_logits:
        return False
    if keep_law and rule.lossless == "never":
        return False
    if keep_law and rule.lossless == "greedy" and not build.plan.greedy:
        return False
    if keep_law and rule.lossless == "always" and rule.reads_probs and tree.dropped_draws:
        return False
    if rule.chain_only and not tree.is_chain:
        return False
    return not rule.children or not tree.origins - set(rule.children)


def entry_text(build: Builder, entry: Declaration) -> str:
    """An entry of a table, mostly with parameters of its own."""
    arguments = []
    for name, default in entry.parameters:
        allowed = dict(entry.ranges).get(name, Range(0.0, 1e9))
        if build.chance(0.95) and isinstance(default, int | float):
            factor = build.pick(0.5, 1.5)
            value = min(max(default * factor, allowed.low), allowed.high)
            arguments.append(f"{name}={max(int(value), 1) if isinstance(default, int) else value}")
    return f"{entry.name}({', '.join(arguments)})" if arguments else entry.name
