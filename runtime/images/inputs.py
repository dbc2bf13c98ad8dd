"""Images of requests: their pixels, where they stand in a prompt, and what enters a model there.

A target that sees images reads an embedding of its vision tower at each place of a prompt that
holds the image token. A model that reads text alone leaves these places out: nothing attends to
them, and what follows is numbered as if they were not there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import torch
from torch import Tensor

from specplan.ir.files import sha256_bytes

if TYPE_CHECKING:
    from specplan.runtime.requests import Request


MaskT = TypeVar("MaskT")
Embed: TypeAlias = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Images:
    """Images of one prompt.

    Attributes:
        pixels: `[n, channels, height, width]`, as the target's image processor gives them.
        token: id that stands in the prompt for each embedding of an image.
    """

    pixels: Tensor
    token: int

    @cached_property
    def digest(self) -> str:
        """A name for the pixels, where what was measured with them is stored."""
        return sha256_bytes(self.pixels.numpy().tobytes())[:16]

    def count_in(self, prompt: Sequence[int]) -> int:
        """Places of a prompt that belong to images."""
        return sum(token == self.token for token in prompt)


@dataclass(frozen=True, eq=False)
class ImageInputs:
    """Images of a batch, as one model reads them.

    Attributes:
        places: bool `[B, P]`, positions that belong to images.
        see: gives the embeddings of all places, `[places, hidden]`, row by row; None for a model
            that reads text alone.
    """

    places: Tensor
    see: Callable[[], Tensor] | None

    @classmethod
    def of(
        cls, requests: Sequence[Request], device: torch.device, see: Callable[[], Tensor] | None
    ) -> ImageInputs | None:
        """Those of requests; None where no request has any."""
        if all(request.images is None for request in requests):
            return None
        longest = max(len(request.prompt_tokens) for request in requests)
        places = torch.zeros(len(requests), longest, dtype=torch.bool)
        for row, request in enumerate(requests):
            if request.images is not None:
                prompt = torch.tensor(request.prompt_tokens)
                places[row, : len(prompt)] = prompt == request.images.token
        return cls(places.to(device), see)

    @cached_property
    def states(self) -> Tensor:
        """The embeddings at their places, `[B, P, hidden]`, zeros elsewhere; seen at first use."""
        assert self.see is not None, "text alone has none"
        seen = self.see()
        states = seen.new_zeros(*self.places.shape, seen.shape[1])
        states[self.places] = seen
        return states

    def at(self, positions: Tensor) -> Tensor:
        """Which positions `[B, T]` belong to images."""
        return self.places.gather(1, self.within(positions)) & (positions < self.places.shape[1])

    def within(self, positions: Tensor) -> Tensor:
        """Positions, the last one of the prompts in place of those behind it."""
        return positions.clamp(0, self.places.shape[1] - 1)


def with_images(images: ImageInputs | None, embed: Embed, positions: Tensor) -> Embed:
    """An embedding of tokens that puts those of images in the place of their tokens'.

    A model that reads text alone keeps the tokens'.

    Args:
        images: of the batch; None for none.
        embed: from tokens and the positions that the model counts to `[B, T, hidden]`.
        positions: of the tokens in the whole prompt, int64 `[B, T]`.
    """
    if images is None or images.see is None:
        return embed

    def put(tokens: Tensor, places: Tensor) -> Tensor:
        embedded = embed(tokens, places)
        at = images.within(positions)[:, :, None].expand_as(embedded)
        states = images.states.gather(1, at).to(embedded.dtype)
        return torch.where(images.at(positions)[:, :, None], states, embedded)

    return put


def without_images(
    images: ImageInputs | None, positions: Tensor, keys: Tensor, mask: MaskT
) -> tuple[Tensor, MaskT | Tensor]:
    """Positions as a model of text counts them, and a mask by which no text attends to images.

    A model that sees them keeps both.

    Args:
        images: of the batch; None for none.
        positions: of queries, int64 `[B, T]`.
        keys: positions of the slots that the mask is of, int64 `[B, U]`.
        mask: bool `[B, T, U]`, or that of a kernel.
    """
    if images is None or images.see is not None:
        return positions, mask
    assert isinstance(mask, Tensor), "kernels know no tokens that are left out"
    own = images.at(positions)
    passed = images.places.cumsum(1).gather(1, images.within(positions)) - own.long()
    return positions - passed, mask & (~images.at(keys)[:, None, :] | own[:, :, None])
