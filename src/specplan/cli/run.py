"""`specplan run`: generate with a bundle, or with a plan text."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specplan.cli.options import JsonOption
from specplan.cli.output import print_json
from specplan.cli.planned import ModelOption, PlannedArgument, checkpoints, read_plan
from specplan.cli.screen.stream import Stream
from specplan.ir.errors import UsageError
from specplan.ir.files import read_text

if TYPE_CHECKING:
    from specplan.bundles.decoder import Prompt, TextDecoder
    from specplan.runtime.generate import Generation

_AS_PROBLEM = "Default: as in the bundle's problem, {} for a plan text."


PromptOption = Annotated[
    list[str] | None,
    typer.Option(
        "--prompt", metavar="TEXT", help="A text to continue; may be repeated, for a batch."
    ),
]
PromptFileOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--prompt-file", metavar="F", help="A file to continue; - is stdin; may be repeated."
    ),
]
StopOption = Annotated[
    list[str] | None,
    typer.Option("--stop", metavar="TEXT", help="Stop before this text; may be repeated."),
]
SchemaOption = Annotated[
    Path | None, typer.Option(metavar="F", help="A JSON schema that every text follows.")
]
GrammarOption = Annotated[
    Path | None,
    typer.Option(metavar="F", help="A grammar in Lark's notation that every text follows."),
]
ImageOption = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE",
        help="An image of the prompt, which holds the image token where it stands; repeatable. "
        "With several prompts, one for each.",
    ),
]
BackendOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="With a plan text: the backend that runs it; default: the interpreter."
    ),
]


def run(
    source: PlannedArgument,
    prompt: PromptOption = None,
    prompt_file: PromptFileOption = None,
    max_new_tokens: Annotated[
        int, typer.Option(min=0, help="Maximum number of new tokens per prompt.")
    ] = 128,
    temperature: Annotated[
        float | None, typer.Option(min=0.0, help=f"0 is greedy. {_AS_PROBLEM.format(0)}")
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(min=0, help=f"0 is off. {_AS_PROBLEM.format(0)}")
    ] = None,
    top_p: Annotated[float | None, typer.Option(help=f"1 is off. {_AS_PROBLEM.format(1)}")] = None,
    seed: Annotated[
        int, typer.Option(help="Seed of the first prompt; each further prompt adds 1.")
    ] = 0,
    stop: StopOption = None,
    chat: Annotated[
        bool, typer.Option("--chat", help="Each prompt is a user's message to a chat model.")
    ] = False,
    image: ImageOption = None,
    json_schema: SchemaOption = None,
    grammar: GrammarOption = None,
    stream: Annotated[
        bool, typer.Option("--stream", help="Print text as it is generated (one prompt only).")
    ] = False,
    model: ModelOption = None,
    backend: BackendOption = None,
    json: JsonOption = False,
) -> None:
    """Continue one or more prompts with a bundle's plan, or with a plan text."""
    texts = [*(prompt or ()), *map(_read, prompt_file or ())]
    _check(texts, stream=stream and not json)
    from specplan.bundles.decoder import Settings

    settings = Settings(
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        stop=tuple(stop or ()),
        followed=_followed(json_schema, grammar),
    )
    prompts = _prompts(texts, image or (), chat=chat)
    decoder = _decoder(source, model or (), backend)
    shown = Stream() if stream and not json else None
    if shown is not None:
        shown.begin(texts[0])
    result = decoder.generate(prompts, settings, on_tokens=None if shown is None else shown.step)
    if json:
        print_json(_document(texts, result))
        return
    if shown is not None:
        shown.end()
    else:
        _print_texts(result)
    print(_summary(result), file=sys.stderr)


def _decoder(source: Path, models: Sequence[str], backend: str | None) -> TextDecoder:
    """The decoder of a plan text with its checkpoints, or of a bundle."""
    from specplan.backends.registry import INTERPRETER
    from specplan.bundles.decoder import Decoder, PlanDecoder
    from specplan.quality.calibrating import certificate_beside

    if source.is_file():
        certified = certificate_beside(source)
        name = backend or INTERPRETER
        return PlanDecoder(read_plan(source), checkpoints(models), name, certified)
    if models or backend is not None:
        raise UsageError(
            "a bundle has its own checkpoints and backend",
            where="--model" if models else "--backend",
            remedy="Leave it out, or give a plan text instead of the bundle.",
        )
    return Decoder(source)


def _followed(json_schema: Path | None, grammar: Path | None) -> tuple[str, str] | None:
    """Kind and text of what texts must follow."""
    if json_schema is not None and grammar is not None:
        raise UsageError(
            "--json-schema and --grammar cannot be combined", where="--grammar", remedy="Give one."
        )
    if json_schema is not None:
        return "json_schema", read_text(json_schema, "JSON schema")
    return None if grammar is None else ("lark", read_text(grammar, "grammar"))


def _prompts(texts: Sequence[str], images: Sequence[Path], *, chat: bool) -> list[Prompt]:
    """Texts, messages, one prompt with all images, or several with one each."""
    from specplan.bundles.decoder import ImagePrompt

    if not images:
        return [[{"role": "user", "content": text}] if chat else text for text in texts]
    if chat or len(texts) not in (1, len(images)):
        raise UsageError(
            "images stand in messages of a chat"
            if chat
            else f"there are {len(images)} images for {len(texts)} prompts",
            where="--image",
            remedy="Give one prompt with all images, or an image for each prompt, without --chat.",
        )
    groups = [tuple(images)] if len(texts) == 1 else [(one,) for one in images]
    return [ImagePrompt(text, files) for text, files in zip(texts, groups, strict=True)]


def _read(path: Path) -> str:
    if str(path) == "-":
        return sys.stdin.read()
    return read_text(path, "prompt file")


def _check(texts: Sequence[str], *, stream: bool) -> None:
    if not texts:
        raise UsageError(
            "no prompt is given",
            where="specplan run",
            remedy="Give one with --prompt TEXT or --prompt-file FILE.",
        )
    if stream and len(texts) > 1:
        raise UsageError(
            f"{len(texts)} texts cannot be streamed at once",
            where="--stream",
            remedy="Give one prompt, or leave --stream out.",
        )


def _print_texts(result: Generation) -> None:
    """One text as it is; several under headings."""
    for number, completion in enumerate(result.completions, start=1):
        if len(result.completions) > 1:
            print(f"--- {number} ---")
        print(completion.text)


def _summary(result: Generation) -> str:
    return (
        f"{result.emitted} tokens, {result.decode_tokens_per_second:.1f} tokens/s while decoding, "
        f"{result.tokens_per_round:.2f} tokens per step"
    )


def _document(texts: Sequence[str], result: Generation) -> dict[str, Any]:
    """The outcome as JSON data; times in seconds."""
    return {
        "completions": [
            {
                "prompt": text,
                "text": completion.text,
                "tokens": list(completion.tokens),
                "finish_reason": completion.finish_reason,
                "rounds": completion.rounds,
                "tokens_per_round": completion.tokens_per_round,
            }
            for text, completion in zip(texts, result.completions, strict=True)
        ],
        "rounds": result.rounds_by_name,
        "prefill_seconds": result.prefill_seconds,
        "decode_seconds": result.decode_seconds,
        "decode_tokens_per_second": result.decode_tokens_per_second,
        "tokens_per_round": result.tokens_per_round,
    }
