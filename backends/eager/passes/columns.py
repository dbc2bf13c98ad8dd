"""A pass of a model: its columns, who runs it, and what it gives."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from specplan.backends.eager.op_runner import OpRunner
from specplan.backends.eager.passes.levels import Slots
from specplan.backends.eager.passes.pass_spec import PassSpec
from specplan.backends.eager.state.placements import Fresh, Placement
from specplan.backends.eager.state.tracks import Track
from specplan.backends.ops.tensors.values import Nodes
from specplan.runtime.models.attention import Packing
from specplan.runtime.models.modules import Module


@dataclass(frozen=True)
class Columns:
    """Columns of a pass, those of text first.

    Attributes:
        tokens: int64 `[B, T]`.
        positions: int64 `[B, T]`.
        live: bool `[B, T]`.
        texts: how many are of text.
        inner: drafted nodes, operand by operand.
        used: slots of text that are attended to.
        rooted: the root is one of the drafted nodes, and no column of text.
        slots: which of the last columns look ahead of nodes; None for none.
        packing: the columns that run, where many do not and their model can leave these out.
    """

    tokens: Tensor
    positions: Tensor
    live: Tensor
    texts: int
    inner: tuple[Nodes, ...]
    used: int
    slots: Slots | None = None
    rooted: bool = False
    packing: Packing | None = None

    @property
    def ahead(self) -> int:
        """How many columns look ahead."""
        return 0 if self.slots is None else self.slots.width


@dataclass(frozen=True)
class Pass:
    """One pass of a model.

    Attributes:
        runner: of the op, with texts and models.
        spec: which layers run, from what, and what is kept.
        call: on which columns.
        place: slots of its nodes, where they are known.
        fills: keys and values are all that is wanted of it, of a model that `fills`.
    """

    runner: OpRunner
    spec: PassSpec
    call: Columns
    place: Placement | Fresh | None = None
    fills: bool = False

    @cached_property
    def model(self) -> Module:
        """What runs."""
        return self.runner.models[self.spec.model]

    @cached_property
    def track(self) -> Track | None:
        """Whose hidden states it reads."""
        return None if self.spec.features is None else self.runner.batch.tracks[self.spec.features]


@dataclass(frozen=True)
class Passed:
    """What a pass gave.

    Attributes:
        hidden: states after the last layer, `[B, T, hidden]`.
        live: which of them there are, bool `[B, T]`.
        steps: passes of its model that they went through, int64 `[B, T]`; None where it read no
            states.
        ahead: the same of what lies one token deeper, two tokens, and so on.
        context: slots that were attended to.
        sure: all nodes have run that were to.
    """

    hidden: Tensor
    live: Tensor
    steps: Tensor | None
    ahead: tuple[tuple[Tensor, Tensor], ...] = ()
    context: int = 0
    sure: bool = False
