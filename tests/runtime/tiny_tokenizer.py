"""A byte-level BPE tokenizer of 40 entries, small enough to cut characters in pieces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from specplan.ir.files import write_json_atomic

TEXT = "def add(a, b): return a + b # żółw € 🐢"
TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def save_tokenizer(folder: Path, *, template: str | None = None, stops: Any = None) -> Path:
    """Save tokenizer.json, tokenizer_config.json and, with `stops`, generation_config.json."""
    alphabet = pre_tokenizers.ByteLevel(add_prefix_space=False)
    shown = "".join(piece for piece, _ in alphabet.pre_tokenize_str(TEXT + "<assistantuser>hi"))
    symbols = sorted(set(shown))
    merges = [("d", "e"), ("de", "f"), ("r", "e"), ("re", "t"), ("Ġ", "a"), ("Ġ", "b")]
    vocabulary = ["<|end|>", *symbols, *(left + right for left, right in merges)]
    tokenizer = Tokenizer(
        models.BPE({token: index for index, token in enumerate(vocabulary)}, merges)
    )
    tokenizer.pre_tokenizer = alphabet
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>")
    fast.chat_template = template
    fast.save_pretrained(folder)
    if stops is not None:
        write_json_atomic(folder / "generation_config.json", {"eos_token_id": stops})
    return folder
