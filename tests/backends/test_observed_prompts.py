"""Views of what the last tokens of a prompt attend to: what they hold, and what they draft."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.eager.session import EagerSession
from specplan.ir.errors import MissingCapabilityError
from specplan.ir.plan import Plan
from specplan.ir.rules.verify import verify_plan
from specplan.ir.text.parser import parse_plan
from specplan.ir.text.printer import print_plan
from specplan.measure.acceptance.own_drafts import RetrievingText
from specplan.runtime.models.cache_parts.observed import ObservedPrompts, Window
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.loading import load_model
from specplan.runtime.requests import Request
from tests.backends.definition import decodes_as_defined
from tests.backends.pairs import in_batches, load_pair, save_pair
from tests.backends.test_retrieved_chunks import TREE, requests
from tests.backends.test_small_caches import small_plan
from tests.backends.text_laws import VOCABULARY, law_of_texts, p_value
from tests.runtime.tiny_models import save_tiny

torch.set_num_threads(1)
POLICY = "policy=observed(window=4, pool=3) budget=14"
TREES = TREE.replace("policy=retrieved(chunk=4) budget=12", POLICY)


def chain(retention: str = POLICY, greedy: bool = True, length: int = 3) -> Plan:
    return small_plan(True, retention, length=length, greedy=greedy)


def chosen_by_definition(
    votes: list[float], window: Window, prompt: int, length: int, budget: int
) -> list[int]:
    """Tokens that one head keeps of a text, written out slowly, from the votes for its prompt."""
    if length <= budget:
        return list(range(length))
    half = window.pool // 2
    padded = [0.0] * half + votes + [0.0] * half
    smooth = [sum(padded[i : i + window.pool]) / window.pool for i in range(len(votes))]
    behind = min(length - prompt + window.size, budget // 2)
    wanted = min(budget - behind, len(votes))
    best = sorted(range(len(votes)), key=lambda i: (-smooth[i], i))[:wanted]
    return [*sorted(best), *range(length - (budget - wanted), length)]


def stock_votes(folder: Path, prompt: list[int], window: Window, kv_heads: int) -> torch.Tensor:
    """Attention of the last tokens to those before, summed over query heads `[layers, H_kv, N]`."""
    stock = transformers.AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float64
    )
    with torch.inference_mode():
        weights = stock(torch.tensor([prompt]), output_attentions=True).attentions
    size = len(prompt) - window.size
    sums = [one[0, :, size:, :size].sum(1).unflatten(0, (kv_heads, -1)).sum(1) for one in weights]
    return torch.stack(sums)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_the_view_holds_what_the_prompt_ends_attending_to(family: str, tmp_path: Path) -> None:
    """Round by round, in a ragged batch, by the attention of stock models."""
    folder, window = save_tiny(family, tmp_path / "target"), Window(4, 3)
    models = {"target": load_model(folder, dtype="float64")}
    some = [one for one in requests(6, 16) if not one.stop_tokens]
    session = EagerBackend().compile(chain(), models).start(some)
    session.prefill()
    heads, checked = models["target"].family.kv_heads, 0
    for _ in range(5):
        for row, request in enumerate(some):
            prompt = list(request.prompt_tokens[:-1])
            votes = None
            if len(prompt) > window.size:
                votes = stock_votes(folder, prompt, window, heads)
            checked += check_row(session, row, votes, len(prompt), window)
        session.step("decode")
    assert checked > 20, "most rows were longer than the budget"


def check_row(
    session: EagerSession, row: int, votes: torch.Tensor | None, prompt: int, window: Window
) -> int:
    """Compare what a row of the view holds; how many layers and heads were cut short."""
    whole, part = (session.batch.caches[name] for name in ("kv", "part"))
    length, cut = whole.whole[row], 0
    for layer, keys in enumerate(whole.store.keys):
        for head in range(keys.shape[1]):
            given = [] if votes is None else votes[layer, head].tolist()
            chosen = chosen_by_definition(given, window, prompt, length, 14)
            view = part.store.keys[layer][row, head, : length - part.forgotten[row]]
            assert torch.equal(view, keys[row, head][chosen])
            cut += len(chosen) < length
    return cut


def test_it_decodes_as_is_defined(pair_folder: Path) -> None:
    models, some = load_pair(pair_folder), requests(4, 14)[1:]
    for plan in (print_plan(chain()), TREES):
        decodes_as_defined(plan, models, some)
    drawn = chain(greedy=False)
    hot = requests(5, 14, temperature=0.9)
    assert in_batches(drawn, models, hot, 5) == in_batches(drawn, models, hot, 1)


def test_the_targets_law_is_kept(tmp_path: Path) -> None:
    save_pair(tmp_path, VOCABULARY, scale=0.15)
    small = load_pair(tmp_path)
    plan = chain("policy=observed(window=1, pool=1) budget=2", greedy=False, length=2)
    assert p_value(plan, small, law_of_texts(small["target"]), seeds=800) > 1e-4


def test_teacher_forcing_accepts_what_rounds_accept(tmp_path: Path) -> None:
    """From every place where a round began: votes are the prompt's, whatever the place."""
    save_pair(tmp_path, scale=0.14)
    models = load_pair(tmp_path)
    prompt = tuple((7 * place + place * place) % 61 for place in range(40))
    request = Request(prompt_tokens=prompt, max_new_tokens=50)
    session = EagerBackend().compile(chain(), models).start([request])
    session.prefill()
    begun = list[tuple[int, int]]()
    while not session.done[0]:
        before = session.lengths[0]
        session.step("decode")
        begun.append((before - 40, session.lengths[0] - before - 1))
    text = RetrievingText(models["target"], request, session.text(0)[40:], 3)
    lengths = text.observed_lengths(14, Window(4, 3))
    assert [lengths[place] for place, _ in begun[:-1]] == [accepted for _, accepted in begun[:-1]]
    assert 0 < sum(lengths) < 3 * len(lengths)
    assert text.observed_lengths(200, Window(4, 3)) == [min(3, 50 - place) for place in range(50)]


@pytest.mark.parametrize(("prompt", "length"), [(0, 30), (20, 20), (20, 40), (5, 30), (2, 30)])
def test_parts_fill_the_budget(prompt: int, length: int) -> None:
    voted, latest = Window(4, 3).parts(14, prompt, length)
    assert voted + latest == 14 and voted <= max(prompt - 4, 0)
    assert prompt <= 4 or latest >= 4


def test_a_prompt_is_observed_once(pair_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ranked, rank = list[int](), ObservedPrompts.rank

    def counting(self: ObservedPrompts, whole: object, row: int, most: int) -> object:
        ranked.append(row)
        return rank(self, whole, row, most)  # type: ignore[arg-type]

    monkeypatch.setattr(ObservedPrompts, "rank", counting)
    models: dict[str, CausalModel] = load_pair(pair_folder)
    session = EagerBackend().compile(chain(), models).start(requests(5, 18)[3:])
    session.prefill()
    for _ in range(3):
        session.step("decode")
    assert sorted(ranked) == [0, 1]


BROKEN = {
    "no other cache": (" view=@kv", "", "give view="),
    "no token in the middle": ("pool=3", "pool=4", "odd"),
    "nobody votes": ("window=4", "window=0", "window: 0"),
}


@pytest.mark.parametrize(("old", "new", "reason"), BROKEN.values(), ids=BROKEN)
def test_views_that_mean_nothing_are_refused(old: str, new: str, reason: str) -> None:
    assert old in TREES
    findings = verify_plan(parse_plan(TREES.replace(old, new)))
    assert any(item.rule == "state" and reason in str(item) for item in findings), findings


def test_models_with_windows_are_refused(tmp_path: Path) -> None:
    windowed = load_model(save_tiny("mistral", tmp_path / "target"), dtype="float64")
    with pytest.raises(MissingCapabilityError, match="sliding windows"):
        EagerBackend().compile(chain(), {"target": windowed})
