"""Generating with a bundle or with a plan of its own: models loaded, text in and text out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from specplan.backends.registry import INTERPRETER
from specplan.bundles.writing import open_bundle
from specplan.ir.errors import UsageError
from specplan.ir.plan import MODULE_PREFIX
from specplan.planner import Followed
from specplan.runtime import require_torch

if TYPE_CHECKING:
    from specplan.backends.bundle import Bundle
    from specplan.cost_models.quality.certificate import Certificate
    from specplan.ir.plan import Plan
    from specplan.runtime.executable import Executable
    from specplan.runtime.generate import Generation, OnTokens
    from specplan.runtime.grammar import Grammar
    from specplan.runtime.images.reading import ImageReader
    from specplan.runtime.requests import Request
    from specplan.runtime.tokenizer import Tokenizer


@dataclass(frozen=True)
class ImagePrompt:
    """A text with images, for a target that sees them.

    Attributes:
        text: to be continued; it has the target's image token, such as `<image>`, where each image
            stands.
        images: in that order: a path, an array `[height, width, 3]` of bytes, or a picture of
            Pillow each.
    """

    text: str
    images: tuple[Any, ...]


Prompt: TypeAlias = "str | ImagePrompt | Sequence[Mapping[str, str]]"
"""A text to be continued, with images or without, or chat messages (mappings with "role" and
"content")."""

OnText: TypeAlias = Callable[[int, str], None]
"""Called as (index of the prompt, new text) while the text comes."""

GREEDY: Mapping[str, float] = MappingProxyType({"temperature": 0.0, "top_k": 0, "top_p": 1.0})
"""Sampling settings of what has no problem that says them."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to generate; what is None is as in the bundle's problem, or greedy where there is none.

    Attributes:
        max_new_tokens: most tokens per prompt.
        temperature: 0 is greedy.
        top_k: sample among this many most probable tokens; 0 is off.
        top_p: sample among the fewest tokens with this total probability; 1 is off.
        seed: of the first prompt; each further prompt adds 1.
        stop: strings before which the text ends.
        followed: what the text must follow: "json_schema", "lark" or "regex", and the schema, the
            grammar in Lark's notation or the regular expression.
    """

    max_new_tokens: int = 128
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0
    stop: tuple[str, ...] = ()
    followed: tuple[str, str] | None = None


class TextDecoder:
    """What runs a plan, with its tokenizer; prompts of one call are decoded as one batch.

    Args:
        executable: a compiled plan.
        target: folder of its target, with the tokenizer.
        sampling: temperature, top_k and top_p where settings leave them out.
        followed: what texts must follow where settings leave it out.
    """

    def __init__(
        self,
        executable: Executable,
        target: Path,
        sampling: Mapping[str, float],
        followed: tuple[str, str] | None = None,
    ) -> None:
        from specplan.runtime.tokenizer import load_tokenizer

        self.executable = executable
        self.tokenizer: Tokenizer = load_tokenizer(target)
        self.target = target
        self.sampling = {name: sampling[name] for name in GREEDY}
        self.followed = followed
        self._grammars: dict[tuple[str, str], Grammar] = {}

    @cached_property
    def reader(self) -> ImageReader:
        """The target's image processor."""
        from specplan.runtime.images.reading import ImageReader

        return ImageReader(self.target)

    def generate(
        self,
        prompts: Sequence[Prompt],
        settings: Settings = Settings(),
        on_text: OnText | None = None,
        on_tokens: OnTokens | None = None,
    ) -> Generation:
        """Continue every prompt; of a plan with `threads`, text comes when its texts are joined.

        Args:
            prompts: texts, or lists of chat messages.
            settings: how to sample and when to stop.
            on_text: called while text comes.
            on_tokens: called after each step instead, with its tokens and the text of each.

        Raises:
            UsageError: a setting is out of range, or a prompt is empty or too long.
        """
        from specplan.runtime.generate import generate
        from specplan.runtime.threads.host import generate_branched

        requests = [self._request(prompt, settings, index) for index, prompt in enumerate(prompts)]
        if on_tokens is None and on_text is not None:

            def on_tokens(row: int, _: tuple[int, ...], texts: tuple[str, ...]) -> None:
                on_text(row, "".join(texts))

        if self.executable.plan.threads is not None:
            result = generate_branched(self.executable, requests, self.tokenizer)
            if on_tokens is not None:
                for row, one in enumerate(result.completions):
                    on_tokens(row, one.tokens, (one.text or "",))
            return result
        return generate(self.executable, requests, tokenizer=self.tokenizer, on_tokens=on_tokens)

    def _grammar(self, settings: Settings) -> Grammar | None:
        """What texts must follow, compiled once."""
        followed = settings.followed or self.followed
        if followed is None:
            return None
        if followed not in self._grammars:
            from specplan.runtime.grammar import Grammar, vocabulary_of

            self._grammars[followed] = Grammar(*followed, vocabulary_of(self.tokenizer))
        return self._grammars[followed]

    def _request(self, prompt: Prompt, settings: Settings, index: int) -> Request:
        from specplan.runtime.chat import chat_tokens
        from specplan.runtime.requests import Request

        tokens: Sequence[int]
        images = None
        if isinstance(prompt, str):
            tokens = self.tokenizer.encode(prompt)
        elif isinstance(prompt, ImagePrompt):
            text = self.tokenizer.encode(prompt.text)
            tokens, images = self.reader.read(text, prompt.images)
        else:
            tokens = chat_tokens(self.tokenizer, prompt)
        if not tokens:
            remedy = "Give a text to continue."
            raise UsageError("the prompt is empty", where=f"prompt {index + 1}", remedy=remedy)
        sampling: dict[str, Any] = {
            name: default if (value := getattr(settings, name)) is None else value
            for name, default in self.sampling.items()
        }
        return Request(
            prompt_tokens=tuple(tokens),
            max_new_tokens=settings.max_new_tokens,
            seed=settings.seed + index,
            stop_tokens=self.tokenizer.stop_tokens,
            stop_strings=settings.stop,
            grammar=self._grammar(settings),
            images=images,
            **sampling,
        )


class Decoder(TextDecoder):
    """An opened bundle.

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
        from specplan.backends.bundle_executable import load_models, open_executable
        from specplan.backends.machine import check_machine

        self.bundle = open_bundle(bundle)
        check_machine(self.bundle, device)
        self.bundle.check_models()
        executable = open_executable(self.bundle, load_models(self.bundle, device))
        workload = self.bundle.problem["workload"]
        named = {name: workload.get(name) for name in ("json_schema", "grammar")}
        target = self.bundle.model_folder("target")
        super().__init__(executable, target, workload, Followed(**named).followed)


class PlanDecoder(TextDecoder):
    """A plan without a bundle.

    Args:
        plan: it is verified here.
        checkpoints: a folder for each model that the plan runs, by the names it gives them.
        backend: name of what compiles the plan.
        certificate: of a plan that promises a bounded loss.

    Raises:
        UsageError: the plan breaks a rule, or promises what no certificate shows; no backend has
            that name, or a checkpoint is missing, superfluous or another than the plan says.
        MissingCapabilityError: torch is not installed, or the backend cannot run the plan or cannot
            run here; says which op or package.
    """

    def __init__(
        self,
        plan: Plan,
        checkpoints: Mapping[str, Path | str],
        backend: str = INTERPRETER,
        certificate: Certificate | None = None,
    ) -> None:
        require_torch()
        from specplan.backends.bundle_executable import compile_plan
        from specplan.cost_models.quality.certificate import check_certified
        from specplan.ir.files import model_digest
        from specplan.ir.rules.verify import check_plan

        folders = {name: Path(folder) for name, folder in checkpoints.items()}
        _check_roles(check_plan(plan), folders)
        if plan.assumptions.law.name == "bounded":
            digests = {name: model_digest(folder) for name, folder in folders.items()}
            check_certified(plan, certificate, digests, f"plan {plan.name}")
        executable = compile_plan(plan, folders, backend)
        super().__init__(executable, folders["target"], GREEDY)


def _check_roles(plan: Plan, folders: Mapping[str, Path]) -> None:
    """Refuse checkpoints that a plan has no use for, and a plan that lacks some.

    Raises:
        UsageError: names the models.
    """
    needed = dict.fromkeys(("target", *plan.models_run))
    own = [name for name in needed if name.startswith(MODULE_PREFIX)]  # in the target's folder
    missing = [name for name in needed if name not in folders and name not in own]
    if missing:
        raise UsageError(
            f"no checkpoint is named for {', '.join(missing)}",
            where=f"plan {plan.name}",
            remedy=f"Give the folder: --model {missing[0]}=DIR.",
        )
    others = [name for name in folders if name not in needed]
    if others:
        raise UsageError(
            f"the plan does not run a model called {', '.join(others)}",
            where=f"plan {plan.name}",
            remedy=f"It runs {', '.join(needed)}.",
        )
