"""Options of methods: what each means, how a setting reads, and families of settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from string import Formatter
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Generic, TypeVar, get_args, get_type_hints

from specplan.cost_models.acceptance.drafters import Drafter


@dataclass(frozen=True)
class Option:
    """What a field of `Options` means; it stands in the field's `Annotated` type.

    Attributes:
        description: what the option is, with its unit.
        values: the values that are tried, in order; empty where the method computes them or the
            field's default is the only one.
        whole: every whole number from the first value to the last one may be taken, though not all
            of them are tried.
        drafts: a value names a draft model or a drafter besides the target.
        searched: values are searched for by running the models, which takes minutes.
    """

    description: str
    values: tuple[Any, ...] = ()
    whole: bool = False
    drafts: bool = False
    searched: bool = False


DraftName = Annotated[str, Option("who drafts", drafts=True)]
"""A field that names the draft model or head."""


@dataclass(frozen=True)
class Options:
    """One setting of a method's options; a method adds its own fields.

    Attributes:
        reads: the setting in a few words, for tables: a format string over fields and properties,
            `chain of {length} by {draft}`. Names are joined by "and", numbers by "-".
        derived: properties that JSON shows after the fields.
    """

    reads: ClassVar[str]
    derived: ClassVar[Mapping[str, Option]] = MappingProxyType({})

    @classmethod
    @cache  # each choice of a method asks, and types are written as text
    def declared(cls) -> Mapping[str, Option]:
        """What each option means, by its name; then what is derived from them."""
        hints = get_type_hints(cls, include_extras=True)
        metadata = {one.name: get_args(hints[one.name])[1:] for one in fields(cls)}
        declared = {
            name: item
            for name, items in metadata.items()
            for item in items
            if isinstance(item, Option)
        }
        return MappingProxyType({**declared, **cls.derived})

    @property
    def words(self) -> str:
        """The setting in a few words, for tables."""
        names = [name for _, name, _, _ in Formatter().parse(self.reads) if name]
        return self.reads.format(**{name: _text(getattr(self, name)) for name in names})

    def as_dict(self) -> dict[str, Any]:
        """The options by name, ready for JSON; drafters as files name them."""
        names = (*(field.name for field in fields(self)), *self.derived)
        given = {name: getattr(self, name) for name in names}
        return {name: str(x) if isinstance(x, Drafter) else x for name, x in given.items()}


OptionsT = TypeVar("OptionsT", bound=Options)


def _text(value: Any) -> Any:
    if isinstance(value, tuple):
        return (" and " if isinstance(value[0], str) else "-").join(map(str, value))
    return value


@dataclass(frozen=True)
class Family(Generic[OptionsT]):
    """Settings of a method that stand or fall together.

    Attributes:
        name: short name, unique within the method.
        domains: the options with the values that they take.
        settings: the legal settings within the domains, simpler ones first.
        at: the setting at a point of the domains, given by their names, where `settings` are only
            some of those there are; it gives None where there is none. None where all are tried.
    """

    name: str
    domains: Mapping[str, Option]
    settings: tuple[OptionsT, ...]
    at: Callable[[Mapping[str, Any]], OptionsT | None] | None = field(default=None, compare=False)

    @classmethod
    def of(
        cls,
        name: str,
        settings: Iterable[OptionsT],
        at: Callable[[Mapping[str, Any]], OptionsT | None] | None = None,
    ) -> Family[OptionsT]:
        """The family of some settings, whose options say what they mean.

        Args:
            name: of the family.
            settings: at least one, all of one class.
            at: see `at`; the domains are then all that the options may take, else what occurs.
        """
        settings = tuple(settings)
        declared = type(settings[0]).declared() if settings else {}
        if at is not None:
            domains = {option: one for option, one in declared.items() if one.values}
        else:
            domains = {
                option: replace(one, values=_sorted({getattr(x, option) for x in settings}))
                for option, one in declared.items()
            }
        return cls(name, domains, settings, at)


def _sorted(values: Iterable[Any]) -> tuple[Any, ...]:
    """Values of an option in rising order, none first; drafters by their names."""

    def order(value: Any) -> tuple[bool, Any]:
        plain = value is None or isinstance(value, int | float | str | tuple)
        return value is not None, value if plain else str(value)

    return tuple(sorted(values, key=order))


@dataclass(frozen=True)
class Refusal:
    """A family that cannot be used for this problem.

    Attributes:
        name: name of the family.
        reason: why, and what would change it.
    """

    name: str
    reason: str
