"""Generating with a bundle: its plan compiled, its models loaded, text in and text out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from specplan.bundling import open_bundle
from specplan.runtime import require_torch

if TYPE_CHECKING:
    from specplan.backends.bundle import Bundle
    from specplan.runtime.generate import Generation
    from specplan.runtime.requests import Request

Prompt: TypeAlias = "str | Sequence[Mapping[str, str]]"
"""A text to be continued, or chat messages (mappings with "role" and "content")."""

OnText: TypeAlias = Callable[[int, str], None]
"""Called as (index of the prompt, new text) while the text comes."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to generate; what is None is as in the bundle's problem.

    Attributes:
        max_new_tokens: most tokens per prompt.
        temperature: 0 is greedy.
        top_k: sample among this many most probable tokens; 0 is off.
        top_p: sample among the fewest tokens with this total probability; 1 is off.
        seed: of the first prompt; each further prompt adds 1.
        stop: strings before which the text ends.
    """

    max_new_tokens: int = 128
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0
    stop: tuple[str, ...] = ()


class Decoder:
    """An opened bundle; prompts of one call are decoded as one batch.

    Args:
        bundle: a bundle, or its folder.
        device: a torch device; compiled rounds run on "cpu". On "cuda" rounds are captured in CUDA
            graphs, with the bundle's GPU kernels where it has some.

    Raises:
        UsageError: the bundle or a checkpoint has changed since it was written, or its problem is
            damaged; says which.
        MissingCapabilityError: torch is not installed, or the backend cannot run here, or the
            bundle's compiled rounds or GPU kernels are for other machines; nothing was loaded.
    """

    def __init__(self, bundle: Bundle | Path | str, device: str = "cpu") -> None:
        require_torch()
        from specplan.backends.machine import check_machine
        from specplan.backends.opening import load_models, open_executable
        from specplan.runtime.tokenizer import load_tokenizer

        self.bundle = open_bundle(bundle)
        check_machine(self.bundle, device)
        self.bundle.check_models()
        self.executable = open_executable(self.bundle, load_models(self.bundle, device))
        self.tokenizer = load_tokenizer(self.bundle.model_folder("target"))

    def generate(
        self,
        prompts: Sequence[Prompt],
        settings: Settings = Settings(),
        on_text: OnText | None = None,
    ) -> Generation:
        """Continue every prompt.

        Args:
            prompts: texts, or lists of chat messages.
            settings: how to sample and when to stop.
            on_text: called while text comes.

        Raises:
            UsageError: a setting is out of range, or a prompt is empty or too long.
        """
        from specplan.runtime.generate import generate

        requests = [self._request(prompt, settings, index) for index, prompt in enumerate(prompts)]
        hear = None if on_text is None else lambda row, _, text: on_text(row, text)
        return generate(self.executable, requests, tokenizer=self.tokenizer, on_tokens=hear)

    def _request(self, prompt: Prompt, settings: Settings, index: int) -> Request:
        from specplan.runtime.chat import chat_tokens
        from specplan.runtime.requests import Request

        if isinstance(prompt, str):
            tokens = self.tokenizer.encode(prompt)
        else:
            tokens = chat_tokens(self.tokenizer, prompt)
        workload = self.bundle.problem["workload"]
        sampling = {
            name: workload[name] if (value := getattr(settings, name)) is None else value
            for name in ("temperature", "top_k", "top_p")
        }
        return Request(
            prompt_tokens=tuple(tokens),
            max_new_tokens=settings.max_new_tokens,
            seed=settings.seed + index,
            stop_tokens=self.tokenizer.stop_tokens,
            stop_strings=settings.stop,
            **sampling,
        )
