"""A request: a prompt, sampling settings, and when to stop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from specplan.ir.errors import UsageError
from specplan.runtime.grammar import Grammar
from specplan.runtime.images.inputs import Images

LEAST_TEMPERATURE = 1e-5
"""Below it, logits over the temperature may overflow float32."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A text to continue, with settings and a seed that do not depend on the rest of the batch.

    Attributes:
        prompt_tokens: at least one token.
        max_new_tokens: most tokens to emit, a stop token included.
        temperature: 0 is greedy; others are at least `LEAST_TEMPERATURE`.
        top_k: keep this many likeliest tokens; 0 is off.
        top_p: keep the likeliest tokens up to this mass; 1 is off.
        seed: any integer; with the prompt and the settings it determines sampled output.
        stop_tokens: emission ends after the first of these, which is part of the output tokens.
        stop_strings: the text is cut before the first of these that appears in it.
        grammar: what the output must follow; the tokens that end it are stop tokens.
        images: what the prompt's image tokens stand for; None for a prompt of text.

    Raises:
        UsageError: names the field that is out of range.
    """

    prompt_tokens: tuple[int, ...]
    max_new_tokens: int = 128
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    stop_tokens: tuple[int, ...] = ()
    stop_strings: tuple[str, ...] = ()
    grammar: Grammar | None = None
    images: Images | None = None

    def __post_init__(self) -> None:
        for name in ("prompt_tokens", "stop_tokens", "stop_strings"):
            value = getattr(self, name)
            if isinstance(value, str):
                raise UsageError("must be a list, not a string", where=f"request.{name}")
            object.__setattr__(self, name, tuple(value))
        if self.grammar is not None:
            stops = dict.fromkeys((*self.stop_tokens, *self.grammar.ends))
            object.__setattr__(self, "stop_tokens", tuple(stops))
        checks = (
            ("prompt_tokens", bool(self.prompt_tokens), "needs at least one token"),
            ("prompt_tokens", _all_ids(self.prompt_tokens), "token ids are integers from 0"),
            ("max_new_tokens", self.max_new_tokens >= 0, "must be 0 or more"),
            (
                "temperature",
                self.temperature == 0 or LEAST_TEMPERATURE <= self.temperature < inf,
                f"must be 0 (greedy), or {LEAST_TEMPERATURE:g} and more",
            ),
            ("top_k", self.top_k >= 0, "must be 0 (off) or more"),
            ("top_p", 0 < self.top_p <= 1, "must be above 0 and at most 1 (off)"),
            ("stop_strings", all(self.stop_strings), "must not be empty strings"),
        )
        for name, holds, rule in checks:
            if not holds:
                value = getattr(self, name)
                raise UsageError(
                    f"{rule}, but is {_short(value)}",
                    where=f"request.{name}",
                    remedy="Change the value, or leave it out for the default.",
                )


def _all_ids(tokens: Sequence[int]) -> bool:
    return all(isinstance(token, int) and token >= 0 for token in tokens)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
