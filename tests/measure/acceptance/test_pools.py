"""Where a text stands in a draft's pools: against trees really drafted, round by round."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from torch import Tensor  # noqa: E402

from specplan.cost_models.acceptance.drafters import Beam  # noqa: E402
from specplan.cost_models.acceptance.evidence.pools import Pools  # noqa: E402
from specplan.cost_models.acceptance.profile import AcceptanceKey, AcceptanceProfile  # noqa: E402
from specplan.measure.acceptance import pools as pools_module  # noqa: E402
from specplan.measure.acceptance.pools import pool_places  # noqa: E402
from specplan.measure.acceptance.teacher import text_logits  # noqa: E402
from specplan.planner.trees.shape import RankPath, StaticTree  # noqa: E402
from specplan.runtime.acceptance import RULES, DraftedTree  # noqa: E402
from specplan.runtime.models.causal import CausalModel  # noqa: E402
from specplan.runtime.models.loading import load_model  # noqa: E402
from specplan.runtime.requests import Request  # noqa: E402
from specplan.runtime.sampling import SamplingSettings, probabilities  # noqa: E402
from tests.backends.pairs import load_pair, save_pair  # noqa: E402
from tests.beam_growth import beam_draft  # noqa: E402
from tests.runtime.tiny_models import save_tiny  # noqa: E402

torch.set_num_threads(1)
LAYERS = 4
PROMPT = (3, 5, 7, 5, 9, 11)


class Drafter:
    """A draft model in one context, asked for the children of a node by its path of ranks."""

    def __init__(self, model: CausalModel, text: list[int]) -> None:
        self.model = model
        self.text = text
        self.known: dict[RankPath, tuple[list[int], list[float]]] = {}

    def children(self, path: RankPath) -> tuple[list[int], list[float]]:
        """Tokens and probabilities, likeliest first: a whole pass over text and path."""
        if path not in self.known:
            text = [*self.text, *self.tokens(path)]
            row = text_logits(self.model, [*text, 0], len(text))[0].softmax(-1)
            order = sorted(range(len(row)), key=lambda token: (-float(row[token]), token))
            self.known[path] = order, [float(row[token]) for token in order]
        return self.known[path]

    def tokens(self, path: RankPath) -> list[int]:
        return [self.children(path[:depth])[0][rank] for depth, rank in enumerate(path)]

    def tree(self, beam: int, layers: int, nodes: int) -> StaticTree:
        return beam_draft(lambda path: self.children(path)[1], beam, layers, nodes).tree


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CausalModel]:
    folder = tmp_path_factory.mktemp("pair")
    save_pair(folder)
    return load_pair(folder)


def settings(temperature: float) -> SamplingSettings:
    return SamplingSettings.of([Request(prompt_tokens=PROMPT, temperature=temperature)])


def written(target: CausalModel, temperature: float, count: int, seed: int) -> list[int]:
    """A text of the target's own, greedy or sampled."""
    torch.manual_seed(seed)
    text = list(PROMPT)
    for _ in range(count):
        logits = text_logits(target, [*text, 0], len(text))
        text.append(int(probabilities(logits[None], settings(temperature))[0, 0].multinomial(1)))
    return text


def spelled(drafter: Drafter, tree: StaticTree, ahead: list[int]) -> int:
    """Tokens of the path of a tree that spells what comes."""
    paths = set(tree.paths)
    here: RankPath = ()
    for token in ahead:
        ranks = [p for p in paths if p[:-1] == here and drafter.tokens(p)[-1] == token]
        if not ranks:
            break
        here = ranks[0]
    return len(here)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("beam", [2, 3])
def test_accepted_lengths_are_those_of_trees_drafted_anew(
    pair: dict[str, CausalModel], beam: int, temperature: float
) -> None:
    """Every position, every number of layers, every number of verified nodes."""
    text = written(pair["target"], temperature, 14, seed=1)
    start = len(PROMPT)
    rows = tuple(pool_places(pair["draft"], text, start, beam, LAYERS))
    pools = Pools(LAYERS, (rows,))
    assert pools.problem() is None
    drafters = [Drafter(pair["draft"], text[:place]) for place in range(start, len(text))]
    depths = set()
    for layers in range(1, LAYERS + 1):
        for nodes in (1, 2, 3, 5, 8, 100):
            (lengths,) = pools.lengths(layers, nodes)
            expected = [
                spelled(drafter, drafter.tree(beam, layers, nodes), text[place:])
                for place, drafter in enumerate(drafters, start=start)
            ]
            assert list(lengths) == expected, (layers, nodes)
            depths |= set(expected)
    assert {0, 1, 2} <= depths, "the text is met to several depths"


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_rounds_that_the_rule_judges_accept_what_teacher_forcing_says(
    pair: dict[str, CausalModel], temperature: float
) -> None:
    """Real rounds: a drafted tree, the target's laws, the rule's draws. Exact, sampled as well."""
    beam, layers, nodes = 3, 3, 6
    for seed in range(3):
        torch.manual_seed(seed)
        text, accepted, lagging = list(PROMPT), [], []
        while len(text) < 40:
            drafter = Drafter(pair["draft"], list(text))
            tree = drafter.tree(beam, layers, nodes)
            path, bonus = judged(pair["target"], text, drafter, tree, temperature)
            ran = {*expanded(drafter, beam, layers)}
            lagging.append(path not in ran)
            text += [*drafter.tokens(path), bonus]
            accepted.append(len(path))
        rows = (tuple(pool_places(pair["draft"], text, len(PROMPT), beam, LAYERS)),)
        key = AcceptanceKey(Beam("draft", beam), temperature=temperature)
        profile = AcceptanceProfile(key, Pools(LAYERS, rows, beam))
        cut = profile.evidence.cut(layers, nodes)
        starts = [0]
        for count in accepted[:-1]:
            starts.append(starts[-1] + count + 1)
        assert [cut.rows[0][start] for start in starts] == accepted
        rounds = cut.model.rounds(range(-1, layers - 1), (0,) * layers, len(text) - len(PROMPT))
        assert rounds.mean == len(accepted)
        share = profile.evidence.lag_share(layers, nodes)
        assert share == pytest.approx(sum(lagging) / len(lagging))
        assert len(set(accepted)) > 1


def judged(
    target: CausalModel, text: list[int], drafter: Drafter, tree: StaticTree, temperature: float
) -> tuple[RankPath, int]:
    """The accepted path and the bonus token, by the rule of the temperature."""
    paths = list(tree.paths)
    contexts = [[*text, *drafter.tokens(path)] for path in ((), *paths)]
    rows = torch.stack([text_logits(target, [*c, 0], len(c))[0] for c in contexts])[None]
    drafted = DraftedTree(
        tokens=torch.tensor([[drafter.tokens(path)[-1] for path in paths]]), parents=tree.parents
    )
    if temperature == 0.0:
        judgement = RULES["greedy"].accept(drafted, rows, None)
    else:
        drawn = torch.rand(1, len(paths) + 1)
        judgement = RULES["recursive"].accept(
            drafted, probabilities(rows, settings(temperature)), drawn
        )
    count = int(judgement.accepted[0])
    last = judgement.path[0, count - 1] if count else None
    return (() if last is None else paths[int(last)]), int(judgement.bonus[0])


def expanded(drafter: Drafter, beam: int, layers: int) -> Iterator[RankPath]:
    """The root and the nodes that the draft model ran."""
    newest: list[tuple[float, RankPath]] = [(1.0, ())]
    for _ in range(layers):
        chosen = sorted(newest, key=lambda node: -node[0])[:beam]
        yield from (path for _, path in chosen)
        newest = [
            (reached * share, (*path, rank))
            for reached, path in chosen
            for rank, share in enumerate(drafter.children(path)[1][:beam])
        ]


@pytest.mark.parametrize("kind", ["mistral", "gpt2", "qwen3_windows"])
def test_windows_and_learned_positions_are_kept(kind: str, tmp_path: Path) -> None:
    model = load_model(save_tiny(kind, tmp_path), dtype="float64")
    text = written(model, 0.2, 16, seed=2)
    rows = tuple(pool_places(model, text, len(PROMPT), 2, 3))
    (lengths,) = Pools(3, (rows,)).lengths(3, 5)
    expected = [
        spelled(drafter, drafter.tree(2, 3, 5), text[place:])
        for place in range(len(PROMPT), len(text))
        for drafter in [Drafter(model, text[:place])]
    ]
    assert list(lengths) == expected and max(expected) == 3


def test_few_positions_together_give_the_same(
    pair: dict[str, CausalModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = written(pair["target"], 0.0, 20, seed=3)
    whole = pool_places(pair["draft"], text, len(PROMPT), 4, LAYERS)
    monkeypatch.setattr(pools_module, "MOST_QUERIES", 9)
    assert pool_places(pair["draft"], text, len(PROMPT), 4, LAYERS) == whole


def test_the_bonus_after_point_children_is_none_of_them() -> None:
    """Why the accepted path is the one that spells the text, whatever the uniforms are."""
    torch.manual_seed(4)
    vocabulary = 5
    for _ in range(300):
        rows: Tensor = torch.rand(1, 4, vocabulary).softmax(-1)
        tokens = torch.randperm(vocabulary)[:3][None]
        tree = DraftedTree(tokens=tokens, parents=(-1, -1, -1))
        judgement = RULES["recursive"].accept(tree, rows, torch.rand(1, 4))
        if int(judgement.accepted[0]) == 0:
            assert int(judgement.bonus[0]) not in tokens[0].tolist()


def test_a_text_that_is_never_met_has_no_places(pair: dict[str, CausalModel]) -> None:
    """Every token is the one that the draft model likes least."""
    text = list(PROMPT)
    for _ in range(4):
        text.append(int(text_logits(pair["draft"], [*text, 0], len(text))[0].argmin()))
    assert pool_places(pair["draft"], text, len(PROMPT), 2, LAYERS) == [(1,)] * 4


def test_equal_logits_take_the_lower_token_first(tmp_path: Path) -> None:
    save_pair(tmp_path)
    model = load_pair(tmp_path)["draft"]
    head = model.head.weight.data
    head[1::2] = head[:-1:2]  # every token but the last has a twin
    text = written(model, 0.0, 12, 0)
    places = list(pool_places(model, text, len(PROMPT), 2, LAYERS))
    assert places
    twin = Drafter(model, text[: len(PROMPT)])
    tokens, _ = twin.children(())
    assert (tokens[0] // 2, tokens[0] % 2, tokens[1]) == (tokens[1] // 2, 0, tokens[0] + 1)
