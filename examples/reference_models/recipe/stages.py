"""The stages of the recipe, each of which finds what earlier ones left on disk."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from tokenizers import Tokenizer
from torch import Tensor

from recipe import bpe, corpus, data, store, weights
from recipe.loop import Run, Schedule
from recipe.nets import Shape
from recipe.target import TargetTask

FOLDER = Path(__file__).resolve().parent.parent
TARGET = Shape()
DRAFT = Shape(hidden=320, layers=1, intermediate=1280, heads=5, kv_heads=1)
TINY_TARGET = Shape(vocab=320, hidden=32, layers=4, intermediate=64, heads=2, kv_heads=1,
                    head_dim=16, positions=128)  # fmt: skip
TINY_DRAFT = Shape(vocab=320, hidden=32, layers=1, intermediate=64, heads=2, kv_heads=1,
                   head_dim=16, positions=128)  # fmt: skip


class CorpusDiffers(RuntimeError):
    """The installed library is not the one that ``corpus.json`` lists."""


@dataclass
class Plan:
    """Everything a stage needs to know."""

    out: Path = FOLDER
    prompts: Path = FOLDER.parent / "prompts"
    work: Path = FOLDER.parent.parent / ".work" / "reference_models"
    target: Shape = TARGET
    draft: Shape = DRAFT
    target_steps: int = 1050
    draft_steps: int = 2400
    target_functions_steps: int = 600
    draft_functions_steps: int = 500
    rows: int = 8
    length: int = 512
    seed: int = 0
    save_every_s: float = 120.0
    export_every_s: float = 300.0
    stop_after: int | None = None
    other_corpus: bool = False
    folders: tuple[str, ...] | None = None
    minutes: float | None = None
    console: Console = field(default_factory=Console)

    @property
    def manifest(self) -> Path:
        """The list of source files."""
        return self.out / "corpus.json"


def tiny(plan: Plan) -> Plan:
    """A plan of the same form that runs in seconds, for tests."""
    plan.target, plan.draft = TINY_TARGET, TINY_DRAFT
    plan.rows, plan.length = 4, 32
    plan.folders = ("asyncio", "json")
    return plan


def sources(plan: Plan) -> list[corpus.SourceFile]:
    """The source files, checked against the list if there is one (else the list is written)."""
    present = corpus.scan(folders=plan.folders)
    if not plan.manifest.exists():
        plan.manifest.parent.mkdir(parents=True, exist_ok=True)
        corpus.write_manifest(plan.manifest, present)
        return present
    lines = corpus.differences(corpus.read_manifest(plan.manifest), present)
    for line in lines[:50]:
        plan.console.print(f"[yellow]corpus differs[/]: {line}", highlight=False)
    if lines and not plan.other_corpus:
        raise CorpusDiffers(
            f"{len(lines)} files differ from {plan.manifest.name} (another Python version?). "
            "Results will not be bit-equal to the published ones; "
            "pass --other-corpus to train on the installed text."
        )
    return present


def tokenizer_stage(plan: Plan) -> Tokenizer:
    """Train the tokenizer and write it into both checkpoint folders."""
    files = sources(plan)
    texts = corpus.documents(files, "train", ("stdlib",)) + corpus.prose_documents(files, "train")
    tokenizer = bpe.train_tokenizer(texts, plan.target.vocab)
    shipped = plan.out / "target" / "tokenizer.json"
    if not shipped.exists() or bpe.load_tokenizer(shipped.parent).to_str() != tokenizer.to_str():
        shutil.rmtree(plan.work / "streams", ignore_errors=True)
    for name in ("target", "draft"):
        bpe.save_tokenizer(tokenizer, plan.out / name, plan.target.positions)
    plan.console.print(f"tokenizer: {tokenizer.get_vocab_size()} entries")
    return tokenizer


def load_data(plan: Plan) -> tuple[Tokenizer, dict[str, data.Tokens]]:
    """The tokenizer (trained if missing) and the token streams (encoded if missing)."""
    if not (plan.out / "target" / "tokenizer.json").exists():
        tokenizer_stage(plan)
    tokenizer = bpe.load_tokenizer(plan.out / "target")
    cache = plan.work / "streams"
    if not data.complete(cache):
        data.write_streams(cache, tokenizer, sources(plan), plan.seed)
    return tokenizer, data.read_streams(cache)


def target_stage(plan: Plan) -> None:
    """Train the target and export it."""
    _, streams = load_data(plan)
    order = data.WindowOrder(streams, plan.length, plan.seed, plan.target_steps * plan.rows)
    folder = plan.out / "target"

    def write(masters: dict[str, Tensor]) -> None:
        weights.export(masters, plan.target, folder)

    masters = weights.initial(plan.target, plan.seed)
    task = TargetTask(plan.target, masters, order, plan.rows, plan.length, plan.seed, write)
    record(plan, "target", run_of(plan, "target", plan.target_steps, "").train(task))


def run_of(plan: Plan, name: str, steps: int, basis: str) -> Run:
    """The resumable run of a model; ``basis`` names what it builds on."""
    shape = plan.target if name.startswith("target") else plan.draft
    identity = f"{shape} seed {plan.seed} batch {plan.rows}x{plan.length} {basis}".strip()
    return Run(
        name=name,
        checkpoint=plan.work / f"{name}.safetensors",
        schedule=Schedule(steps),
        save_every_s=plan.save_every_s,
        export_every_s=plan.export_every_s,
        stop_after=plan.stop_after,
        minutes=plan.minutes,
        identity=identity,
        console=plan.console,
    )


def record(plan: Plan, name: str, state: dict[str, object]) -> None:
    """Keep the figures of a training run for the model card."""
    path = plan.work / "runs.json"
    runs = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    runs[name] = state
    store.write_json(path, runs)
