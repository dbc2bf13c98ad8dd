"""Views of the chunks that the latest query asks for: what they hold, and what they draft."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.eager.capabilities import CAPABILITIES
from specplan.backends.eager.session import EagerSession
from specplan.backends.static.graph_capabilities import STATIC
from specplan.cost_models.rounds.demands import OpDemand, round_demands
from specplan.cost_models.rounds.refreshing import refresh_width
from specplan.ir.capabilities import refusals
from specplan.ir.errors import MissingCapabilityError
from specplan.ir.plan import CacheState, Plan
from specplan.ir.rules.verify import verify_plan
from specplan.ir.text.parser import parse_plan
from specplan.ir.values import State
from specplan.runtime.generate import generate
from specplan.runtime.models.loading import load_model
from specplan.runtime.requests import Request
from tests.backends.pairs import in_batches, load_pair, plain, plainly
from tests.backends.test_small_caches import small_plan
from tests.plan_texts import drafted
from tests.runtime.sources.test_retrieval import retained_by_definition
from tests.runtime.tiny_models import save_tiny

TREE = drafted(
    """
  %t0 = root
  %q0 = forward target %t0 cache=@part pending=1 write=scratch
  %t1 = grow %t0 at=%t0 logits=%q0 children=3
  %f = pick %t1 of=newest
  %q1 = forward target %f cache=@part write=scratch
  %c = grow %t1 at=%f logits=%q1 children=2
""",
    head="state @part = cache target view=@kv policy=retrieved(chunk=4) budget=12\n",
    draft=False,
    after="  refresh @part\n",
)


def chain(budget: int, chunk: int, greedy: bool = True) -> Plan:
    """The target drafts three tokens through a view."""
    return small_plan(True, f"policy=retrieved(chunk={chunk}) budget={budget}", greedy=greedy)


def requests(count: int, new: int, temperature: float = 0.0) -> list[Request]:
    return [
        Request(
            prompt_tokens=tuple((i * 7 + p * p * (i % 3 + 1)) % 61 for p in range(2 + i * 9)),
            max_new_tokens=new + i,
            seed=i,
            stop_tokens=(7,) if i % 3 == 0 else (),
            temperature=temperature,
        )
        for i in range(count)
    ]


@pytest.mark.parametrize("plan", [chain(4, 2), chain(19, 5), parse_plan(TREE)])
def test_output_is_that_of_plain_decoding(plan: Plan, pair_folder: Path) -> None:
    models, some = load_pair(pair_folder), requests(7, 16)
    assert verify_plan(plan) == () == refusals(plan, CAPABILITIES)
    expected = plainly(models, some)
    assert in_batches(plan, models, some[-2:], 1) == expected[-2:]
    assert in_batches(plan, models, some, 4) == expected


def test_what_is_drafted_does_not_depend_on_batch_mates(pair_folder: Path) -> None:
    """Draws tell: other chunks, or keys of other rows, would change the drafts, and the texts."""
    models, some = load_pair(pair_folder), requests(5, 14, temperature=0.9)
    plan = chain(12, 4, greedy=False)
    assert in_batches(plan, models, some, 5)[-3:] == in_batches(plan, models, some[-3:], 1)


def test_a_budget_for_all_text_drafts_the_targets_own_tokens(pair_folder: Path) -> None:
    models = load_pair(pair_folder)
    for request in requests(5, 16):
        if not request.stop_tokens:
            executable = EagerBackend().compile(chain(200, 8), models)
            assert generate(executable, [request]).rounds == -(-request.max_new_tokens // 4)


@pytest.mark.parametrize("plan", [chain(20, 4), parse_plan(TREE)], ids=["chain", "tree"])
def test_the_view_holds_what_the_query_of_the_last_root_asks_for(
    plan: Plan, pair_folder: Path
) -> None:
    """Round by round, the rows of a ragged batch against the definition, with queries made anew."""
    models = load_pair(pair_folder)
    some = [request for request in requests(6, 12) if not request.stop_tokens]
    session = EagerBackend().compile(plan, models).start(some)
    session.prefill()
    check_view(session, [length - 2 for length in session.lengths])
    for _ in range(4):
        roots = [length - 1 for length in session.lengths]
        session.step("decode")
        check_view(session, roots)


def check_view(session: EagerSession, roots: list[int]) -> None:
    """What `@part` holds is the definition's, by the queries of the tokens at `roots`."""
    whole, part = (session.batch.caches[name] for name in ("kv", "part"))
    assert part.retention is not None and part.whole == whole.whole
    for row, root in enumerate(roots):
        text = torch.tensor([session.text(row)[: root + 1]])
        places = torch.arange(root + 1)[None]
        alone = whole.model.new_cache(1, root + 1, queries=True)
        seen = torch.ones(1, root + 1, root + 1, dtype=torch.bool).tril()
        whole.model.hidden(text, places, places, seen, alone, latest=torch.tensor([root]))
        assert alone.queries is not None
        length = whole.whole[row]
        for layer, asked in enumerate(alone.queries):
            for head in range(asked.shape[1]):
                keys = whole.store.keys[layer][row, head]
                query = asked[0, head].tolist()
                chosen = retained_by_definition(
                    keys[:length].tolist(), query, part.retention.budget, part.retention.retrieved
                )
                view = part.store.keys[layer][row, head, : length - part.forgotten[row]]
                assert torch.equal(view, keys[chosen])


def test_no_query_is_kept_where_nobody_asks(pair_folder: Path) -> None:
    models = load_pair(pair_folder)
    for plan, asked in ((chain(12, 4), True), (plain(), False)):
        session = EagerBackend().compile(plan, models).start(requests(1, 4))
        assert (session.batch.caches["kv"].store.queries is not None) == asked


@pytest.mark.parametrize("policy", ["retrieved(chunk=4)", "sink_recent(sink=2)"])
def test_a_refresh_tells_its_policy_and_its_size_as_prices_ask_for_them(
    policy: str, pair_folder: Path
) -> None:
    plan = small_plan(True, f"policy={policy} budget=12")
    view, step = plan.state(State("part")), round_demands(plan, plan.rounds[0]).steps[-1]
    assert isinstance(view, CacheState) and isinstance(step, OpDemand)
    session = EagerBackend().compile(plan, load_pair(pair_folder)).start(requests(4, 8))
    session.prefill()
    seen: list[tuple[str, int]] = []
    session.step("decode", lambda op, model, b, width, context, s: seen.append((op, width)))
    longest = max(session.batch.caches["kv"].whole)
    assert seen[-1] == (step.name, refresh_width(view, longest))
    assert step.name == f"refresh:{policy.partition('(')[0]}"


BROKEN = {
    "chunks of a cache of one's own": (" view=@kv", "", "view="),
    "less than two chunks": ("budget=12", "budget=7", "budget=8"),
    "chunks of nothing": ("chunk=4", "chunk=0", "chunk: 0"),
}


@pytest.mark.parametrize(("old", "new", "reason"), BROKEN.values(), ids=BROKEN)
def test_views_without_chunks_to_keep_are_refused(old: str, new: str, reason: str) -> None:
    assert old in TREE
    findings = verify_plan(parse_plan(TREE.replace(old, new)))
    assert any(item.rule == "state" and reason in str(item) for item in findings), findings


def test_models_with_windows_and_compiled_rounds_are_refused(tmp_path: Path) -> None:
    windowed = load_model(save_tiny("mistral", tmp_path / "target"), dtype="float64")
    with pytest.raises(MissingCapabilityError, match="sliding windows") as caught:
        EagerBackend().compile(chain(12, 4), {"target": windowed})
    assert "sink_recent" in (caught.value.remedy or "")
    assert any("whole caches only" in refusal.reason for refusal in refusals(chain(12, 4), STATIC))
