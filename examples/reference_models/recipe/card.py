"""The model card, written from measurements."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import torch

from recipe import data, measure, store
from recipe.draft import TEXT_SHARE
from recipe.stages import Plan, load_data

WINDOWS = 64
TASKS = ("code", "prose")


def _stock(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()


def results(plan: Plan) -> dict[str, Any]:
    """Measure everything the card reports."""
    tokenizer, streams = load_data(plan)
    target = measure.Net.load(plan.out / "target", plan.target)
    draft = measure.Net.load(plan.out / "draft", plan.draft)
    stock = {name: _stock(plan.out / name) for name in ("target", "draft")}
    out: dict[str, Any] = {"text": {}, "own": {}, "runs": {}}
    for task in TASKS:
        length = min(plan.length, len(streams[f"heldout_{task}"]) // 4)
        windows = data.heldout_windows(streams[f"heldout_{task}"], length, WINDOWS)
        out["text"][task] = measure.on_text(target, draft, windows)
        prompts = measure.prompt_batch(plan.prompts / f"{task}.jsonl", tokenizer)
        out["own"][task] = measure.on_own_text(stock["target"], target, draft, prompts)
        plan.console.print(f"measured {task}")
    out["step_seconds"] = measure.step_times(stock)
    out["parameters"] = {"target": plan.target.parameters(), "draft": plan.draft.parameters()}
    out["bytes"] = {n: (plan.out / n / "model.safetensors").stat().st_size for n in stock}
    out["stream_tokens"] = {n: len(s) for n, s in streams.items()}
    out["machine"] = f"at most two cores of an {platform.machine()} CPU"
    runs = plan.work / "runs.json"
    if runs.exists():
        for name, state in json.loads(runs.read_text(encoding="utf-8")).items():
            out["runs"][name] = {k: state[k] for k in ("step", "seconds", "log")}
    return out


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _main_table(r: dict[str, Any]) -> list[str]:
    rows = [
        ("target: held-out loss (nats per token)", "text", "loss", "{:.3f}"),
        ("draft: held-out loss (nats per token)", "text", "draft_loss", "{:.3f}"),
        ("target: next token right", "text", "target_right", "%"),
        ("draft: next token right", "text", "draft_right", "%"),
        ("draft's first choice is the target's, on held-out text", "text", "draft_same", "%"),
        ("the same, along the target's greedy continuations", "own", "draft_same", "%"),
        ("overlap of the two distributions (accepted at temperature 1)", "text", "overlap", "%"),
    ]
    lines = ["| | code | prose |", "|---|---:|---:|"]
    for label, kind, key, form in rows:
        cells = []
        for task in TASKS:
            part = r[kind][task]
            value = part["exit_right"][-1] if key == "target_right" else part[key]
            cells.append(_percent(value) if form == "%" else form.format(value))
        lines.append(f"| {label} | {cells[0]} | {cells[1]} |")
    return lines


def _exit_table(r: dict[str, Any]) -> list[str]:
    lines = [
        "| layers run | next token right: code | prose | full model's choice: code | prose "
        "| same, greedy text: code | prose |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    text, own = r["text"], r["own"]
    for i in range(len(text["code"]["exit_right"])):
        cells = [_percent(text[t]["exit_right"][i]) for t in TASKS]
        cells += [_percent(text[t]["exit_same"][i]) for t in TASKS]
        cells += [_percent(own[t]["exit_same"][i]) for t in TASKS]
        lines.append(f"| {i + 1} | " + " | ".join(cells) + " |")
    return lines


def _shape_lines(plan: Plan, r: dict[str, Any]) -> list[str]:
    lines = ["| | target | draft |", "|---|---:|---:|"]
    for label, key in (
        ("layers", "layers"), ("hidden size", "hidden"), ("intermediate size", "intermediate"),
        ("heads", "heads"), ("key/value heads", "kv_heads"), ("head size", "head_dim"),
        ("vocabulary", "vocab"), ("positions", "positions"),
    ):  # fmt: skip
        lines.append(f"| {label} | {getattr(plan.target, key)} | {getattr(plan.draft, key)} |")
    for label, values, form in (
        ("parameters (embedding tied)", r["parameters"], "{:,}"),
        ("bytes of weights (bf16)", r["bytes"], "{:,}"),
    ):
        cells = " | ".join(form.format(values[n]) for n in ("target", "draft"))
        lines.append(f"| {label} | {cells} |")
    ms = {n: 1000 * s for n, s in r["step_seconds"].items()}
    lines.append(f"| one step, stock transformers, bf16 | {ms['target']:.2f} ms "
                 f"| {ms['draft']:.2f} ms |")  # fmt: skip
    return lines


def _runs(plan: Plan, r: dict[str, Any]) -> str:
    parts = []
    for name, state in r["runs"].items():
        tokens = state["step"] * plan.rows * plan.length
        minutes = state["seconds"] / 60
        stage = name.replace("_", " on ")
        parts.append(f"{stage}: {state['step']} steps, {tokens / 1e6:.1f} M tokens, "
                     f"{minutes:.0f} minutes")  # fmt: skip
    return "; ".join(parts) + f" ({r['machine']}, shared with other work)." if parts else ""


def render(plan: Plan, r: dict[str, Any]) -> str:
    """The card's text."""
    template = (Path(__file__).parent / "card.md").read_text(encoding="utf-8")
    ratio = r["step_seconds"]["target"] / r["step_seconds"]["draft"]
    streams = r["stream_tokens"]
    fields = {
        "shapes": "\n".join(_shape_lines(plan, r)),
        "main": "\n".join(_main_table(r)),
        "exits": "\n".join(_exit_table(r)),
        "ratio": f"{ratio:.1f}",
        "runs": _runs(plan, r),
        "heldout": " and ".join(f"{r['text'][t]['tokens']:,} tokens of {t}" for t in TASKS),
        "own": " and ".join(f"{r['own'][t]['tokens']:,} of {t}" for t in TASKS),
        "train": ", ".join(f"{streams.get(n, 0) / 1e6:.2f} M {n}" for n in data.TRAINED),
        "functions_share": f"{100 * data.FUNCTIONS_MIX['functions']:.0f} %",
        "text_share": f"{100 * TEXT_SHARE:.0f} %",
        "python": json.loads(plan.manifest.read_text(encoding="utf-8"))["python"],
    }
    for name, value in fields.items():
        template = template.replace("{{" + name + "}}", value)
    return template


def stage(plan: Plan) -> None:
    """Measure, then write ``results.json`` and the model card."""
    found = results(plan)
    store.write_json(plan.out / "results.json", found)
    store.write_text(plan.out / "README.md", render(plan, found))
    plan.console.print(f"wrote {plan.out / 'README.md'}", highlight=False)
