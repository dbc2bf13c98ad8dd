"""Blocks that are searched for while decoding: what a trial learns, and what the search finds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
import transformers
from torch import Tensor

from specplan.backends.reference.backend import ReferenceBackend, ReferenceExecutable
from specplan.backends.static.holds import STATIC
from specplan.ir.blocks import Skips, spread
from specplan.ir.capabilities import refusals
from specplan.ir.errors import UsageError
from specplan.ir.parser import parse_plan
from specplan.ir.plan import Plan
from specplan.ir.printer import print_plan
from specplan.ir.verify import verify_plan
from specplan.measure.rehearsal import rehearse
from specplan.runtime.generate import generate
from specplan.runtime.models import CausalModel, load_model
from specplan.runtime.requests import Request
from specplan.runtime.sources.skip_sets import SkipSets
from tests.backends.pairs import in_batches, plain, save_pair

LAYERS = 6
SPARED = Skips.of([2, 4], [1, 3])
"""Blocks of the model that add nothing."""
SKIP = "cache=@kv pending=1 skip=@skips write=scratch"
TRIAL = f"  %m = forward target %c {SKIP} trial=true\n"
LESSON = "  update @skips %c logits=%m\n"
CHAIN = f"""  %t0 = root
  %c = repeat 4 (%t = %t0) {{
    %f = pick %t of=newest
    %q = forward target %f {SKIP}
    %n = grow %t at=%f logits=%q
    yield %n
  }}
"""
TREE = f"""  %t0 = root
  %q0 = forward target %t0 {SKIP}
  %t1 = grow %t0 at=%t0 logits=%q0 children=3
  %f1 = pick %t1 of=newest
  %q1 = forward target %f1 {SKIP}
  %c = grow %t1 at=%f1 logits=%q1 children=[2, 2, 1]
"""
JUDGED = """  %l = forward target %c cache=@kv pending=1
  %v = uniform 9 stream=accept
  %a = accept %c target=%l rule=recursive by=%v
  %e = emit %a
  commit @kv %e
"""


def plan_of(drafted: str, settings: str = "", layers: int = LAYERS) -> Plan:
    judged = JUDGED.replace("uniform 9", "uniform 5") if drafted == CHAIN else JUDGED
    plan = parse_plan(
        "plan searched\nmodel target\nassume reproducible=false\nstate @kv = cache target\n"
        f"state @skips = source skip_sets(layers={layers}, attention=2, mlp=2{settings}) "
        f"scope=process\nround search {{\n{drafted}{TRIAL}{judged}{LESSON}}}\n"
        f"round decode {{\n{drafted}{judged}}}\n"
        'schedule {\n  when "emitted < 24" search\n  otherwise decode\n}\n'
    )
    assert verify_plan(plan) == ()
    return plan


def without(stock: transformers.LlamaForCausalLM, skips: Skips) -> None:
    """Let blocks add nothing, for good."""
    for layer in skips.attentions:
        stock.model.layers[layer].self_attn.o_proj.weight.data.zero_()
    for layer in skips.mlps:
        stock.model.layers[layer].mlp.down_proj.weight.data.zero_()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("searched")
    save_pair(found, layers=LAYERS, sureness=4.0)
    stock = transformers.LlamaForCausalLM.from_pretrained(found / "target")
    without(stock, SPARED)
    stock.save_pretrained(found / "target")
    return found


@pytest.fixture(scope="module")
def models(folder: Path) -> dict[str, CausalModel]:
    return {"target": load_model(folder / "target", dtype="float64")}


def compiled(plan: Plan, models: dict[str, CausalModel]) -> tuple[ReferenceExecutable, SkipSets]:
    executable = ReferenceBackend().compile(plan, models)
    source = executable.shared["skips"]
    assert isinstance(source, SkipSets)
    return executable, source


def requests(count: int, tokens: int, temperature: float = 0.0) -> list[Request]:
    return [
        Request(
            prompt_tokens=tuple((i * 7 + 3 * j) % 61 for j in range(2 + i % 5)),
            max_new_tokens=tokens + i % 3,
            temperature=temperature,
            seed=i,
        )
        for i in range(count)
    ]


Stock = transformers.LlamaForCausalLM


def best_tokens(whole: Stock, spared: Stock, text: Sequence[int], start: int) -> list[int]:
    """By stock transformers: the best tokens after text[start - 1], ..., text[-2] of a model.

    What is before is read as another one left it, the whole model.
    """
    past = transformers.DynamicCache()
    with torch.inference_mode():
        whole(torch.tensor([text[: start - 1]]), past_key_values=past, use_cache=True)
        logits: Tensor = spared(torch.tensor([text[start - 1 : -1]]), past_key_values=past).logits
    found: list[int] = logits[0].argmax(-1).tolist()
    return found


@pytest.mark.parametrize(
    ("drafted", "temperature"), [(CHAIN, 0.8), (TREE, 0.0)], ids=["chain", "tree"]
)
def test_a_trial_counts_the_emitted_tokens_that_it_has_right(
    drafted: str, temperature: float, folder: Path, models: dict[str, CausalModel]
) -> None:
    """All that a round emitted, by the set on trial and not by the one that drafted."""
    executable, source = compiled(plan_of(drafted, ", window=1000000"), models)
    source.candidate = Skips.of([1, 3], [2, 3])
    whole, spared = (Stock.from_pretrained(folder / "target").double().eval() for _ in range(2))
    without(spared, source.candidate)
    told: list[tuple[int, int]] = []
    source.learn_trial = lambda tried, *counts: told.append(counts)  # type: ignore[method-assign]
    session = executable.start(requests(3, 8, temperature))
    session.prefill()
    right = longest = 0
    while not all(session.done):
        before = list(session.lengths)
        session.step("search")
        matched = scored = 0
        for row, start in enumerate(before):
            text = session.text(row)
            if len(text) > start:
                guesses = best_tokens(whole, spared, text, start)
                matched += sum(a == b for a, b in zip(guesses, text[start:], strict=True))
            scored += len(text) - start
            longest = max(longest, len(text) - start)
        assert told.pop() == (matched, scored) and not told
        right += matched
    assert right > 0 and longest > 1, "some trial and some draft was right"


@pytest.mark.parametrize("drafted", [CHAIN, TREE], ids=["chain", "tree"])
def test_output_is_that_of_plain_decoding(drafted: str, models: dict[str, CausalModel]) -> None:
    """While sets change in the middle of requests, too."""
    some = requests(4, 27)
    found = in_batches(plan_of(drafted, ", window=7, every=4"), models, some, 2)
    assert found == in_batches(plain(), models, some, 4)


def test_blocks_that_add_nothing_are_found(models: dict[str, CausalModel]) -> None:
    """Of 36 sets the search ends with just these; from then on every draft is accepted."""
    executable, source = compiled(plan_of(CHAIN, ", window=20, every=5, threshold=1.0"), models)
    while source.is_searching:
        tried = len(source.tried)
        generate(executable, requests(6, 20))
        assert len(source.tried) > tried or not source.is_searching
    assert source.best == SPARED and source.score == 1.0 > source.tried[spread(LAYERS, 2, 2)]
    heard: list[str] = []
    found = generate(
        executable, requests(3, 28), observer=lambda op, *_: heard.append(op.partition(":")[0])
    )
    for request, completion in zip(requests(3, 28), found.completions, strict=True):
        assert completion.rounds == -(-request.max_new_tokens // 5)
    assert found.rounds_by_name.keys() == {"search", "decode"}
    assert heard.count("forward") == 5 * found.rounds, "nothing is tried any more"
    executable.forget()
    again = executable.shared["skips"]
    assert isinstance(again, SkipSets) and again.is_searching and not again.tried


def test_rehearsed_rounds_are_those_of_the_schedule(models: dict[str, CausalModel]) -> None:
    """Places tell of the rounds that ran: long drafts at first, short ones later on."""
    search, decode = print_plan(plan_of(CHAIN)).split("round decode")
    decode = decode.replace("repeat 4", "repeat 1").replace("emitted < 24", "emitted < 9")
    plan = parse_plan(f"{search}round decode{decode}")
    (request,) = requests(1, 20)
    ((*places,),) = rehearse(compiled(plan, models)[0], [request])
    (completion,) = generate(compiled(plan, models)[0], [request]).completions
    rounds = place = 0
    while place < len(places):
        rounds, place = rounds + 1, place + places[place][0] + 1
    assert (rounds, len(places)) == (completion.rounds, len(completion.tokens))


def test_a_source_for_another_stack_is_refused(models: dict[str, CausalModel]) -> None:
    with pytest.raises(UsageError, match=r"@skips searches a stack of 7 layers, and target has 6"):
        ReferenceBackend().compile(plan_of(CHAIN, layers=7), models)


def test_graphs_refuse_what_changes_as_it_runs() -> None:
    """Each forward by its op, with what to say instead."""
    words = [str(item) for item in refusals(plan_of(CHAIN), STATIC)]
    drafts = [text for text in words if "name the blocks, skip=[attn.1, mlp.1]" in text]
    assert len(drafts) == 3 and all("forward target" in text for text in drafts)


def test_drafts_after_a_trial_are_refused() -> None:
    """They would read what the trial wrote."""
    second = f"  %k = pick %c of=newest\n  %p = forward target %k {SKIP}\n"
    text = print_plan(plan_of(CHAIN)).replace("  %l =", f"{second}  %l =", 1)
    (found,) = refusals(parse_plan(text), ReferenceBackend.capabilities)
    assert "leave out the same blocks" in str(found) and "%p" in str(found)
