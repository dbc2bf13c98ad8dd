"""How fast are our compiled rounds beside the fastest runtimes, on the same weights?

    python benchmarks/peers.py [--limit N] [--turns N] [--tune N] [--only RUNTIME,...]
        [--formats F,...] [--bundles DIR ...] [--random N] [--json]

The reference models continue held-out prompts of the code task greedily, at batch 1, prompt
included. Every runtime that is here takes its turns in a process of its own: specplan's backends
and `transformers` in this environment, llama.cpp, OpenVINO GenAI and ONNX Runtime GenAI in those
that `make peers` makes under `.work/peers`; nothing is installed here. Each prompt is run by
everyone once, in random order. A turn during which other processes took more than 6 % of the
machine is run again, at most `--patience` times; the least disturbed run counts. With `--turns N`
everyone runs each prompt N times, and the fastest run counts: for machines whose speed varies by
the second, as that of virtual ones may.

`tokens_per_second` is the median over prompts, `tokens_per_second_of_all` that of all of them
together: the first is the usual prompt's, the second what a server has of them.
`ours_over_theirs` is the median over prompts of our speed over theirs, by our fastest runtime of
the same kind and number format; `same_texts` counts prompts whose text is that of our plain float32
decoding. With `--tune N`, every runtime first tries draft lengths 2 to 16 and n-grams 1 to 4 on N
other prompts, and runs at its best; else all draft 5 tokens, and 8 by lookup after matches of 3.

int8 and int4 are `Q8_0` and `Q4_0` of ours and of llama.cpp, with heads and embeddings in 8 bits;
other runtimes have formats of their own of as many bits. `specplan onnxruntime eagle` drafts by the
reference target's EAGLE head, which peers have no form for, in place of the draft model;
`lookup+eagle` drafts 4 tokens by it where the text has no match of 3 to 5 tokens; `by match` copies
3 tokens after a match of less than 6.

`--bundles` names folders that `specplan optimize` wrote for the reference models: each plan is run
as it was chosen, in its own number format, and its row is `specplan optimize NAME`.

With `--random N` a Llama of N million random parameters takes the place of the reference models:
plain decoding alone, in float32, where the weights' way through the processor is most of a step.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from peer_workers.environments import FOLDER, python_of
from peer_workers.protocol import OUR_DTYPES, PROMPT_TOKENS, Setting
from specplan.backends.bundle import load_bundle
from specplan.ir.files import write_json_atomic
from specplan.ir.ops import Lookup
from specplan.ir.plan import walk_plan
from specplan.measure.machine import hardware_name
from specplan.runtime.models.loading import load_model
from specplan.runtime.tokenizer import load_tokenizer

ROOT = Path(__file__).resolve().parents[1]
MODELS = ROOT / "examples/reference_models"
FOREIGN = 0.06
"""Part of the machine that others may take during a turn that counts."""
IDLE = 0.9
"""Part of the machine that is idle before a turn begins."""
KINDS = ("plain", "lookup", "draft", "tree")
LLAMA: dict[str, Any] = dict(
    hidden_size=768, num_attention_heads=12, num_key_value_heads=4, intermediate_size=2048,
    max_position_embeddings=1024,
)  # fmt: skip
"""Sizes of the random model, but for its layers."""
DRAFTED = {"plain": 0, "lookup": 8, "draft": 5, "tree": 8}
LENGTHS, NGRAMS = (2, 4, 8, 16), (1, 2, 3, 4)
"""What is tried where lengths are tuned."""
RUNTIMES: dict[str, tuple[str, dict[str, tuple[str, ...]]]] = {
    "specplan onnxruntime": (
        "of_specplan",
        {kind: ("f32", "int8", "int4") for kind in ("plain", "lookup", "draft")}
        | {"tree": ("f32",)},
    ),
    "specplan onnxruntime eagle": ("of_specplan", {"draft": ("f32", "int8", "int4")}),
    "specplan onnxruntime lookup+eagle": ("of_specplan", {"lookup": ("f32", "int8", "int4")}),
    "specplan onnxruntime by match": ("of_specplan", {"lookup": ("f32", "int8", "int4")}),
    "specplan inductor": ("of_specplan", {"plain": ("f32",), "lookup": ("f32",)}),
    "onnxruntime_genai": (
        "of_onnxruntime_genai",
        {"plain": ("f32", "int4"), "lookup": ("f32", "int4"), "draft": ("f32",)},
    ),
    "llama_cpp": (
        "of_llama_cpp",
        {
            "plain": ("f32", "bf16", "f16", "int8", "int4"),
            "lookup": ("f32", "bf16", "int8"),
            "draft": ("f32", "bf16", "int8"),
        },
    ),
    "openvino_genai": (
        "of_openvino_genai",
        {"plain": ("f32", "int8"), "lookup": ("f32", "int8"), "draft": ("f32", "int8")},
    ),
    "transformers": ("of_transformers", dict.fromkeys(("plain", "lookup", "draft"), ("f32",))),
}
"""The script of each runtime, and the number formats of each kind."""


@dataclass
class Contender:
    """One runtime at one setting, and its turns.

    Attributes:
        runtime: its name.
        number: of the setting, for its worker.
        setting: how it decodes.
        turns: of each prompt: seconds, seconds until the first token, tokens, and the part of the
            machine that others took.
    """

    runtime: str
    number: int
    setting: Setting
    turns: list[dict[str, Any]] = field(default_factory=list)

    @property
    def ours(self) -> bool:
        """Whether it is specplan."""
        return self.runtime.startswith("specplan")

    @property
    def speeds(self) -> list[float]:
        """Tokens per second of each prompt."""
        return [len(turn["tokens"]) / turn["seconds"] for turn in self.turns]

    @property
    def speed(self) -> float:
        """Tokens per second of all prompts together."""
        tokens = sum(len(turn["tokens"]) for turn in self.turns)
        return float(tokens / sum(turn["seconds"] for turn in self.turns))


class Worker:
    """A runtime in a process of its own."""

    def __init__(
        self, python: Path, runtime: str, settings: Sequence[Setting], options: argparse.Namespace
    ) -> None:
        bundle = options.bundles.get(runtime)
        script = "of_specplan" if bundle else RUNTIMES[runtime][0]
        backend = f"onnxruntime bundle {bundle}" if bundle else runtime.partition(" ")[2]
        folder = ROOT / "benchmarks/peer_workers"
        job = {
            "threads": options.threads,
            "count": options.count,
            "work": str(options.work),
            "settings": [asdict(one) for one in settings],
        }
        log = (options.work / f"{runtime.replace(' ', '_')}.log").open("w")
        self.process = subprocess.Popen(
            [str(python), str(folder / f"{script}.py"), json.dumps(job), backend],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=os.environ
            | {
                "OMP_NUM_THREADS": str(options.threads),
                "HF_HUB_OFFLINE": "1",
                "PYTHONPATH": f"{folder.parent}:{os.environ.get('PYTHONPATH', '')}",
            },
        )
        line = self._read()
        self.answer: dict[str, Any] = json.loads(line) if line else {
            "ready": [], "refused": {}, "version": f"did not start, see {log.name}"
        }  # fmt: skip

    def _read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def ask(self, number: int, tokens: Sequence[int]) -> dict[str, Any]:
        """One turn."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"setting": number, "tokens": list(tokens)}) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._read())
        return answer

    def ticks(self) -> int:
        """Processor time of the process and its children so far."""
        own = str(self.process.pid)
        children = Path(f"/proc/{own}/task/{own}/children")
        total = 0
        for pid in (own, *(children.read_text().split() if children.exists() else ())):
            stat = Path(f"/proc/{pid}/stat")
            if stat.exists():
                fields = stat.read_text().rpartition(")")[2].split()
                total += int(fields[11]) + int(fields[12])
        return total

    def close(self) -> None:
        """End it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def machine_ticks() -> tuple[int, int]:
    """Processor time of the whole machine so far, and how much of it was idle."""
    numbers = [int(one) for one in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return sum(numbers), numbers[3] + numbers[4]


def wait_for_quiet(seconds: float) -> None:
    """Wait until next to nothing runs, at most so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        total, idle = machine_ticks()
        time.sleep(0.1)
        later, idle_later = machine_ticks()
        if idle_later - idle > IDLE * (later - total):
            return


def turn(worker: Worker, number: int, tokens: Sequence[int], patience: int) -> dict[str, Any]:
    """The least disturbed of some turns; the first that is not disturbed ends them."""
    best: dict[str, Any] = {}
    for _ in range(1 + patience):
        wait_for_quiet(2.0 * patience)
        (total, idle), own = machine_ticks(), worker.ticks()
        answer = worker.ask(number, tokens)
        (later, idle_later), own_later = machine_ticks(), worker.ticks()
        foreign = (later - total) - (idle_later - idle) - (own_later - own)
        answer["foreign"] = max(0, foreign) / max(1, later - total)
        if not best or answer["foreign"] < best["foreign"]:
            best = answer
        if best["foreign"] <= FOREIGN:
            break
    return best


def float32_models(work: Path) -> None:
    """The reference models with float32 weights under their own names, for every converter."""
    import torch
    from safetensors.torch import load_file, save_file

    for name in ("target", "draft"):
        folder = work / "hf" / name
        if (folder / "model.safetensors").is_file():
            continue
        folder.mkdir(parents=True, exist_ok=True)
        weights = load_file(MODELS / name / "model.safetensors")
        weights = {key: tensor.to(torch.float32) for key, tensor in weights.items()}
        for path in MODELS.joinpath(name).glob("*.json"):
            text = path.read_text("utf-8").replace('"bfloat16"', '"float32"')
            (folder / path.name).write_text(text, "utf-8")
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def random_model(work: Path, millions: int) -> None:
    """A Llama of so many parameters, with the tokenizer of the reference target."""
    import torch
    import transformers

    folder, source = work / "hf" / "target", MODELS / "target"
    if (folder / "model.safetensors").is_file():
        return
    tokens = json.loads((source / "config.json").read_text("utf-8"))["vocab_size"]
    width, keys = LLAMA["hidden_size"], LLAMA["num_key_value_heads"]
    attention = 2 * width**2 * (1 + keys / LLAMA["num_attention_heads"])
    layer = attention + 3 * width * LLAMA["intermediate_size"]
    layers = round((millions * 1e6 - 2 * tokens * width) / layer)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        **LLAMA, num_hidden_layers=layers, vocab_size=tokens, bos_token_id=None, eos_token_id=None
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    for path in source.glob("*token*.json"):
        shutil.copy(path, folder / path.name)


def prompts_of(split: str) -> list[tuple[int, ...]]:
    """The last tokens of each prompt of a split."""
    tokenizer = load_tokenizer(MODELS / "target")
    lines = (ROOT / "examples/prompts/code.jsonl").read_text("utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row["split"] == split]
    return [tuple(tokenizer.encode(row["text"]))[-PROMPT_TOKENS:] for row in rows]


def bundled_setting(folder: Path) -> Setting:
    """How the plan of a bundle decodes; its lengths are its own."""
    bundle = load_bundle(folder)
    dtype = next(ours for ours, name in OUR_DTYPES.items() if name == bundle.models["target"].dtype)
    copies = any(isinstance(op, Lookup) for op in walk_plan(bundle.plan))
    kind = "lookup" if copies else "draft" if len(bundle.models) > 1 else "plain"
    return Setting(kind, dtype, 0, 0)


def settings_of(runtime: str, tuned: bool, plain: bool = False) -> list[Setting]:
    """What a runtime runs; `plain` in float32 alone where asked for."""
    settings, every = [], RUNTIMES[runtime][1]
    if plain:
        every = {"plain": ("f32",)} if "plain" in every else {}
    for kind, dtypes in every.items():
        lengths = LENGTHS if tuned and kind in ("lookup", "draft") else (DRAFTED[kind],)
        ngrams = NGRAMS if tuned and kind == "lookup" else (3,)
        settings += [Setting(kind, d, k, n) for d in dtypes for k in lengths for n in ngrams]
    return settings


def started(options: argparse.Namespace) -> tuple[dict[str, Worker], list[Contender]]:
    """A worker for each runtime that is here, and what they can run."""
    workers: dict[str, Worker] = {}
    contenders: list[Contender] = []
    asked = options.only.split(",") if options.only else RUNTIMES
    for runtime in (*options.bundles, *asked):
        here = runtime.startswith(("specplan", "transformers"))
        python = Path(sys.executable) if here else python_of(runtime)
        if python is None:
            tell(f"{runtime}: not installed in {FOLDER / runtime} (make peers)")
            continue
        bundle = options.bundles.get(runtime)
        settings = (
            [bundled_setting(bundle)]
            if bundle
            else settings_of(runtime, options.tune > 0, options.random > 0)
        )
        formats = options.formats.split(",") if options.formats else [one.dtype for one in settings]
        settings = [one for one in settings if bundle or one.dtype in formats]
        if not settings:
            continue
        worker = workers[runtime] = Worker(python, runtime, settings, options)
        for number, why in worker.answer["refused"].items():
            tell(f"{runtime}: {settings[int(number)]} refused: {why}")
        tell(f"{runtime} {worker.answer['version']}: {len(worker.answer['ready'])} settings")
        contenders += [Contender(runtime, n, settings[n]) for n in worker.answer["ready"]]
    return workers, contenders


def best_settings(
    workers: dict[str, Worker], contenders: Sequence[Contender], options: argparse.Namespace
) -> list[Contender]:
    """Of each runtime, kind and format, the setting that was fastest on other prompts."""
    spent: dict[tuple[str, str, str], list[tuple[float, Contender]]] = {}
    for one in contenders:
        key = (one.runtime, one.setting.kind, one.setting.dtype)
        runs = [
            turn(workers[one.runtime], one.number, prompt, options.patience)
            for prompt in prompts_of("profile")[: options.tune]
        ]
        seconds = sum(run["seconds"] / max(1, len(run["tokens"])) for run in runs)
        spent.setdefault(key, []).append((seconds, one))
    return [min(tried, key=lambda pair: pair[0])[1] for tried in spent.values()]


def rows_of(contenders: Sequence[Contender]) -> list[dict[str, Any]]:
    """The table, the fastest first."""
    plain = [c for c in contenders if c.ours and c.setting.kind == "plain"]
    texts = [run["tokens"] for run in plain[0].turns] if plain else []
    rows = []
    for one in contenders:
        kind, dtype = one.setting.kind, one.setting.dtype
        ours = [
            c for c in contenders
            if c.ours and (c.setting.kind, c.setting.dtype) == (kind, dtype) and c is not one
        ]  # fmt: skip
        ratio = None
        if ours and not one.ours:
            fastest = max(ours, key=lambda c: median(c.speeds))
            pairs = zip(fastest.speeds, one.speeds, strict=True)
            ratio = median(mine / theirs for mine, theirs in pairs)
        firsts = [run["first"] for run in one.turns if run["first"] is not None]
        rows.append({
            "runtime": one.runtime,
            "dtype": dtype,
            "kind": kind,
            "length": one.setting.length,
            "ngram": (one.setting.ngram or None) if kind == "lookup" else None,
            "tokens_per_second": median(one.speeds),
            "tokens_per_second_of_all": one.speed,
            "first_token_seconds": median(firsts) if firsts else None,
            "ours_over_theirs": ratio,
            "same_texts": sum(a["tokens"] == b for a, b in zip(one.turns, texts, strict=False)),
            "disturbed": sum(run["foreign"] > FOREIGN for run in one.turns),
        })  # fmt: skip
    return sorted(rows, key=lambda row: -row["tokens_per_second"])


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All turns."""
    if options.random:
        random_model(options.work, options.random)
    else:
        float32_models(options.work)
    prompts = prompts_of("bench")[: options.limit]
    workers, contenders = started(options)
    if options.tune:
        contenders = best_settings(workers, contenders, options)
    draws = random.Random(options.seed)
    for number, prompt in enumerate(prompts):
        runs: list[list[dict[str, Any]]] = [[] for _ in contenders]
        for _ in range(options.turns):
            for one, own in draws.sample([*zip(contenders, runs, strict=True)], len(runs)):
                own.append(turn(workers[one.runtime], one.number, prompt, options.patience))
        for one, own in zip(contenders, runs, strict=True):
            one.turns.append(min(own, key=lambda run: run["seconds"]))
        tell(f"prompt {number + 1} of {len(prompts)}")
    for worker in workers.values():
        worker.close()
    target = load_model(MODELS / "target")
    return {
        "rows": rows_of(contenders),
        "random_millions": options.random or None,
        "prompts": len(prompts),
        "turns": options.turns,
        "output_tokens": options.count,
        "threads": options.threads,
        "hardware": hardware_name(target.device),
        "versions": {name: worker.answer["version"] for name, worker in workers.items()},
    }


def tell(line: str) -> None:
    """Say what goes on."""
    print(line, file=sys.stderr, flush=True)


def table(result: dict[str, Any]) -> str:
    """The rows as Markdown."""
    lines = [
        "| runtime | weights | kind | tokens/s | of all | first token | x ours | same texts |",
        "|---|---|---|---:|---:|---:|---:|---:|",
    ]
    for row in result["rows"]:
        first, ratio = row["first_token_seconds"], row["ours_over_theirs"]
        cells = [
            row["runtime"],
            row["dtype"],
            row["kind"] + (f" {row['length']}" if row["length"] else ""),
            f"{row['tokens_per_second']:.0f}",
            f"{row['tokens_per_second_of_all']:.0f}",
            "" if first is None else f"{first * 1e3:.0f} ms",
            "" if ratio is None else f"{ratio:.2f}",
            f"{row['same_texts']}/{result['prompts']}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    disturbed = sum(row["disturbed"] for row in result["rows"])
    if disturbed:
        lines.append(f"\n{disturbed} turns were disturbed: this machine was not idle.")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limit", type=int, default=12, help="prompts")
    parser.add_argument("--count", type=int, default=128, help="tokens to emit")
    parser.add_argument("--turns", type=int, default=1, help="runs of each prompt by everyone")
    parser.add_argument("--tune", type=int, default=0, help="other prompts to tune lengths on")
    parser.add_argument("--only", default="", help="runtimes, by commas")
    parser.add_argument("--formats", default="", help="number formats of weights, by commas")
    parser.add_argument("--bundles", nargs="*", type=Path, default=[], help="plans of optimize")
    parser.add_argument("--patience", type=int, default=4, help="runs again of a disturbed turn")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--random", type=int, default=0, help="millions of random parameters")
    parser.add_argument("--work", type=Path, default=FOLDER / "work")
    parser.add_argument("--out", type=Path, help="file for the JSON")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.work = options.work.resolve() / (f"random_{options.random}" if options.random else "")
    options.work.mkdir(parents=True, exist_ok=True)
    options.bundles = {f"specplan optimize {one.name}": one.resolve() for one in options.bundles}
    result = measure(options)
    if options.out:
        write_json_atomic(options.out, result)
    print(json.dumps(result) if options.json else table(result))


if __name__ == "__main__":
    main()
