"""Chains of several drafters, joined at the root into one tree: what their methods share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from specplan.cost_models.acceptance.drafters import TEXT
from specplan.ir.values import print_atom
from specplan.planner.drafters.profiles import LOOKUP_MATCH
from specplan.planner.templates.plan_text import cache_of


def joined_chains(drafters: Sequence[str], length: int, *, drawn: bool, result: str = "c") -> str:
    """A tree in which what hangs below equal siblings is merged.

    Any of the chains may be the accepted one, so that a model may lack all of it but the root.

    Args:
        drafters: draft models, and the text, which gives what followed its end before.
        length: tokens of each chain, of the text's at most.
        drawn: tokens of models are drawn from their laws, each model from a stream of its own; else
            they are the best ones.
        result: name of the tree.
    """
    chains = "\n".join(_chains(drafters, length, drawn))
    trees = " ".join(f"%d{index}" for index in range(len(drafters)))
    return f"{chains}\n%{result} = graft {trees} same=merge"


def commits(drafters: Sequence[str]) -> str:
    """Ops that end a round in the caches of the drafters."""
    return "\n".join(f"commit {cache_of(name)} %e" for name in models_of(drafters))


def models_of(drafters: Sequence[str]) -> tuple[str, ...]:
    """The models among drafters."""
    return tuple(name for name in drafters if name != TEXT.name)


def _chains(drafters: Sequence[str], length: int, drawn: bool) -> Iterator[str]:
    for index, name in enumerate(drafters):
        root = f"%r{index}"
        yield f"{root} = root"
        if name == TEXT.name:
            match = print_atom(LOOKUP_MATCH)
            yield f"%d{index} = lookup @text {root} at={root} match={match} length={length}"
            continue
        draw = f"    %u{index} = uniform 1 stream=draft_{index}\n" if drawn else ""
        how = f" how=draw by=%u{index}" if drawn else ""
        yield (
            f"%d{index} = repeat {length} (%t{index} = {root}) {{\n"
            f"    %f{index} = pick %t{index} of=newest\n"
            f"    %q{index} = forward {name} %f{index} cache={cache_of(name)} "
            f"pending={length + 1}\n{draw}"
            f"    %n{index} = grow %t{index} at=%f{index} logits=%q{index}{how}\n"
            f"    yield %n{index}\n}}"
        )
