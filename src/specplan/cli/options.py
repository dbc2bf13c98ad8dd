"""Arguments and options that several commands share, the flags that describe a problem first."""

from __future__ import annotations

import functools
import inspect
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specplan.ir.errors import UsageError

if TYPE_CHECKING:
    from specplan.planner.problem.schema import Problem

LimitOption = Annotated[int | None, typer.Option(min=1, help="Maximum number of prompts.")]
PromptsOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Prompts in JSON Lines, instead of the problem's."),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document, and nothing else, on stdout.")
]
ProblemArgument = Annotated[
    Path, typer.Argument(metavar="PROBLEM.yaml", help="The problem file.", show_default=False)
]
BundleArgument = Annotated[
    Path,
    typer.Argument(
        metavar="DIR", help="A bundle that `specplan optimize` wrote.", show_default=False
    ),
]
PlanArgument = Annotated[
    Path, typer.Argument(metavar="PLAN.txt", help="A plan text.", show_default=False)
]


@dataclass(frozen=True)
class ProblemSource:
    """What a user gave a command as its problem: a file, flags, or a file that flags change.

    Attributes:
        path: a problem file, or a bundle where the command takes one; None for flags alone.
        short: the values of the flags by the words of the short form.
        settings: what `--set` sets, as `key=value`.
    """

    path: Path | None
    short: Mapping[str, Any] = field(default_factory=dict)
    settings: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is neither a path nor a flag."""
        return self.path is None and not self.changed

    @property
    def changed(self) -> bool:
        """Whether flags describe the problem, or change that of the file."""
        return bool(self.short or self.settings)

    def problem(self) -> Problem | Path:
        """The path of an unchanged file, or the checked problem that the flags describe.

        Raises:
            UsageError: there is no problem, or it is broken.
            InfeasibleError: a limit cannot be met by any plan.
        """
        if self.path is not None and not self.changed:
            return self.path
        from specplan.planner.problem.loading import problem_from_flags

        if self.empty:
            raise UsageError(
                "no problem is given",
                remedy="Give a problem file (`specplan init` writes one), or flags: --target DIR "
                "--device 8xh100-sxm --batch 1,16 --prompt 1024 --output 512",
            )
        if self.path is not None and self.path.is_dir():
            raise UsageError(
                "the plan of a bundle was made for the bundle's own problem",
                where=str(self.path),
                remedy="Leave the flags out, or give the problem file instead of the bundle.",
            )
        return problem_from_flags(self.path, self.short, self.settings)

    def __str__(self) -> str:
        """The words of a command line that describe the same problem."""
        from specplan.planner.problem.errors import flag_of

        words = [] if self.path is None else [str(self.path)]
        for word, value in self.short.items():
            for one in _texts(value):
                words += [flag_of(word), one]
        for setting in self.settings:
            words += ["--set", setting]
        return shlex.join(word.replace(f"{Path.cwd()}/", "") for word in words)


def _texts(value: Any) -> list[str]:
    """The value of a flag as it was written; several for a flag that is repeated."""
    if isinstance(value, Mapping):
        return [f"{name}={one}" for name, one in value.items()]
    if isinstance(value, list | tuple):
        return [",".join(map(str, value))]
    return [str(value)]


def takes_problem(
    metavar: str = "PROBLEM.yaml", help: str = "A problem file; flags alone suffice."
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command a problem argument and the flags that describe or change a problem.

    The command's first parameter becomes the problem: it is called with a `ProblemSource`. A flag
    whose name is a parameter of the command's own stays the command's.

    Args:
        metavar: what the argument is called in the help.
        help: what it says there.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        first, *others = signature.parameters.values()
        own = {parameter.name for parameter in others}
        argument = typer.Argument(metavar=metavar, help=help, show_default=False)
        added = [
            _parameter("path", Annotated[Path | None, argument]),
            *(_parameter(name, kind) for name, kind in _FLAGS.items() if name not in own),
        ]

        @functools.wraps(command)
        def run(**values: Any) -> None:
            given = {name: values.pop(name, None) for name in [one.name for one in added]}
            command(**{first.name: _source(**given)}, **values)

        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters = [*added, *(one.replace(kind=keyword) for one in others)]
        run.__dict__["__signature__"] = signature.replace(parameters=parameters)
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        del run.__dict__["__wrapped__"]
        return run

    return decorate


def _parameter(name: str, annotation: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=None, annotation=annotation)


def _devices(incomplete: str) -> list[str]:
    """Devices for shell completion, with the number of them that was typed."""
    from specplan.cost_models.devices.device import list_devices, one_device

    begun = f"{incomplete}-"  # so that there is a name, also after `8x` alone
    count = begun.removesuffix(one_device(begun))
    return [f"{count}{name}" for name in list_devices()]


def _backends(incomplete: str) -> list[str]:
    from specplan.planner.problem.setting_checks import known_backends, known_engines

    return [*known_backends(), *known_engines()]


def _flag(kind: Any, name: str, metavar: str, help: str, **further: Any) -> Any:
    option = typer.Option(name, metavar=metavar, help=help, rich_help_panel="Problem", **further)
    return Annotated[kind, option]


_FLAGS: dict[str, Any] = {
    "target": _flag(
        str | None, "--target", "PATH", "The target model: a folder, or a Hugging Face id."
    ),
    "draft": _flag(
        list[str] | None, "--draft", "NAME=PATH", "A draft model or drafter; may be repeated."
    ),
    "device": _flag(
        str | None, "--device", "NAME", "Hardware, such as 8xh100-sxm.", autocompletion=_devices
    ),
    "backend": _flag(
        str | None,
        "--backend",
        "NAME",
        "Backend or engine that runs the plan, such as vllm; one or several.",
        autocompletion=_backends,
    ),
    "batch": _flag(str | None, "--batch", "N,...", "Batch sizes, such as 1,16,64."),
    "prompt": _flag(str | None, "--prompt", "N,...", "Tokens per prompt; one length or several."),
    "output": _flag(int | None, "--output", "N", "Tokens per output."),
    "cached_prefix": _flag(
        int | None, "--cached-prefix", "N", "First tokens of every prompt that need no prefill."
    ),
    "acceptance": _flag(
        list[str] | None,
        "--acceptance",
        "NAME=VALUE",
        "Acceptance of a drafter: eagle=0.75, eagle=prior, or a profile or log; may be repeated. "
        "prior alone: published figures for every drafter.",
    ),
    "objective": _flag(
        str | None, "--objective", "NAME", "Goal: latency, tpot, throughput or goodput."
    ),
    "tpot": _flag(
        str | None, "--tpot", "TIME", "Limit on the time per output token, such as 20ms."
    ),
    "ttft": _flag(str | None, "--ttft", "TIME", "Limit on the time to first token, such as 500ms."),
    "settings": _flag(
        list[str] | None,
        "--set",
        "KEY=VALUE",
        "Any other key, such as workload.temperature=0.7; may be repeated.",
    ),
}


def _source(path: Path | None, **given: Any) -> ProblemSource:
    """What the arguments describe; None and what is not there leave a key as it is."""
    target, settings = given.pop("target", None), given.pop("settings", None)
    short: dict[str, Any] = {
        "target": None if target is None else _here(target),
        "drafts": _named(given.pop("draft", None), "--draft", "eagle=models/eagle3", _here),
        "acceptance": _acceptance(given.pop("acceptance", None)),
        "device": given.pop("device", None),
        "backend": _one_or_several(given.pop("backend", None)),
        "batch": _numbers(given.pop("batch", None), "--batch"),
        "prompt": _numbers(given.pop("prompt", None), "--prompt"),
        **given,
    }
    known = {word: value for word, value in short.items() if value is not None}
    return ProblemSource(path, known, tuple(settings or ()))


def _named(
    texts: list[str] | None, flag: str, example: str, read: Callable[[str], Any]
) -> dict[str, Any] | None:
    """`NAME=VALUE` of a flag that is repeated, by name; values as `read` reads them."""
    if not texts:
        return None
    named: dict[str, Any] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if not name or not value or name in named:
            wrong = f'it gives no value for "{name}"' if name else "it names no drafter"
            raise UsageError(
                f'the name "{name}" is given twice' if name in named else wrong,
                where=f"{flag} {text}",
                remedy=f"Write {flag} NAME=VALUE once for each, such as {flag} {example}",
            )
        named[name] = read(value)
    return named


def _acceptance(texts: list[str] | None) -> dict[str, Any] | str | None:
    """`NAME=VALUE` by name, or the word `prior` for all drafters."""
    from specplan.planner.problem.acceptance import PRIOR

    if texts == [PRIOR]:
        return PRIOR
    return _named(texts, "--acceptance", "eagle=0.75", _stated_acceptance)


def _stated_acceptance(text: str) -> Any:
    """A number, rates, a mean length or `prior` as YAML has them; any other text is a path."""
    from specplan.planner.problem.acceptance import PRIOR, written_acceptance

    value = written_acceptance(text)
    return _here(value) if value == text and text != PRIOR else value


def _here(text: str) -> str:
    """A path of the command line, absolute; a Hugging Face id and a word stay as they are."""
    from specplan.planner.problem.paths import expanded, is_model_id

    path = expanded(text)
    return text if is_model_id(text) and not path.exists() else str(path.absolute())


def _one_or_several(text: str | None) -> str | list[str] | None:
    return text.split(",") if text and "," in text else text


def _numbers(text: str | None, flag: str) -> list[int] | None:
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() for word in words):
        raise UsageError(
            f'must be whole numbers with commas between them, got "{text}"',
            where=flag,
            remedy=f"Write {flag} 1,16,64",
        )
    return [int(word) for word in words]
