"""The reference pair with all that methods need which leave layers out or judge leniently.

Beside the pair: texts to learn from, exits that are trained on them, a table of exits by token, a
store of the target's states, and a draft model of several layers (the target's first ones, which
were trained to be left early). Everything is made once in a work folder.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

from quality_front import divided
from quality_prompts import prompts as quality_prompts
from reference_problem import MODELS, ROOT, pair_problem

from specplan.datastores import build_states
from specplan.ir.files import write_atomic, write_json_atomic
from specplan.planner import load_problem
from specplan.planner.problem.schema import Problem
from specplan.progress import Progress
from specplan.quality.tables import profile_token_exits
from specplan.training.exits import train_exits

OUTPUT_TOKENS = 64
TEXTS, STORED, LISTED = 160, 40, 160
"""Pieces of about 400 tokens that exits learn from; of these in the store; prompts of the table."""
STEPS, LAYERS = 600, 4
"""Of each training; of the draft model that is cut from the target."""


def exits_problem(
    work: Path, methods: list[str], limit: dict[str, Any], split: tuple[int, int], tell: Progress
) -> Problem:
    """The problem, all that it names made.

    Args:
        work: folder of everything.
        methods: that are tried.
        limit: `limits.quality` without its prompts.
        split: prompts to calibrate on, and to report on.
        tell: progress.
    """
    work.mkdir(parents=True, exist_ok=True)
    drafts = {"draft": MODELS / "draft"}
    bare = pair_problem(work, drafts, "functions", OUTPUT_TOKENS)
    texts, starts = learned_texts(work)
    for kind in ("classifier", "policy"):
        train_exits(
            bare, kind, work / kind, steps=STEPS, prompts=texts, answers=False, progress=tell
        )
        bare[f"exit_{kind}"] = str(work / kind)
    bare["token_exits"] = str(token_table(work, bare, starts, tell))
    for name, folder in {"short": cut_target(work), "near": store(work, texts)}.items():
        bare["models"]["drafts"].append({"name": name, "path": str(folder), "dtype": "float32"})
    quality = limit | {"prompts": str(limit_prompts(work, *split))}
    path = work / f"problem-{limit['measure']}.json"
    write_json_atomic(path, bare | {"methods": methods, "limits": {"quality": quality}})
    return load_problem(path)


def learned_texts(work: Path) -> tuple[Path, Path]:
    """Pieces of files that the reference models were trained on, and starts of their functions."""
    sys.path.insert(0, str(ROOT / "examples/training"))
    library = importlib.import_module("texts")
    texts, starts = work / "texts.jsonl", work / "starts.jsonl"
    _write_rows(texts, library.library_prompts(library.CORPUS, TEXTS, 0, True))
    rows = library.library_prompts(library.CORPUS, LISTED, 0, False)
    _write_rows(starts, [row | {"split": "profile", "task": "functions"} for row in rows])
    return texts, starts


def token_table(work: Path, bare: dict[str, Any], starts: Path, tell: Progress) -> Path:
    """How often the token after each is settled after each layer, along the target's texts."""
    table = work / "token_exits.tsv"
    if not table.is_file():
        workload = bare["workload"] | {"prompts": str(starts)}
        profile_token_exits(bare | {"workload": workload}, table, progress=tell)
    return table


def cut_target(work: Path) -> Path:
    """The first layers of the target as a checkpoint of its own."""
    folder = work / "short"
    if not (folder / "config.json").is_file():
        from transformers import AutoModelForCausalLM, AutoTokenizer

        whole = AutoModelForCausalLM.from_pretrained(MODELS / "target", num_hidden_layers=LAYERS)
        whole.save_pretrained(folder)
        AutoTokenizer.from_pretrained(MODELS / "target").save_pretrained(folder)
    return folder


def store(work: Path, texts: Path) -> Path:
    """States of the target along some of the texts."""
    folder, corpus = work / "near", work / "corpus.txt"
    if not (folder / "config.json").is_file():
        rows = texts.read_text("utf-8").splitlines()[:STORED]
        write_atomic(corpus, "\n".join(json.loads(row)["text"] for row in rows) + "\n")
        build_states(corpus, folder, MODELS / "target", dtype="float32")
    return folder


def limit_prompts(work: Path, calibrated: int, reported: int) -> Path:
    """Prompts to calibrate and to report on, each with its split."""
    every = work / "every_prompt.jsonl"
    if not every.is_file():
        _write_rows(every, quality_prompts(2 * max(calibrated, reported)))
    return divided(every, work / f"{calibrated}-{reported}", calibrated, reported)


def _write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    write_atomic(path, "".join(json.dumps(row) + "\n" for row in rows))
