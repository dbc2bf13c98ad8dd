"""The law by which a plan emitted each token: recorded while it runs, exact given what it drafted.

A token that is judged by a rule that keeps the law of the judging logits follows these logits. Of a
lossy rule the law follows from that of the drafted token (`emitted_law`), for chains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from specplan.backends.eager.backend import EagerExecutable
from specplan.backends.eager.op_runner import Scope, typed
from specplan.backends.eager.session import EagerSession
from specplan.backends.ops import lowerings
from specplan.backends.ops.tensors.values import Logits, Nodes, Path, Tree
from specplan.ir import ops as ir
from specplan.ir.errors import MissingCapabilityError
from specplan.ir.plan import Plan
from specplan.ir.tables.builtin import BUILTIN
from specplan.ir.values import Value
from specplan.runtime.acceptance._emitted import emitted_law
from specplan.runtime.generate import steps
from specplan.runtime.requests import Request
from specplan.runtime.sampling import SamplingSettings, probabilities


@dataclass(frozen=True)
class _Judged:
    op: ir.Accept
    tree: Tree
    logits: Logits


class RecordingSession(EagerSession):
    """A batch whose emitted tokens come with their laws.

    Attributes:
        laws: per request, the law of each emitted token at the request's settings, `[V]`.
        forced: per request, the tokens that are emitted whatever is drawn; empty to emit freely.
        at_one: laws are those at temperature 1 without truncation.
    """

    def __init__(self, *arguments: Any, forced: Sequence[Sequence[int]] = (), at_one: bool) -> None:
        super().__init__(*arguments)
        self.laws: list[list[Tensor]] = [[] for _ in range(self.batch.size)]
        self.forced, self.at_one = forced, at_one
        self._judged: dict[Value, _Judged] = {}

    def run_accept(self, op: ir.Accept, scope: Scope) -> None:
        """Judge, and remember by which logits."""
        path = typed(lowerings()[op.keyword](op, scope, self), Path)
        if self.forced:
            wanted = [self._next(row) for row in range(self.batch.size)]
            path = replace(path, tokens=torch.tensor(wanted)[:, None].to(path.tokens))
        tree = typed(scope[op.tree], Tree)
        if op.target is not None:
            self._judged[op.results[0]] = _Judged(op, tree, typed(scope[op.target], Logits))
        scope[op.results[0]] = path

    def _next(self, row: int) -> int:
        text, emitted = self.forced[row], len(self.laws[row])
        return text[min(emitted, len(text) - 1)]

    def run_emit(self, op: ir.Emit, scope: Scope) -> None:
        """Append, and compute the law of every token that was appended."""
        before = [*self.batch.lengths]
        super().run_emit(op, scope)
        path, judged = typed(scope[op.path], Path), self._judged.pop(op.path)
        counts = [now - then for now, then in zip(self.batch.lengths, before, strict=True)]
        for place in range(max(counts, default=0)):
            rows = [row for row, count in enumerate(counts) if count > place]
            for row, law in zip(rows, self._law(judged, path, place, rows), strict=True):
                self.laws[row].append(law)

    def _law(self, judged: _Judged, path: Path, place: int, rows: list[int]) -> Tensor:
        """The law `[rows, V]` of the token at a place of the emitted path."""
        tree = judged.tree
        column = path.start if place == 0 else path.nodes[:, place - 1 : place]
        logits = judged.logits.of(Nodes(tree, column))[0][rows]
        requests = [self.batch.requests[row] for row in rows]
        if self.at_one:
            requests = [replace(one, temperature=1.0, top_k=0, top_p=1.0) for one in requests]
        probs = probabilities(logits, SamplingSettings.of(requests, logits.device))
        drafted = _drafted(tree, column, rows, probs)
        return emitted_law(judged.op.rule, logits, probs, drafted)[:, 0].double()


def _drafted(tree: Tree, above: Tensor, rows: list[int], like: Tensor) -> Tensor | None:
    """The law of the node that a chain has below a column, `[rows, 1, V]`; None at its end."""
    if int(above.max()) >= tree.size:
        return None
    column = above + 1
    source = tree.probs_row.gather(1, column)[rows]
    token = tree.tokens.gather(1, column)[rows]
    point = torch.zeros_like(like).scatter_(2, token[:, :, None], 1.0)
    if tree.all_probs is None:
        return point
    places = source.clamp(min=0)[:, :, None].expand(-1, -1, like.shape[2])
    return torch.where(source[:, :, None] >= 0, tree.all_probs[rows].gather(1, places), point)


def recorded(
    executable: EagerExecutable,
    requests: Sequence[Request],
    forced: Sequence[Sequence[int]] = (),
    *,
    at_one: bool = False,
) -> list[tuple[list[int], Tensor]]:
    """What a plan emits for a batch, and the law of every token.

    Args:
        executable: of a plan whose laws are known (`unknown_law`).
        requests: a batch.
        forced: texts to emit in place of what is drawn, for a plan that drafts nothing.
        at_one: laws at temperature 1 without truncation, whatever the requests' settings.

    Returns:
        Per request its tokens, and their laws `[n, V]`.
    """
    shared = (executable.shared, None, executable.side_by_side)
    session = RecordingSession(
        executable.analysis, executable.models, requests, *shared, forced=forced, at_one=at_one
    )
    try:
        session.prefill()
        for _ in steps(executable.plan, session):
            pass
        texts = [session.text(row)[len(r.prompt_tokens) :] for row, r in enumerate(requests)]
    finally:
        session.release()
    return [(text, torch.stack(laws)) for text, laws in zip(texts, session.laws, strict=True)]


def unknown_law(plan: Plan) -> str | None:
    """Why the laws of a plan's tokens are not known exactly; None where they are."""
    from specplan.ir.types.infer import infer_round
    from specplan.ir.types.value_types import TreeType

    for item in plan.rounds:
        for step in infer_round(plan, item).steps:
            if step.op.judges is None or step.op.judges_by is None:
                continue
            rule, tree = step.op.judges_by, step.reads[step.op.judges]
            declared = BUILTIN.find("rule", rule.name)
            lossy = declared is None or declared.lossless == "never"
            if lossy and not (isinstance(tree, TreeType) and tree.is_chain):
                return f"rule {rule.name} judges a tree there, and laws are exact for chains only"
            if rule.name == "all":
                return "rule all judges by no logits"
            if rule.name == "joint":
                return "rule joint judges whole paths, and not each token"
    return None


def drafts_nothing(plan: Plan) -> bool:
    """Whether every round judges an empty tree, so that it emits one token."""
    from specplan.ir.types.infer import infer_round
    from specplan.ir.types.value_types import TreeType

    steps = (step for item in plan.rounds for step in infer_round(plan, item).steps)
    trees = [step.reads[step.op.judges] for step in steps if step.op.judges is not None]
    return all(isinstance(tree, TreeType) and tree.nodes == 0 for tree in trees)


def check_law(plan: Plan, measure: str) -> None:
    """Refuse to measure what is not known exactly.

    Raises:
        MissingCapabilityError: says why.
    """
    reason = unknown_law(plan)
    if reason is not None:
        raise MissingCapabilityError(
            f"the law of plan {plan.name} is not known exactly: {reason}",
            where=f"limits.quality.measure: {measure}",
            remedy="Measure outputs at temperature 0 (outputs_differ), or by a command.",
        )
