"""A target that looks ahead: trained embeddings enter at slots, and run through its own layers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from torch import Tensor

from specplan.cost_models.models.heads.shared import attention_sizes
from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.runtime.images.inputs import ImageInputs
from specplan.runtime.models.attention import Additions
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.heads.drafter import Drafter
from specplan.runtime.models.heads.parts.streams import AtSlots
from specplan.runtime.requests import Request

ModelT = TypeVar("ModelT")


class LookingAhead(CausalModel):
    """A target with the embeddings of its slots; everything else of it is the same, and shared.

    Args:
        target: what runs.
        slots: a drafter whose embeddings these are.

    Raises:
        MissingCapabilityError: the target learned its positions by a table, which slots have no
            part of, or has layers whose state every column moves on.
    """

    def __init__(self, target: CausalModel, slots: Drafter) -> None:
        what = "learned positions" if target.learned_positions else ""
        what = "recurrent layers" if target.recurrent else what
        if what:
            raise MissingCapabilityError(
                f"look-ahead tokens of targets with {what} do not run",
                where=target.name,
                remedy="Draft with another head.",
            )
        vars(self).update(vars(target))
        self.by_slots, self._slots, self._target = True, slots, target
        self.slots_enter, adapters = slots.description.levels.enters, slots.entering.adapters
        self._adapters, self.packs = adapters, target.packs and adapters is None
        if adapters is not None:
            self._check_sizes(slots)

    def _check_sizes(self, slots: Drafter) -> None:
        """Adapters belong to the target's own attention.

        Raises:
            UsageError: of other sizes.
        """
        own, size = self.family, self.family.head_dim
        wanted = ((own.heads + 2 * own.kv_heads) * size, own.heads * size)
        given = attention_sizes(slots.description.body.config)
        if given != wanted:
            raise UsageError(
                f"adapters of projections to {given[0]} and from {given[1]} numbers, where the "
                f"target has {wanted[0]} and {wanted[1]}",
                where=slots.name,
                remedy="Take the streams that were trained for this target.",
            )

    def weights(self) -> dict[str, Tensor]:
        """See `CausalModel.weights`."""
        return {**super().weights(), **self._slots.weights_by_name()}

    def additions(self, ahead: int) -> Additions | None:
        """See `CausalModel.additions`: adapters of streams."""
        return AtSlots(self._adapters, ahead) if ahead and self._adapters is not None else None

    def images_of(self, requests: Sequence[Request]) -> ImageInputs | None:
        """See `Module.images_of`."""
        return self._target.images_of(requests)

    def enter_slots(self, states: Tensor, level: int) -> Tensor:
        """See `Module.enter_slots`: trained embeddings, or maps of the states."""
        return self._slots.entering.slot(states, level)


def looking_ahead(models: Mapping[str, ModelT], roles: Iterable[str]) -> dict[str, ModelT]:
    """Models of a plan, the target with the embeddings of the drafter that stands at its slots.

    Args:
        models: by role.
        roles: that the plan runs.

    Raises:
        UsageError: two of them bring embeddings, and the target has one set of slots.
        MissingCapabilityError: see `LookingAhead`.
    """
    known = dict(models)
    drafters = [(role, known[role]) for role in roles if role in known]
    slots = [
        (role, one)
        for role, one in drafters
        if isinstance(one, Drafter) and one.description.join == "slots"
    ]
    target = known.get("target")
    if len(slots) > 1:
        raise UsageError(
            f"the target looks ahead by one set of embeddings, and {slots[0][0]} and {slots[1][0]} "
            "each bring one",
            remedy="Leave one of them out of the plan.",
        )
    if slots and isinstance(target, CausalModel) and not isinstance(target, LookingAhead):
        known["target"] = LookingAhead(target, slots[0][1])  # type: ignore[assignment]
    return known
