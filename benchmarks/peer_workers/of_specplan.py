"""Turns of our own plans through a backend that compiles rounds, the second argument."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from peer_workers.protocol import Job, Run, Setting, serve
from specplan.backends.registry import round_backend
from specplan.ir.plan import Plan
from specplan.ir.text.parser import parse_plan
from specplan.runtime.models.loading import load_model
from specplan.runtime.requests import Request

DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
TREE = (("", "3"), (" nodes=[0, 1]", "[2, 1]"), (" nodes=[0]", "1"), (" nodes=[0]", "1"))
"""Of 8 nodes, level by level: which get children, and how many each."""
BACKEND = sys.argv[2]


def plan_of(setting: Setting) -> Plan:
    """The plan of a kind."""
    if setting.kind == "lookup":
        match = f"match=[1, {setting.ngram}]"
        lines = [f"%t1 = lookup @text %t0 at=%t0 {match} length={setting.length}"]
    elif setting.kind == "draft":
        lines = [line for level in range(setting.length) for line in grown(level, "", "1")]
    elif setting.kind == "tree":
        lines = [line for level, shape in enumerate(TREE) for line in grown(level, *shape)]
    else:
        lines = []
    last = max((int(line[2:].split()[0]) for line in lines if line.startswith("%t")), default=0)
    drafts = setting.kind in ("draft", "tree")
    states = ["state @kv = cache target", "state @dkv = cache draft"][: 1 + drafts]
    commits = ["commit @kv %e", "commit @dkv %e"][: 1 + drafts]
    body = [
        "%t0 = root",
        *lines,
        f"%l = forward target %t{last} cache=@kv pending=1",
        f"%a = accept %t{last} target=%l",
        "%e = emit %a",
        *commits,
    ]
    models = ["model target", "model draft"][: 1 + drafts]
    return parse_plan("\n".join(["plan peer", *models, *states, "round decode {", *body, "}"]))


def grown(level: int, nodes: str, children: str) -> list[str]:
    """Lines that draft one level."""
    pending = " pending=2" if level == 0 else ""
    return [
        f"%f{level} = pick %t{level} of=newest{nodes}",
        f"%q{level} = forward draft %f{level} cache=@dkv{pending}",
        f"%t{level + 1} = grow %t{level} at=%f{level} logits=%q{level} children={children}",
    ]


def prepare(job: Job, setting: Setting) -> Run:
    torch.set_num_threads(job.threads)
    plan = plan_of(setting)
    models = {
        name: load_model(job.work / "hf" / name, dtype=DTYPES[setting.dtype])
        for name in ("target", "draft")
    }
    words = f"{setting.kind}-{setting.dtype}-{setting.length}-{setting.ngram}"
    folder: Path = job.work / "specplan" / BACKEND / words
    executable = round_backend(BACKEND).compile(plan, models, folder)

    def run(prompt: list[int]) -> Iterator[int]:
        request = Request(prompt_tokens=tuple(prompt), max_new_tokens=job.count, temperature=0.0)
        session = executable.start([request])
        session.prefill()
        while not session.done[0]:
            yield from session.step(plan.rounds[0].name).tokens[0]
        session.release()

    return run


serve(torch.__version__, prepare)
