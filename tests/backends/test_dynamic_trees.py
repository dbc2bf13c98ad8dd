"""Trees that differ by request: what they draft, what the models see of them, what they emit."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
import transformers

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.eager.op_runner import Scope
from specplan.backends.eager.session import EagerSession
from specplan.backends.ops.tensors.values import Logits, Tree
from specplan.cost_models.memory.plan_memory import speculative_slots
from specplan.ir.plan import Plan
from specplan.ir.rules.verify import verify_plan
from specplan.ir.text.parser import parse_plan
from specplan.ir.values import Value
from specplan.measure.acceptance.teacher import text_logits
from specplan.planner.trees.shape import RankPath
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.loading import load_model
from specplan.runtime.requests import Request
from tests.backends.definition import decodes_as_defined
from tests.backends.dynamic_trees import dynamic_plan, dynamic_text, edited_texts, pool_size
from tests.backends.pairs import in_batches, load_pair, plainly, run, save_pair
from tests.beam_growth import beam_draft
from tests.runtime.tiny_models import save_tiny

SETTINGS = {
    "one level": (3, 1, 2),
    "one level, all of it": (3, 1, 3),
    "two levels": (3, 2, 5),
    "three levels": (4, 3, 9),
    "all that is drafted": (2, 4, pool_size(2, 4)),
    "more than is drafted": (2, 3, 40),
    "deep": (2, 6, 7),
    "one node": (3, 3, 1),
    "a chain, cut": (1, 4, 2),
}  # fmt: skip
"""Children, levels, judged nodes."""
EDITED = edited_texts()


@pytest.fixture(scope="module")
def models(pair_folder: Path) -> dict[str, CausalModel]:
    return load_pair(pair_folder)


def requests_of(count: int, temperature: float = 0.0) -> list[Request]:
    """Requests of different lengths, limits, stops and seeds."""
    return [
        Request(
            prompt_tokens=tuple((index * 7 + 3 * place) % 61 for place in range(1 + 2 * index)),
            max_new_tokens=9 + 5 * index % 17,
            stop_tokens=(7, 20) if index % 3 == 2 else (),
            temperature=temperature * (index % 4 > 0),
            top_k=(0, 20)[index % 2],
            seed=index,
        )
        for index in range(count)
    ]


@pytest.fixture(scope="module")
def expected(models: dict[str, CausalModel]) -> list[tuple[int, ...]]:
    """Plain decoding of eight requests."""
    return plainly(models, requests_of(8))


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_greedy_output_is_that_of_plain_decoding(
    setting: tuple[int, int, int],
    models: dict[str, CausalModel],
    expected: list[tuple[int, ...]],
) -> None:
    for greedy, batch in ((True, 8), (False, 5)):
        plan = dynamic_plan(*setting, greedy=greedy)
        assert in_batches(plan, models, requests_of(8), batch) == expected, (greedy, batch)


@pytest.mark.parametrize("name", EDITED)
def test_other_compositions_decode_as_is_defined(name: str, models: dict[str, CausalModel]) -> None:
    decodes_as_defined(EDITED[name], models, requests_of(3))


def test_a_pool_is_judged_as_it_is(
    models: dict[str, CausalModel], expected: list[tuple[int, ...]]
) -> None:
    text = dynamic_text(2, 4, 7).replace("  %c = prune %pool to=%b\n", "").replace("%c", "%pool")
    assert run(parse_plan(text), models, requests_of(8)) == expected


@pytest.mark.parametrize("family", ["mistral", "qwen2_windows", "gpt2", "opt"])
def test_other_architectures(family: str, tmp_path: Path) -> None:
    """Windows of 5 positions among them, in draft model and target."""
    folder = save_tiny(family, tmp_path / family)
    draft = save_tiny("qwen3_windows", tmp_path / "draft")
    pairs = [(folder, folder), (folder, draft), (draft, folder)]
    requests = requests_of(3)
    for target, drafter in pairs:
        models = {
            "target": load_model(target, dtype="float64"),
            "draft": load_model(drafter, dtype="float64"),
        }
        expected = plainly(models, requests)
        assert run(dynamic_plan(3, 4, 8), models, requests) == expected


def test_output_depends_on_the_seed_not_on_batch_mates(models: dict[str, CausalModel]) -> None:
    requests = requests_of(9, temperature=0.9)
    plan = dynamic_plan(3, 3, 8, greedy=False)
    together = in_batches(plan, models, requests, 9)
    assert in_batches(plan, models, requests[:3], 1) == together[:3]
    assert in_batches(plan, models, requests[::-1], 5) == together[::-1]
    again = [Request(**{**vars(item), "seed": item.seed + 100}) for item in requests]
    assert in_batches(plan, models, again, 9) != together


@torch.inference_mode()
def rounds_of(
    plan: Plan, models: dict[str, CausalModel], requests: list[Request], count: int, ops: int = 0
) -> list[tuple[list[list[int]], EagerSession, Scope]]:
    """Texts before each of some rounds, the session after it, and its values.

    The last `ops` ops are left out of the last round.
    """
    executable = EagerBackend().compile(plan, models)
    executable.analysis.spent = {}  # values are looked at afterwards
    session = executable.start(requests)
    session.prefill()
    rounds = []
    for left in reversed(range(count)):
        texts = [session.text(row) for row in range(len(requests))]
        scope: Scope = {}
        session.batch.begin_round()
        session.emitted = [[] for _ in requests]
        every = plan.rounds[0].ops
        session.run(every[: len(every) - (0 if left else ops)], scope)
        rounds.append((texts, session, scope))
    return rounds


def token_paths(tree: Tree, row: int) -> dict[int, tuple[int, ...]]:
    """The live nodes of a request's tree by their columns, as the tokens on their paths."""
    paths: dict[int, tuple[int, ...]] = {0: ()}
    tokens, parents, live = (
        field[row].tolist() for field in (tree.tokens, tree.parents, tree.live)
    )
    for node in range(1, tree.columns):
        if live[node]:
            paths[node] = (*paths[parents[node]], tokens[node])
    del paths[0]
    return paths


def logits_after(model: CausalModel, text: list[int], path: tuple[int, ...]) -> torch.Tensor:
    """Logits of the model after a text and a path, on their own."""
    whole = [*text, *path, 0]
    return text_logits(model, whole, len(whole) - 1)[0]


RAGGED = [
    Request(prompt_tokens=tuple((3 * i + size) % 61 for i in range(size)), max_new_tokens=60)
    for size in (2, 9, 23)
]


def test_every_node_sees_its_path_and_nothing_else(models: dict[str, CausalModel]) -> None:
    """Target rows and draft scores are those of each path run alone, round after round."""
    for texts, _, scope in rounds_of(dynamic_plan(3, 4, 10), models, RAGGED, 4):
        pool, tree, rows = (scope[Value(name)] for name in ("pool", "c", "l"))
        assert isinstance(pool, Tree) and isinstance(tree, Tree) and isinstance(rows, Logits)
        assert tree.scores is not None and tree.size == 10 and pool.size == pool_size(3, 4)
        logits, there = rows.of(tree.everything)
        assert there.all()
        for row, text in enumerate(texts):
            assert torch.allclose(logits[row, 0], logits_after(models["target"], text, ()))
            paths = token_paths(tree, row)
            assert len(paths) == 10
            for node, path in paths.items():
                alone = logits_after(models["target"], text, path)
                assert torch.allclose(logits[row, node], alone), path
                score = sum(
                    float(logits_after(models["draft"], text, path[:depth]).log_softmax(0)[token])
                    for depth, token in enumerate(path)
                )
                assert float(tree.scores[row, node]) == pytest.approx(score)


@dataclass
class DraftProbabilities:
    """A draft model's probabilities of children by rank, after a text and a path of ranks."""

    model: CausalModel
    text: list[int]
    ranked: dict[RankPath, list[int]] = field(default_factory=dict)

    def __call__(self, ranks: RankPath) -> list[float]:
        """Probabilities of a node's children, not increasing."""
        chances = logits_after(self.model, self.text, self.tokens_of(ranks)).softmax(0)
        ordered = chances.sort(descending=True, stable=True)
        self.ranked[ranks] = ordered.indices.tolist()
        return ordered.values.tolist()

    def tokens_of(self, ranks: RankPath) -> tuple[int, ...]:
        """The tokens on a path of ranks."""
        return tuple(self.ranked[ranks[:depth]][rank] for depth, rank in enumerate(ranks))


@pytest.mark.parametrize("setting", [(3, 4, 10), (2, 3, 6), (4, 2, 9), (3, 1, 2)])
def test_what_is_drafted_is_the_policys_tree(
    setting: tuple[int, int, int], models: dict[str, CausalModel]
) -> None:
    """`beam_draft` on the draft model's own probabilities, which knows no tensors."""
    children, levels, nodes = setting
    shapes = set()
    for texts, _, scope in rounds_of(dynamic_plan(*setting), models, RAGGED, 4):
        tree = scope[Value("c")]
        assert isinstance(tree, Tree)
        for row, text in enumerate(texts):
            draft = DraftProbabilities(models["draft"], text)
            drafted = beam_draft(draft, children, levels, nodes)
            assert drafted.pool == pool_size(children, levels)
            wanted = {draft.tokens_of(ranks) for ranks in drafted.tree.paths}
            assert set(token_paths(tree, row).values()) == wanted
            assert len(wanted) == tree.size == nodes
            shapes.add(drafted.tree.paths)
    assert len(shapes) > 1 or levels == 1, "the trees differ"


@pytest.mark.parametrize("pending", [2, 5])
def test_a_draft_model_that_lags_is_caught_up(pending: int, tmp_path: Path) -> None:
    """A sure model that drafts for itself: whole paths are accepted, their ends it never ran."""
    save_pair(tmp_path)
    sure = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "target")
    sure.lm_head.weight.data *= 30.0
    sure.save_pretrained(tmp_path / "sure")
    target = load_model(tmp_path / "sure", dtype="float64")
    rounds = rounds_of(
        dynamic_plan(3, 4, 9, pending=pending), {"target": target, "draft": target}, RAGGED, 4
    )
    for index, (texts, _, _) in enumerate(rounds):
        wanted = [len(item.prompt_tokens) + 5 * index for item in RAGGED]
        assert [len(text) for text in texts] == wanted
    session = rounds[-1][1]
    caches, lengths = session.batch.caches, session.lengths
    assert caches["dkv"].whole == [length - 2 for length in lengths]
    assert caches["kv"].whole == [length - 1 for length in lengths]


def test_pending_must_cover_the_end_of_a_path() -> None:
    for setting in ((3, 1, 2), (3, 2, 5), (3, 4, 9)):
        (finding,) = verify_plan(dynamic_plan(*setting, pending=1))
        assert finding.rule == "starvation" and "@dkv may lack 2 tokens" in finding.what
        assert not verify_plan(dynamic_plan(*setting, pending=2))


@pytest.mark.parametrize("setting", [(3, 4, 2), (2, 3, 10), (3, 2, 5)])
def test_slots_are_as_many_as_memory_counts(
    setting: tuple[int, int, int], models: dict[str, CausalModel]
) -> None:
    plan = dynamic_plan(*setting)
    session = rounds_of(plan, models, RAGGED, 2, ops=2)[-1][1]  # before its commits
    taken = {name: use.taken for name, use in session.batch.caches.items()}
    children, levels, nodes = setting
    assert taken == {"dkv": children * (levels - 1), "kv": nodes}
    assert speculative_slots(plan) == 1 + max(taken.values())


def test_the_cache_holds_the_accepted_path_wherever_it_stood(
    models: dict[str, CausalModel],
) -> None:
    """After a round both caches hold what plain passes over the text would have written."""
    plan = dynamic_plan(3, 4, 10)
    for _, session, _ in rounds_of(plan, models, RAGGED, 5)[-1:]:
        for name, use in session.batch.caches.items():
            for row in range(len(RAGGED)):
                text, length = session.text(row), use.whole[row]
                tokens = torch.tensor([text[:length]])
                positions = torch.arange(length)[None]
                alone = use.model.new_cache(1, length)
                mask = torch.ones(1, length, length, dtype=torch.bool).tril()
                use.model.hidden(tokens, positions, positions, mask, alone)
                for mine, wanted in zip(use.store.keys, alone.keys, strict=True):
                    assert torch.allclose(mine[row, :, :length], wanted[0, :, :length]), name
