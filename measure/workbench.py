"""The models, tokenizer, backend and prompts of a problem, opened once for measuring."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from specplan.backends.registry import INTERPRETER, get_backend, round_backends
from specplan.ir.errors import MissingCapabilityError, NothingToCompareError, UsageError
from specplan.ir.files import name_of
from specplan.ir.plan import MODULE_PREFIX, Plan
from specplan.planner import Problem, Prompt, read_prompts
from specplan.runtime import require_torch

if TYPE_CHECKING:
    from specplan.measure.acceptance.exit_traces import ExitTraces
    from specplan.runtime.executable import Executable
    from specplan.runtime.grammar import Grammar
    from specplan.runtime.images.inputs import Images
    from specplan.runtime.images.reading import ImageReader
    from specplan.runtime.requests import Request
    from specplan.runtime.tokenizer import Tokenizer

PromptT = TypeVar("PromptT")
PROFILE, BENCH = "profile", "bench"
"""Splits of the prompts: acceptance is measured on one, speed on the other."""


@dataclass(frozen=True)
class TokenPrompt:
    """A prompt as tokens.

    Attributes:
        id: its name in the prompts file.
        tokens: the last ones, at most as many as the workload's longest prompt.
        followed: kind and text of what its output must follow, instead of the workload's.
        images: what its image tokens stand for; None for a prompt of text.
    """

    id: str
    tokens: tuple[int, ...]
    followed: tuple[str, str] | None = None
    images: Images | None = None


class Workbench:
    """The models of a problem, loaded at first use.

    Args:
        problem: with absolute paths, as from `load_problem`.

    Attributes:
        runs_by: name of the backend that runs plans: the problem's, or the interpreter if the
            problem's compiles whole rounds, whose ops cannot be timed.

    Raises:
        MissingCapabilityError: torch or transformers is not installed, or the backend cannot run.
    """

    def __init__(self, problem: Problem) -> None:
        require_torch()
        self.problem = problem
        self.runs_by = INTERPRETER if problem.backend in round_backends() else problem.backend
        self.backend = get_backend(self.runs_by)
        missing = self.backend.available()
        if missing is not None:
            raise MissingCapabilityError(missing, where=f"backend {self.runs_by}")
        self._grammars: dict[tuple[str, str] | None, Grammar] = {}
        self._vocabulary: Any = None

    @cached_property
    def models(self) -> dict[str, Any]:
        """Models by their role in plans: `target`, the names of the others, and its modules."""
        from specplan.planner import own_modules
        from specplan.runtime.models.loading import load_all

        named = self.problem.models.by_role
        folders = {role: (model.path, model.dtype) for role, model in named.items()}
        streamed = {role: model.streamed for role, model in named.items()}
        caches = {role: model.kv_format for role, model in named.items() if model.kv_format}
        return load_all(folders, own_modules(self.problem), streamed=streamed, caches=caches)

    def heads(self, name: str) -> list[Any]:
        """A head of this name; for any other name, the modules of the target."""
        if name in self.models:
            return [self.models[name]]
        return [model for role, model in self.models.items() if role.startswith(MODULE_PREFIX)]

    @property
    def drafts(self) -> tuple[str, ...]:
        """Roles of the draft models."""
        return tuple(draft.name for draft in self.problem.models.drafts)

    @cached_property
    def exit_traces(self) -> ExitTraces:
        """What the target's layers say along texts, computed once for all plans."""
        return {}

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The target's tokenizer."""
        from specplan.runtime.tokenizer import load_tokenizer

        return load_tokenizer(self.problem.models.target.path)

    @cached_property
    def reader(self) -> ImageReader:
        """The target's image processor."""
        from specplan.runtime.images.reading import ImageReader

        return ImageReader(self.problem.models.target.path)

    @property
    def output_tokens(self) -> int:
        """Tokens to emit per prompt while measuring; 128 for a trace."""
        return self.problem.workload.output_tokens or 128

    @property
    def prompt_tokens(self) -> int:
        """Most tokens of a prompt while measuring; 256 for a trace."""
        return max(self.problem.workload.lengths, default=256)

    def compile(self, plan: Plan) -> Executable:
        """An executable of a plan over these models."""
        models = {name: self.models[name] for name in plan.models_run}
        executable: Executable = self.backend.compile(plan, models)
        return executable

    def grammar(self, prompt: TokenPrompt) -> Grammar | None:
        """What the output after a prompt must follow: its own grammar, or else the workload's."""
        from specplan.runtime.grammar import Grammar, vocabulary_of

        followed = prompt.followed or self.problem.workload.followed
        if followed is not None and followed not in self._grammars:
            self._vocabulary = self._vocabulary or vocabulary_of(self.tokenizer)
            self._grammars[followed] = Grammar(*followed, self._vocabulary)
        return self._grammars.get(followed)

    def request(self, prompt: TokenPrompt, seed: int, **options: Any) -> Request:
        """A request at the workload's sampling settings, for `output_tokens` unless told otherwise.

        Args:
            prompt: its tokens, and what its output follows.
            seed: of its sampling.
            options: further settings of `Request`.
        """
        from specplan.runtime.requests import Request

        workload = self.problem.workload
        settings = {
            "max_new_tokens": self.output_tokens,
            "temperature": workload.temperature,
            "top_k": workload.top_k,
            "top_p": workload.top_p,
            "grammar": self.grammar(prompt),
            "images": prompt.images,
        }
        return Request(prompt_tokens=prompt.tokens, seed=seed, **(settings | options))

    def prompts(self, split: str) -> list[TokenPrompt]:
        """The workload's prompts of its task and of a split, as tokens; see `chosen_prompts`.

        Raises:
            UsageError: no prompts are given, or none is left.
        """
        return [self.token_prompt(prompt) for prompt in chosen_prompts(self.problem, split)]

    def token_prompt(self, prompt: Prompt) -> TokenPrompt:
        """A prompt's last tokens; one with images is taken whole."""
        tokens = self.tokenizer.encode(prompt.text)
        if prompt.images:
            wide, images = self.reader.read(tokens, prompt.images)
            return TokenPrompt(prompt.id, wide, prompt.followed, images)
        return TokenPrompt(prompt.id, tuple(tokens[-self.prompt_tokens :]), prompt.followed)

    def fingerprint(self, *more: Any) -> str:
        """Name for a stored measurement: changes when models, dtypes or backend do."""
        parts = [
            self.runs_by,
            {name: [model.digest, str(model.dtype)] for name, model in self.models.items()},
            *more,
        ]
        return name_of(json.dumps(parts, sort_keys=True, default=str))


def chosen_prompts(problem: Problem, split: str) -> list[Prompt]:
    """The prompts of a problem's task and of a split.

    If the file marks no splits, every other prompt belongs to each.

    Raises:
        UsageError: no prompts are given, or none is left.
    """
    path, task = problem.workload.prompts, problem.workload.task
    if path is None:
        raise UsageError(
            "measuring needs prompts",
            where="workload.prompts",
            remedy="Name a JSON Lines file with one text per line.",
        )
    every = [p for p in read_prompts(path) if not task or p.task in ("", task)]
    chosen = _split(every, split)
    if not chosen:
        raise UsageError(
            f'no prompt of task "{task}" is in the split "{split}"',
            where=f"workload.prompts ({path})",
            remedy="Give more prompts, or leave workload.task out.",
        )
    return chosen


def groups_of(prompts: Sequence[PromptT], batch: int) -> list[Sequence[PromptT]]:
    """Whole batches of prompts, in their order.

    Raises:
        NothingToCompareError: there are fewer prompts than `batch`.
    """
    groups = [prompts[i : i + batch] for i in range(0, len(prompts) - batch + 1, batch)]
    if not groups:
        raise NothingToCompareError(
            f"{len(prompts)} prompts do not fill a batch of {batch}",
            where="workload.prompts",
            remedy="Give more prompts, or bench a smaller batch.",
        )
    return groups


def _split(prompts: Sequence[Prompt], split: str) -> list[Prompt]:
    if any(prompt.split for prompt in prompts):
        return [prompt for prompt in prompts if prompt.split == split]
    return list(prompts[0 if split == PROFILE else 1 :: 2])
