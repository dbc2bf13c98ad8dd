"""How many tokens an EAGLE-3 head should draft from: by price, and as measured.

    python benchmarks/vocabulary.py [--work DIR] [--large tokenizer.model]
    python benchmarks/vocabulary.py --timed [--prompts 12] [--repeats 2] [--backend onnxruntime]
    python benchmarks/vocabulary.py --page

The shipped EAGLE-3 head of the reference target knows all of its 3,072 tokens. The first command
prices smaller vocabularies as `specplan train --stage vocabulary` does, before anything is trained;
then it leaves rows of the head's LM head out, all but the most frequent tokens of Python's library,
and counts what these heads accept of the target's greedy texts after held-out prompts. The planner
prices that again. No time is measured. With `--large`, the tokenizer of Llama 3 (tokenizer.model of
the package llama-models; needs tiktoken), it prices a head for Llama-3.1-8B on an H100 alike: all
of 128,256 tokens, 32,000 as published heads have, and the halves.

The second command, on an idle machine, runs chains of the same heads in turns. Both write
benchmarks/results/vocabulary.json, which the third puts into docs/train.md.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reference_problem import ROOT, pair_problem, pieces_of_python
from reporting import every, write_between

from specplan.ir.files import read_json, write_json_atomic

if TYPE_CHECKING:
    from specplan.measure.bench.contenders import Outcome

RESULTS = ROOT / "benchmarks/results/vocabulary.json"
PAGE = ROOT / "docs/train.md"
START, END = "<!-- vocabulary:start -->\n", "<!-- vocabulary:end -->"
PIECES = 100_000
tell = every(10)
HEAD = ROOT / "examples/reference_models/heads/eagle3"
TEXTS = 120
"""Held-out prompts."""
CHAINS = (2, 3, 4)
TIMED = 768
"""The smallest vocabulary whose chains are run."""
OUTPUT_TOKENS = 96
LLAMA_8B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
    "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256, "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0, "max_position_embeddings": 131072, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}  # fmt: skip
PUBLISHED = 32_000
"""Tokens of published EAGLE-3 heads of Llama 3."""
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How Llama 3 splits texts (llama_models/llama3/tokenizer.py)."""


def problem_of(work: Path, heads: Mapping[int, Path] | None = None) -> dict[str, Any]:
    """Greedy code on the reference target, priced by a data sheet."""
    drafts = {f"v{tokens}": path for tokens, path in (heads or {}).items()}
    return pair_problem(work, drafts, "code", OUTPUT_TOKENS)


def counted(work: Path) -> dict[str, Any]:
    """Vocabularies by price, what heads with each of them accept, and the price of that."""
    from specplan.gathering import gather
    from specplan.measure.workbench import BENCH, Workbench
    from specplan.planner import load_problem
    from specplan.runtime.models.heads.loading import load_head
    from specplan.training.evaluating import (
        evaluation,
        planned_speed,
        unseen_texts,
        with_drafter,
    )
    from specplan.training.train import size_vocabulary

    texts = pieces_of_python(work, PIECES)
    write_json_atomic(work / "problem.json", problem_of(work))
    priced = size_vocabulary(work / "problem.json", "eagle3", prompts=texts, answers=False)
    problem = load_problem(work / "problem.json")
    bench = Workbench(problem)
    heads = restricted(work, [one.tokens for one in priced])
    unseen, rows = unseen_texts(bench, tell, TEXTS, BENCH), []
    emitted = Counter(token for text in unseen for token in text.output)
    for one in sorted(priced, key=lambda one: -one.tokens):
        folder = heads[one.tokens]
        tell(f"{one.tokens} tokens", 0, 1)
        head = load_head(folder, bench.models["target"])
        seen = evaluation(head, unseen, 0)
        speed = planned_speed(gather(with_drafter(problem, "eagle3", folder), tell), "eagle3")
        known = head.outputs.tokens
        inside = emitted if known is None else {t: emitted[t] for t in known.tolist()}
        rows.append(
            {
                "tokens": one.tokens,
                "coverage": one.coverage,
                "covers_unseen": sum(inside.values()) / emitted.total(),
                "planned": one.gain,
                "rates": [float(rate) for rate in seen.rates.round(4)],
                "planned_from_measured": speed(seen.hazards(seen.rates)),
            }
        )
    return {"rows": rows, "texts": len(unseen), "chosen": priced[0].tokens}


def restricted(work: Path, sizes: Sequence[int]) -> dict[int, Path]:
    """The shipped head with the most frequent tokens of Python's library, in SpecForge's form."""
    import torch
    from safetensors.torch import load_file, save_file

    from specplan.runtime.tokenizer import load_tokenizer

    encode = load_tokenizer(HEAD.parents[1] / "target").encode
    texts = (encode(json.loads(line)["text"]) for line in pieces_of_python(work, PIECES).open())
    counts = Counter(token for text in texts for token in text)
    tensors, config = load_file(HEAD / "model.safetensors"), read_json(HEAD / "config.json", "head")
    entries, folders = int(config["vocab_size"]), dict[int, Path]()
    ranked = sorted(range(entries), key=lambda token: (-counts[token], token))
    for size in sizes:
        folder = folders[size] = work / f"heads/v{size}"
        folder.mkdir(parents=True, exist_ok=True)
        known = torch.tensor(sorted(ranked[:size]))
        own = tensors | {"lm_head.weight": tensors["lm_head.weight"][known].contiguous()}
        if size < entries:
            own["d2t"] = known - torch.arange(size)
            own["t2d"] = torch.zeros(entries, dtype=torch.bool).index_fill(0, known, True)
        save_file(own, folder / "model.safetensors")
        write_json_atomic(folder / "config.json", {**config, "draft_vocab_size": size})
    return folders


def large(work: Path, tokenizer: Path) -> list[dict[str, Any]]:
    """A head for Llama-3.1-8B, priced by coverage of its own tokens in the same texts."""
    tiktoken: Any = import_module("tiktoken")
    ranks = import_module("tiktoken.load").load_tiktoken_bpe(str(tokenizer))

    from specplan.gathering import gather
    from specplan.planner.training.vocabulary import coverage, priced_vocabularies
    from specplan.problems import as_problem

    words = tiktoken.Encoding("llama3", pat_str=WORDS, mergeable_ranks=ranks, special_tokens={})
    texts = [
        words.encode_ordinary(json.loads(line)["text"])
        for line in pieces_of_python(work, PIECES).open()
    ]
    shares = coverage(texts[::2], texts[1::2], LLAMA_8B["vocab_size"])
    (work / "llama-8b").mkdir(parents=True, exist_ok=True)
    write_json_atomic(work / "llama-8b/config.json", LLAMA_8B)
    described = {
        **problem_of(work), "models": {"target": {"path": str(work / "llama-8b")}},
        "device": "h100-sxm", "backend": "none",
        "workload": {"batch_sizes": [1], "prompt_tokens": 512, "output_tokens": 256,
                     "temperature": 0, "task": "code"},
    }  # fmt: skip
    facts = gather(as_problem(described), tell)
    sizes = [LLAMA_8B["vocab_size"] >> halves for halves in range(7)]
    priced = priced_vocabularies(facts, "eagle3", shares, sizes=[*sizes, PUBLISHED])
    return [one.as_dict() for one in sorted(priced, key=lambda one: -one.tokens)]


def timed(work: Path, data: dict[str, Any], asked: argparse.Namespace) -> dict[str, Any]:
    """The rows with the speed of the fastest chain of each head, all in turns with no drafting."""
    from contests import in_random_turns

    from specplan.gathering import open_bench
    from specplan.measure.bench.contenders import compiled_timer
    from specplan.measure.device.probes import plain_plan
    from specplan.measure.machine import hardware_name, versions
    from specplan.measure.workbench import BENCH
    from specplan.planner import load_problem
    from specplan.planner.methods.eagle3 import METHOD
    from specplan.planner.templates.head_drafts import HeadTreeOptions
    from specplan.planner.trees import chain

    sizes = [row["tokens"] for row in data["rows"] if row["tokens"] >= TIMED]
    write_json_atomic(work / "timed.json", problem_of(work, restricted(work, sizes)))
    bench, facts = open_bench(load_problem(work / "timed.json"))
    prompts = bench.prompts(BENCH)[: asked.prompts]
    loads = [(1, max(len(one.tokens) for one in prompts))]
    plans = {(0, 0): plain_plan(True)} | {
        (size, length): METHOD.written(
            facts, HeadTreeOptions(f"v{size}", chain(length).parents, chain(length).ranks)
        )
        for size in sizes
        for length in CHAINS
    }
    ready = {key: compiled_timer(bench, asked.backend, loads, plan) for key, plan in plans.items()}
    runs = in_random_turns(ready, prompts, asked.repeats)
    fast = {key: speed_of(own) for key, own in runs.items()}
    rows = []
    for row in data["rows"]:
        own = {length: fast[key] for length in CHAINS if (key := (row["tokens"], length)) in fast}
        length = max(own, key=own.__getitem__, default=0)
        more = {"chain": length, "tokens_per_second": own[length]} if own else {}
        rows.append(row | more | ({"over_plain": own[length] / fast[0, 0]} if own else {}))
    about = {
        "date": date.today().isoformat(), "backend": asked.backend, "prompts": len(prompts),
        "repeats": asked.repeats, "hardware": hardware_name(bench.models["target"].device),
        "versions": versions(),
    }  # fmt: skip
    return {**data, "rows": rows, "timed": about}


def speed_of(runs: Sequence[Outcome]) -> float:
    """Tokens per second of whole requests."""
    return sum(len(run.outputs[0]) for run in runs) / sum(run.seconds for run in runs)


def section(data: Mapping[str, Any]) -> str:
    """The results as a part of docs/train.md."""
    lines = [
        "| tokens | of later texts | planned before training | accepted 1, 2, 3 | planned then | "
        "measured |",
        "|---:|---:|---:|---|---:|---:|",
    ]
    for row in data["rows"]:
        rates = ", ".join(f"{rate:.3f}" for rate in row["rates"][:3])
        measured = f"{row['over_plain']:.2f}x (K={row['chain']})" if "chain" in row else "-"
        lines.append(
            f"| {row['tokens']:,} | {100 * row['coverage']:.1f} % | {row['planned']:.3f}x "
            f"| {rates} | {row['planned_from_measured']:.3f}x | {measured} |"
        )
    if "large" in data:
        lines += ["", "| tokens of 128,256 | of later texts | planned before training |"]
        lines += ["|---:|---:|---:|"]
        lines += [
            f"| {row['tokens']:,} | {100 * row['coverage']:.2f} % | {row['gain']:.3f}x |"
            for row in data["large"]
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--work", type=Path, default=ROOT / ".work/vocabulary")
    parser.add_argument("--large", type=Path, help="tokenizer.model of Llama 3")
    parser.add_argument("--timed", action="store_true")
    parser.add_argument("--backend", default="onnxruntime", help="that compiles rounds")
    parser.add_argument("--prompts", type=int, default=12, help="that are timed")
    parser.add_argument("--repeats", type=int, default=2, help="of each timed prompt")
    parser.add_argument("--page", action="store_true", help="write docs/train.md, nothing else")
    options = parser.parse_args()
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    known = read_json(RESULTS, "results of vocabularies") if RESULTS.is_file() else {}
    if options.page:
        write_between(PAGE, START, section(known), END)
        return
    if options.timed:
        known = timed(work, known, options)
    else:
        from specplan.measure.machine import hardware_name, versions

        about = {"date": date.today().isoformat(), "hardware": hardware_name()}
        more = {"large": large(work, options.large)} if options.large else {}
        known = {**about, "versions": versions(), **counted(work), **more}
    write_json_atomic(RESULTS, known)
    print(section(known))


if __name__ == "__main__":
    main()
