"""The acceptance rules as the page `docs/rules.md`, and as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specplan.ir.errors import UsageError
from specplan.ir.files import read_json
from specplan.ir.tables.declaration import Declaration
from specplan.ir.values import print_atom

_HEAD = """# Acceptance rules

Which drafted tokens are emitted, and what follows them: the entries of `rule=` in the op `accept`
of the [plan language](plan_language.md#entries). Each is one file of `runtime/acceptance/`, a pure
function of the drafted tree, the target's rows and uniforms: it calls no model, touches no cache
and remembers nothing. Its docstring has the rule in formulas, what it needs, and known mistakes of
the source. This page is written by `specplan methods --rules --markdown --measured
benchmarks/results/rule_losses.json`; a test holds it to the code and to those results.

- **keeps the law**: at which temperatures the emitted text follows the target's own law. Those
  that always do are held to it by exact enumeration, on chains and trees.
- **needs**: the target's rows; uniforms, one per node and one more; the laws that tokens were drawn
  from, which are kept for every drawn node. A rule that does not read them keeps the target's law
  for any tree, however its nodes were chosen.
- **loses**: total variation between the law of the first emitted token and the target's, by exact
  enumeration, for one drafted token and default parameters: with the target at p = (.5, .3, .15,
  .05) and the draft at q = (.25, .25, .4, .1), and with the two exchanged. The draft's own law is
  .3 away.
- **runs on**: backends that run it.

| rule | what it does | parameters | judges | keeps the law | needs | loses | runs on | source |
|---|---|---|---|---|---|---|---|---|
"""

_LOST = """
The same on the reference pair, at {places} places of held-out prompts, temperature
{temperature:g} and top-k {top_k}, exactly for each place and then averaged
(`benchmarks/rule_losses.py`, {date}):

| rule | total variation | drafted token accepted |
|---|---|---|
"""

_WHY_LOST = """
`typical`, `rollback` and `top_beta` emit the target's first choice where they reject, which is why
they may be further from its law than the draft is.
"""

_FOOT = """
What is priced: an estimate takes the tokens per round from the acceptance profile, which was
measured with the rules that the methods write (`greedy` at temperature 0, else `recursive`, which
is `token` on chains; where a plan's own rounds are run, the rule of that plan). A plan edited to
another rule is priced as if judged by those: too low for `block` and the lossy rules, too high for
`naive`, `deterministic` and `gumbel` on drawn tokens. The time of `accept` itself is that of the
rule where a device was measured with it; a data sheet has one for all rules, and a device that was
measured with other rules leaves the plan unpriced.
"""

_KEEPS = {"always": "always", "greedy": "at temperature 0", "never": "never"}

_TOLD = {"date", "places", "temperature", "top_k", "rules"}

Runners = Mapping[str, Sequence[str]]
"""Names of the backends that run each rule."""


def read_losses(path: Path) -> Mapping[str, Any]:
    """What `benchmarks/rule_losses.py --json` printed.

    Raises:
        UsageError: the file is missing or holds something else.
    """
    found = read_json(path, "losses of rules")
    if not isinstance(found, dict) or not found.keys() >= _TOLD:
        raise UsageError(
            "the file holds no losses of rules",
            where=str(path),
            remedy="Make it with `python benchmarks/rule_losses.py --json`.",
        )
    return found


def rules_page(
    rules: Sequence[Declaration], runners: Runners, measured: Mapping[str, Any] | None = None
) -> str:
    """The page, one row per rule.

    Args:
        rules: all of them.
        runners: of each.
        measured: what they lose on the reference pair (`read_losses`); None leaves it out.
    """
    rows = (f"| {' | '.join(_row(rule, runners))} |\n" for rule in rules)
    lost = "" if measured is None else _lost(measured)
    return _HEAD + "".join(rows) + lost + _FOOT


def _lost(measured: Mapping[str, Any]) -> str:
    """What was measured of lossy rules, the least loss first."""
    words = {"token": "`token`, for comparison", "all": "`all`: the draft's own law"}
    rows = (
        f"| {words.get(each['rule'], '`{rule}`'.format_map(each))} "
        f"| {_fraction(each['total_variation'])} | {_fraction(each['accepted'])} |\n"
        for each in sorted(measured["rules"], key=lambda one: float(one["total_variation"]))
    )
    return _LOST.format_map(measured) + "".join(rows) + _WHY_LOST


def _fraction(value: float) -> str:
    """`.153`, or 0 or 1."""
    words = f"{value:.3f}"
    return words[0] if words[1:] == ".000" else words.removeprefix("0")


def rule_as_dict(rule: Declaration, runners: Runners) -> dict[str, Any]:
    """What a rule declares, ready for JSON."""
    loss = None if rule.loss is None else list(rule.loss)
    return {
        "name": rule.name,
        "summary": rule.summary,
        "paper": rule.source,
        "lossless": rule.lossless != "never",
        "keeps_the_law": keeps_words(rule),
        "judges": judges_words(rule),
        "needs": list(needs(rule)),
        "parameters": {name: default for name, default in rule.parameters},
        "loss": loss,
        "backends": list(runners.get(rule.name, ())),
    }


def keeps_words(rule: Declaration) -> str:
    """At which temperatures the output follows the target's law."""
    return _KEEPS[rule.lossless]


def judges_words(rule: Declaration) -> str:
    """Which trees it judges."""
    ways = "".join(f" of independent draws (how={way})" for way in rule.children)
    return ("chains" if rule.chain_only else "trees") + ways


def needs(rule: Declaration) -> tuple[str, ...]:
    """What it must be given beside the drafted tree."""
    found = []
    if rule.needs_logits:
        found.append("target rows")
    if rule.reads_probs:
        found.append("draft laws")
    if rule.uniforms_per_node is not None:
        found.append("uniforms")
    return tuple(found)


def _row(rule: Declaration, runners: Runners) -> tuple[str, ...]:
    given = ((name, default) for name, default in rule.parameters if not isinstance(default, type))
    return (
        f"`{rule.name}`",
        rule.summary,
        ", ".join(f"`{name}={print_atom(default)}`" for name, default in given) or "-",
        judges_words(rule),
        keeps_words(rule),
        ", ".join(needs(rule)) or "-",
        "-" if rule.loss is None else "{:g}, {:g}".format(*rule.loss),
        ", ".join(runners.get(rule.name, ())) or "-",
        rule.source,
    )
