"""Reading drafters as files write them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeGuard, get_args

from specplan.cost_models.acceptance.drafters import (
    Beam,
    Drafter,
    Drawn,
    Fallback,
    FirstLayers,
    Interleaved,
    OwnRounds,
    Retained,
    SkipBlocks,
    SmallCache,
    named_drafter,
)
from specplan.ir.blocks import Skips, read_heads
from specplan.ir.errors import UsageError
from specplan.ir.text.reader import Reader
from specplan.ir.values import Atom

_FORMS = (
    "drafters are written draft, text, first_layers(target, 4), skip_blocks(target, [attn.3, "
    "mlp.4]), small_cache(target, 512), small_cache(target, 512, retrieved), beam(draft, 4), "
    "drawn(head), interleaved(draft, text) and fallback(text, draft)"
)


def read_drafter(text: str) -> Drafter:
    """The drafter that a file names.

    Raises:
        ValueError: it is none; says what it could be.
    """
    try:
        reader = Reader(text)
        name, arguments = reader.name("a drafter"), list[Atom]()
        if reader.accept("mark", "("):
            while not reader.accept("mark", ")"):
                arguments.append(reader.atom())
                if not reader.at("mark", ")"):
                    reader.take("mark", ",")
        elif reader.next.kind in ("newline", "end"):
            return named_drafter(name)
        if name in _KINDS and reader.next.kind in ("newline", "end"):
            return _KINDS[name](*arguments)
    except (UsageError, TypeError, ValueError) as error:
        raise ValueError(f'"{text}" names no drafter; {_FORMS}') from error
    raise ValueError(f'"{text}" names no drafter; {_FORMS}')


def _word(atom: Atom) -> str:
    if not isinstance(atom, str):
        raise TypeError
    return str(atom)


def _number(atom: Atom) -> int:
    if isinstance(atom, bool) or not isinstance(atom, int) or atom < 1:
        raise TypeError
    return atom


def _skip_blocks(model: Atom, blocks: Atom) -> SkipBlocks:
    if not isinstance(blocks, tuple) or not blocks:
        raise TypeError
    return SkipBlocks(_word(model), Skips.read(map(_word, blocks)))


def _is_retained(how: Atom) -> TypeGuard[Retained]:
    return how in get_args(Retained)


def _small_cache(model: Atom, budget: Atom, how: Atom = "recent", heads: Atom = ()) -> SmallCache:
    if not _is_retained(how) or not isinstance(heads, tuple) or (heads and how != "by_head"):
        raise TypeError
    read_heads(words := tuple(map(_word, heads)))
    return SmallCache(_word(model), _number(budget), how, words)


_KINDS: Mapping[str, Callable[..., Drafter]] = {
    "first_layers": lambda model, layers: FirstLayers(_word(model), _number(layers)),
    "skip_blocks": _skip_blocks,
    "small_cache": _small_cache,
    "beam": lambda model, width: Beam(_word(model), _number(width)),
    "drawn": lambda name: Drawn(_word(name)),
    "interleaved": lambda model, source: Interleaved(_word(model), _word(source)),
    "fallback": lambda source, model: Fallback(_word(source), _word(model)),
    "rounds": lambda plan, key, *models: OwnRounds(
        _word(plan), _word(key), tuple(map(_word, models))
    ),
}
