"""Turns of llama.cpp by its Python package; runs in its environment.

Plain decoding and lookups by the package's own classes; drafts of a model by its C interface, as
the package has no class for them. Models are written as GGUF from the float32 checkpoints.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import gguf
import llama_cpp
import numpy as np
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding
from safetensors.numpy import load_file

from peer_workers.gguf_files import add_sizes, add_tokenizer, finish, in_turn, renamed
from peer_workers.protocol import Job, Run, Setting, serve

ROOM = 1024
"""Tokens of a context."""
KINDS = {
    "f32": (gguf.GGMLQuantizationType.F32, gguf.LlamaFileType.ALL_F32),
    "f16": (gguf.GGMLQuantizationType.F16, gguf.LlamaFileType.MOSTLY_F16),
    "bf16": (gguf.GGMLQuantizationType.BF16, gguf.LlamaFileType.MOSTLY_BF16),
    "int8": (gguf.GGMLQuantizationType.Q8_0, gguf.LlamaFileType.MOSTLY_Q8_0),
    "int4": (gguf.GGMLQuantizationType.Q4_0, gguf.LlamaFileType.MOSTLY_Q4_0),
}


def converted(job: Job, name: str, dtype: str) -> str:
    """A Llama checkpoint as GGUF."""
    path: Path = job.work / "llama_cpp" / f"{name}-{dtype}.gguf"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_gguf(job.work / "hf" / name, path, dtype)
    return str(path)


def write_gguf(source: Path, path: Path, dtype: str) -> None:
    config = json.loads((source / "config.json").read_text())
    kind, file_type = KINDS[dtype]
    writer = gguf.GGUFWriter(path, "llama")
    add_sizes(writer, config)
    writer.add_file_type(file_type)
    add_tokenizer(writer, source, config["vocab_size"])
    for name, tensor in load_file(source / "model.safetensors").items():
        rows = np.ascontiguousarray(in_turn(name, tensor.astype(np.float32), config))
        if rows.ndim == 1 or dtype == "f32":
            writer.add_tensor(renamed(name), rows)
        else:
            writer.add_tensor(renamed(name), gguf.quants.quantize(rows, kind), raw_dtype=kind)
    finish(writer)


class Context:
    """A model and one text, over the C interface."""

    def __init__(self, path: str, job: Job, dtype: str) -> None:
        options = llama_cpp.llama_model_default_params()
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), options)
        how = llama_cpp.llama_context_default_params()
        how.n_ctx = how.n_batch = how.n_ubatch = ROOM
        how.n_threads = how.n_threads_batch = job.threads
        if dtype == "f32":
            how.type_k = how.type_v = llama_cpp.GGML_TYPE_F32
        self.context = llama_cpp.llama_init_from_model(self.model, how)
        self.memory = llama_cpp.llama_get_memory(self.context)
        self.batch = llama_cpp.llama_batch_init(ROOM, 0, 1)
        vocabulary = llama_cpp.llama_model_get_vocab(self.model)
        self.tokens = llama_cpp.llama_vocab_n_tokens(vocabulary)
        self.text: list[int] = []

    def keep(self, text: list[int]) -> list[int]:
        """Drop what is not the beginning of a text; what of the text is still to run, if any."""
        same = 0
        while same < min(len(self.text), len(text) - 1) and self.text[same] == text[same]:
            same += 1
        llama_cpp.llama_memory_seq_rm(self.memory, 0, same, -1)
        self.text = self.text[:same]
        return text[same:]

    def feed(self, tokens: list[int], last: int) -> list[int]:
        """Run tokens; the likeliest after each of the last ones."""
        batch = self.batch
        for place, token in enumerate(tokens):
            batch.token[place], batch.pos[place] = token, len(self.text) + place
            batch.n_seq_id[place], batch.seq_id[place][0] = 1, 0
            batch.logits[place] = place >= len(tokens) - last
        batch.n_tokens = len(tokens)
        if llama_cpp.llama_decode(self.context, batch):
            raise RuntimeError("llama_decode failed")
        self.text += tokens
        rows = llama_cpp.llama_get_logits(self.context)
        logits = np.ctypeslib.as_array(rows, shape=(last, self.tokens))
        return [int(one) for one in logits.argmax(1)]


def drafted(job: Job, setting: Setting) -> Run:
    """A draft model proposes a chain, the target checks it."""
    target = Context(converted(job, "target", setting.dtype), job, setting.dtype)
    draft = Context(converted(job, "draft", setting.dtype), job, setting.dtype)

    def run(prompt: list[int]) -> Iterator[int]:
        target.keep(prompt[:1])
        text = [*prompt, *target.feed(target.keep(prompt), 1)]
        yield text[-1]
        while len(text) < len(prompt) + job.count:
            chain = draft.feed(draft.keep(text), 1)
            while len(chain) < setting.length:
                chain += draft.feed(chain[-1:], 1)
            best = target.feed([*target.keep(text), *chain], len(chain) + 1)
            accepted = 0
            while accepted < len(chain) and chain[accepted] == best[accepted]:
                accepted += 1
            emitted = [*chain[:accepted], best[accepted]]
            text += emitted
            yield from emitted

    return run


def prepare(job: Job, setting: Setting) -> Run:
    if setting.kind == "draft":
        return drafted(job, setting)
    if setting.kind == "tree":
        raise ValueError("llama.cpp's Python package has no trees")
    lookup = None
    if setting.kind == "lookup":
        lookup = LlamaPromptLookupDecoding(setting.ngram, setting.length)
    cache = {"type_k": 0, "type_v": 0} if setting.dtype == "f32" else {}
    model = llama_cpp.Llama(
        converted(job, "target", setting.dtype),
        n_ctx=ROOM,
        n_threads=job.threads,
        n_threads_batch=job.threads,
        verbose=False,
        draft_model=lookup,
        logits_all=lookup is not None,
        **cache,
    )

    def run(prompt: list[int]) -> Iterator[int]:
        model.reset()
        greedy = {"temp": 0.0, "top_k": 1, "repeat_penalty": 1.0}
        for number, token in enumerate(model.generate(prompt, **greedy)):
            yield token
            if number + 1 == job.count:
                return

    return run


serve(llama_cpp.__version__, prepare)
