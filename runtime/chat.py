"""Chat messages to prompt tokens, by the tokenizer's template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specplan.ir.errors import UsageError
from specplan.runtime.tokenizer import Tokenizer


def chat_tokens(
    tokenizer: Tokenizer,
    messages: Sequence[Mapping[str, Any]],
    *,
    continue_final: bool = False,
    **options: Any,
) -> list[int]:
    """Render messages and tokenise them; the template writes all special tokens.

    Templates are Jinja run in the sandbox of `transformers`, and come from the tokenizer's own
    files only.

    Args:
        tokenizer: with a chat template.
        messages: mappings with "role" and "content".
        continue_final: let the model continue the last message instead of answering it.
        options: passed to the template, such as `enable_thinking=False`.

    Raises:
        UsageError: there is no template, or it rejects the messages.
    """
    backend = tokenizer.backend
    where = str(getattr(backend, "name_or_path", "tokenizer"))
    if not messages:
        raise UsageError("there are no messages", where=where, remedy="Give at least one.")
    if not getattr(backend, "chat_template", None):
        raise UsageError(
            "this tokenizer has no chat template",
            where=where,
            remedy="Give a plain prompt, or a model that was made for chat.",
        )
    try:
        text = backend.apply_chat_template(
            [dict(message) for message in messages],
            tokenize=False,
            add_generation_prompt=not continue_final,
            continue_final_message=continue_final,
            **options,
        )
    except Exception as error:  # Templates raise errors of their own, of any kind.
        raise UsageError(
            f"the chat template refuses these messages ({error})",
            where=where,
            remedy="Each message needs a role and content that the template knows.",
        ) from error
    return tokenizer.encode(text, special=False)
