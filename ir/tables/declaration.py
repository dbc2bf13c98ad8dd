"""What an entry of an open table declares."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from specplan.ir.files import modules_of
from specplan.ir.text.coerce import coerce
from specplan.ir.values import Atom, Entry, Range

Table: TypeAlias = Literal[
    "rule", "law", "measure", "source", "policy", "value", "promise", "threads"
]


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """One entry.

    Attributes:
        table: the table of which it is an entry. `entries_of` fills this in from the folder.
        name: its name in plans. `entries_of` fills this in from the file.
        summary: what it does, in a line.
        parameters: each name with its default, or with the type of what must be given.
        ranges: where a parameter may lie, for those that are bounded.
        lossless: at which sampling temperatures a rule or law keeps the target's law.
        chain_only: the rule judges trees in which no node has two children.
        needs_logits: the rule reads the target's logits.
        reads_probs: the rule reads the probabilities that tokens were drawn from. A rule that does
            not keeps the target's distribution for any tree, however its nodes were chosen.
        children: the only ways in which children may come about (`how=` of `grow`, or "given"),
            where a rule judges no others; empty for any.
        uniforms_per_node: None where none are drawn; otherwise a tree of n nodes takes that many
            per node and one more.
        draws_by_place: what follows a node is drawn with a number of the node's, or its depth's;
            other rules draw the bonus with the last number.
        shares_uniforms: the rule may read the numbers that the tree was drawn with by a race
            (`how=shared` or `minhash`): number d is for what follows nodes at depth d, in the draft
            and in the target alike.
        loss: of a rule that is never lossless: total variation between the law of the first token
            that it emits and the target's, by default parameters, with the laws p and q of
            docs/rules.md as target's and draft's, and the other way round.
        of: what a measure is taken of, empty for anything; `pass` for a policy of passes, where
            others are of caches.
        learns: what a source is taught: `logits`, the `text`, or `runs` of drafted tokens;
            None for one that says nothing of it.
        finds: what a source gives of one text: `one` continuation, several side by side (`apart`),
            or also trees of them, in fewer nodes (`merged`).
        one_text: a source holds the text of one request alone.
        source: the paper.
    """

    table: Table = "rule"
    name: str = ""
    summary: str = ""
    parameters: tuple[tuple[str, Atom | type], ...] = ()
    ranges: tuple[tuple[str, Range], ...] = ()
    lossless: Literal["always", "greedy", "never"] = "always"
    chain_only: bool = False
    needs_logits: bool = True
    reads_probs: bool = False
    children: tuple[str, ...] = ()
    uniforms_per_node: int | None = None
    draws_by_place: bool = False
    shares_uniforms: bool = False
    loss: tuple[float, float] | None = None
    of: Literal["logits", "states", "tree", "path", "uniforms", "cache", "number", "pass", ""] = ""
    learns: tuple[Literal["logits", "text", "runs"], ...] | None = None
    finds: Literal["one", "apart", "merged"] = "merged"
    one_text: bool = False
    source: str = ""

    def arguments(self, entry: Entry) -> dict[str, Any]:
        """What the parameters are in a checked entry: its own, else the defaults."""
        given = dict(entry.arguments)
        return {
            key: coerce(default if isinstance(default, type) else type(default), given[key])
            if key in given
            else default
            for key, default in self.parameters
        }


def entries_of(table: Table, package: str, folder: Iterable[str]) -> tuple[Declaration, ...]:
    """The `ENTRY` of each file of a package, named as the file, in order of name.

    Args:
        table: the table of these entries.
        package: its full name.
        folder: its `__path__`.
    """
    modules = modules_of(package, folder).items()
    return tuple(replace(module.ENTRY, table=table, name=name) for name, module in modules)
