"""Turns of our own plans through a backend that compiles rounds.

The second argument names it, and perhaps the head that drafts, always or where the text has no
match: `onnxruntime eagle`, `onnxruntime lookup+eagle`; or that the match decides how much is
copied: `onnxruntime by match`; or the folder of a bundle: `onnxruntime bundle DIR`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from peer_workers.protocol import OUR_DTYPES, PROMPT_TOKENS, Job, Run, Setting, serve
from specplan.backends.bundle import load_bundle
from specplan.backends.registry import round_backend
from specplan.backends.static.buckets import Bucket
from specplan.ir.plan import Plan
from specplan.ir.text.parser import parse_plan
from specplan.planner import copies_by_match
from specplan.runtime.models.loading import load_all
from specplan.runtime.requests import Request

TREE = (("", "3"), (" nodes=[0, 1]", "[2, 1]"), (" nodes=[0]", "1"), (" nodes=[0]", "1"))
"""Of 8 nodes, level by level: which get children, and how many each."""
ROOM = 512
"""Tokens that each text has room for."""
BACKEND, _, DRAFTERS = sys.argv[2].partition(" ")
BUNDLE = load_bundle(DRAFTERS.removeprefix("bundle ")) if DRAFTERS.startswith("bundle ") else None
BY_MATCH, HYBRID = DRAFTERS == "by match", DRAFTERS.startswith("lookup+")
HEAD = "" if BY_MATCH or BUNDLE else DRAFTERS.removeprefix("lookup+")
MATCH, DRAFTED = "[3, 5]", 4
"""Of a hybrid: lengths of matches, and tokens that the head drafts without one."""
LONGEST, SURE, BRIEF = 8, 6, 3
"""Longest match; the shortest one that a long copy follows, and the tokens of a short copy."""
HEADS = Path(__file__).parents[2] / "examples/reference_models/heads"
BY_HEAD = """plan peer
model target
model head
state @kv = cache target
state @hkv = cache head
state @states = track target layer=last
state @own = track head layer=last
round decode {{
  %t0 = root
  %q0 = forward head %t0 cache=@hkv pending={pending} features=@states shift=1 keep=@own
{lines}
  %l = forward target {tree} cache=@kv pending=1 keep=@states
  %a = accept {tree} target=%l
  %e = emit %a
  commit @kv %e
  commit @states %e
  commit @hkv %e
  commit @own %e
}}
"""


def chain_by_head(length: int) -> list[str]:
    """A chain by a head that reads the target's last states (EAGLE-1); after its first pass."""
    lines = ["  %t1 = grow %t0 at=%t0 logits=%q0 children=1"]
    for node in range(1, length):
        lines += [
            f"  %n{node} = pick %t{node} of=newest",
            f"  %q{node} = forward head %n{node} cache=@hkv features=@own shift=1 keep=@own "
            "write=scratch",
            f"  %t{node + 1} = grow %t{node} at=%n{node} logits=%q{node} children=1",
        ]
    return lines


def plan_by_head(setting: Setting) -> Plan:
    """A head drafts, of a hybrid where the text has no match."""
    length, pending, tree = setting.length, setting.length + 1, f"%t{setting.length}"
    lines = chain_by_head(length)
    if HYBRID:
        chain = "\n".join(chain_by_head(DRAFTED))
        lines = [
            f"%m = lookup @text %t0 at=%t0 match={MATCH} length={length}",
            "%k = measure %m count",
            '%miss = compute "k < 1" k=%k',
            f"%c = when %miss otherwise=[%m] {{\n{chain}\nyield %t{DRAFTED}\n}}",
        ]
        tree = "%c"
    return parse_plan(BY_HEAD.format(pending=pending, lines="\n".join(lines), tree=tree))


def copies(setting: Setting) -> list[str]:
    """Copies after matches, by match where it is asked for: short ones after a short match."""
    if BY_MATCH:
        copied = copies_by_match((setting.ngram, SURE, LONGEST), BRIEF, setting.length)
        return copied.replace("%c ", "%t1 ").splitlines()
    match = f"match=[{setting.ngram}, {LONGEST}]"
    return [f"%t1 = lookup @text %t0 at=%t0 {match} length={setting.length}"]


def plan_of(setting: Setting) -> Plan:
    """The plan of a kind."""
    if HEAD:
        return plan_by_head(setting)
    if setting.kind == "lookup":
        lines = copies(setting)
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


def drafted_by(job: Job, setting: Setting) -> tuple[Plan, dict[str, Any]]:
    """The plan of a setting and its models: a bundle's own, or what this module writes."""
    if BUNDLE:
        models = BUNDLE.models.items()
        return BUNDLE.plan, load_all({n: (BUNDLE.model_folder(n), one.dtype) for n, one in models})
    plan, dtype, place = plan_of(setting), OUR_DTYPES[setting.dtype], {"head": HEADS / HEAD}
    names = [model.name for model in plan.models]
    return plan, load_all({n: (place.get(n, job.work / "hf" / n), dtype) for n in names})


def prepare(job: Job, setting: Setting) -> Run:
    torch.set_num_threads(job.threads)
    plan, models = drafted_by(job, setting)
    words = f"{setting.kind}-{setting.dtype}-{setting.length}-{setting.ngram}"
    rounds = f"bundle-{BUNDLE.folder.name}" if BUNDLE else sys.argv[2].replace(" ", "-")
    folder: Path = job.work / "specplan" / rounds / words
    room = [Bucket(batch=1, text=ROOM)]  # the same rounds for all prompts
    executable = round_backend(BACKEND).compile(plan, models, folder, room)
    prompt = (0,) * PROMPT_TOKENS
    text = Request(prompt_tokens=prompt, max_new_tokens=job.count, temperature=0.0)
    executable.prepare([text])

    def run(prompt: list[int]) -> Iterator[int]:
        request = Request(prompt_tokens=tuple(prompt), max_new_tokens=job.count, temperature=0.0)
        session = executable.start([request])
        session.prefill()
        while not session.done[0]:
            yield from session.step(plan.rounds[0].name).tokens[0]
        session.release()

    return run


serve(torch.__version__, prepare)
