"""Draft models distilled from a tiny target: exact resume, acceptance, trained equals served."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers

from specplan.backends.registry import get_backend
from specplan.cost_models.acceptance.evidence.rounds import RoundsRun
from specplan.cost_models.devices.device import load_device
from specplan.ir.errors import UsageError
from specplan.measure.acceptance.teacher import greedy_ranks, text_logits
from specplan.measure.progress import silent
from specplan.measure.workbench import Workbench
from specplan.planner import gather_facts, load_problem
from specplan.planner.methods.draft_model import METHOD, ParallelChainOptions
from specplan.planner.trees import chain
from specplan.runtime.generate import generate
from specplan.runtime.models.heads.text_attention import Texts
from specplan.runtime.models.loading import load_model
from specplan.training.drafts.distilling import DistillRecipe, DraftLearner, soft_objective
from specplan.training.drafts.passes import Stack, trainable_model
from specplan.training.drafts.samples import drawn_on_policy, own_texts
from specplan.training.evaluating import evaluation, unseen_texts, with_drafter
from specplan.training.learning.features import Features
from specplan.training.learning.packing import Text, rows_of
from specplan.training.session import bare_problem
from specplan.training.train import hand_over_drafter, train_drafter
from specplan.training.trainer import Trained, train_learner
from tests.measure.problems import write_problem
from tests.runtime.tiny_models import save_tiny

torch.set_num_threads(1)
RECIPE = DistillRecipe(rows=2, row_tokens=60, learning_rate=0.01, warmup=2, temperature=1.0)


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny pair, four prompts that are held out, and those to train on."""
    folder = tmp_path_factory.mktemp("problem")
    path = write_problem(folder, prompts=4, output_tokens=16)
    lines = [json.loads(line) for line in (folder / "prompts.jsonl").read_text().splitlines()]
    train = [
        {**one, "id": f"t{i}", "text": one["text"][5:], "split": "train"}
        for i, one in enumerate(lines)
    ]
    (folder / "prompts.jsonl").write_text("\n".join(map(json.dumps, [*lines, *train])))
    value = json.loads(path.read_text()) | {"device": "cpu-generic", "sources": []}
    path.write_text(json.dumps(value))
    draft = transformers.LlamaForCausalLM.from_pretrained(folder / "draft")
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():  # as if it had been trained for something else
        for weight in draft.parameters():
            weight += 0.15 * weight.std() * torch.randn(weight.shape, generator=generator)
    draft.save_pretrained(folder / "draft")
    return path


@pytest.fixture(scope="module")
def bench(problem: Path) -> Workbench:
    return Workbench(load_problem(problem))


def texts_of(count: int) -> list[Text]:
    generator = torch.Generator().manual_seed(1)
    drawn = torch.randint(30, 90, (count, 24), generator=generator)
    return [Text(tuple(row), 6) for row in drawn.tolist()]


@pytest.mark.parametrize(
    "kind", ["llama_variants", "qwen3_windows", "mistral", "gpt2", "opt_post_norm"]
)
def test_passes_with_gradients_are_those_of_decoding(kind: str, tmp_path: Path) -> None:
    """Two texts in a row give the logits that the runtime computes of each alone."""
    save_tiny(kind, tmp_path / kind)
    model = trainable_model(tmp_path / kind, torch.float64, torch.device("cpu"))
    served = load_model(tmp_path / kind, dtype="float64")
    rows = rows_of([[Text((5, 9, 3, 8, 20, 11, 2, 4, 1, 7), 0), Text((7, 1, 2), 0)]])
    (states,) = Stack(model.requires_grad_(True)).ahead(rows.texts, torch.arange(13)[None])
    logits = model.get_output_embeddings()(states)
    place = 0
    for tokens in ([5, 9, 3, 8, 20, 11, 2, 4, 1, 7], [7, 1, 2]):
        alone = Texts.alone(torch.tensor([tokens]))
        cache = served.new_cache(1, len(tokens))
        with torch.inference_mode():
            slots = alone.positions
            wanted = served.forward(alone.tokens, slots, slots, alone.causal(), cache)[0]
        own = logits[0, place : place + len(tokens)]
        # stock norms compute in float32
        torch.testing.assert_close(own, wanted, rtol=1e-4, atol=1e-4)
        place += len(tokens)
    logits.sum().backward()
    assert all(weight.grad is not None for weight in model.parameters())


def trained(bench: Workbench, folder: Path, recipe: DistillRecipe, until: int | None) -> Trained:
    start = bench.problem.models.drafts[0].path
    learner = DraftLearner(start, bench.models["target"], recipe, texts=texts_of(8))
    objective = soft_objective(learner, recipe)
    return train_learner(learner, objective, texts_of(8), 8, folder, recipe, until=until)


@pytest.mark.parametrize(
    ("loss", "on_policy", "parallel"), [("jsd", 0.5, 1), ("tvd++", 0.0, 1), ("ce", 0.0, 3)]
)
def test_half_and_half_is_the_whole_and_transformers_loads_it(
    bench: Workbench, loss: str, on_policy: float, parallel: int, tmp_path: Path
) -> None:
    recipe = replace(RECIPE, on_policy=on_policy, loss=loss, parallel=parallel)
    whole = trained(bench, tmp_path / "whole", recipe, None)
    for until in (3, None):
        trained(bench, tmp_path / "parts", recipe, until)
    for name in ("model.safetensors", "optimizer.state", "training.json", "config.json"):
        files = [(tmp_path / folder / name).read_bytes() for folder in ("whole", "parts")]
        assert files[0] == files[1], name
    drawn = [drawn_on_policy(on_policy, 0, step) for step in range(8)]
    assert drawn.count(True) == 8 * on_policy and (not on_policy or True in drawn[:3])
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "whole")
    tokens = torch.tensor([texts_of(1)[0].tokens])
    served, positions = whole.drafter, torch.arange(24)[None]
    with torch.inference_mode():
        causal = Texts.alone(tokens).causal()
        mine = served.forward(tokens, positions, positions, causal, served.new_cache(1, 24))
        torch.testing.assert_close(loaded.double()(tokens).logits, mine, rtol=1e-4, atol=1e-4)
    with pytest.raises(UsageError, match="differs in its recipe"):
        trained(bench, tmp_path / "whole", replace(recipe, on_policy=0.25), None)


def test_samples_are_the_drafts_own_and_depend_on_nothing_beside(bench: Workbench) -> None:
    model, (one, other) = bench.models["draft"], texts_of(2)
    alone = own_texts(model, [[one]], 1.0, 5)[0][0]
    beside = own_texts(model, [[other, one]], 1.0, 5)[0][1]
    assert alone == beside and alone.start == 6
    assert alone.tokens[:6] == one.tokens[:6] and alone.tokens != one.tokens
    assert own_texts(model, [[one]], 1.0, 6)[0][0] != alone
    (middle,) = own_texts(model, [[replace(one, start=0)]], 1.0, 5)[0]
    assert middle.start == 12 and len(middle.tokens) == 24


def test_acceptance_rises_and_is_what_is_served(problem: Path, tmp_path: Path) -> None:
    """The same command as for heads, with the same stages."""
    folder = tmp_path / "draft"
    bench = Workbench(load_problem(problem))
    texts = unseen_texts(bench, silent)
    before = evaluation(bench.models["draft"], texts, 0)
    done = train_drafter(problem, "draft", folder, steps=20, learning_rate=0.01)
    after = evaluation(done.drafter, texts, 20)
    rates = [sum(row[0] for row in one.accepted) / sum(one.reached) for one in (before, after)]
    assert rates[1] > rates[0] + 0.1, rates
    published = hand_over_drafter(problem, "draft_model", folder, number_type="float32")
    assert published.prompts == 4 and published.rounds > 0
    assert {"config.json", "model.safetensors", "tokenizer.json", "acceptance.json"} <= {
        path.name for path in published.folder.iterdir()
    }
    card = (published.folder / "README.md").read_text()
    assert "A draft model, distilled from its target (50% of the steps on policy)" in card
    load_model(published.folder)
    with pytest.raises(UsageError, match="setting is for draft models"):
        train_drafter(problem, "medusa", tmp_path / "m", on_policy=0.5)


def test_the_target_as_its_own_draft_is_accepted_always(problem: Path, tmp_path: Path) -> None:
    """Before and after training: nothing is left to learn from itself."""
    value = json.loads(problem.read_text())
    value["models"]["drafts"][0]["path"] = str(problem.parent / "target")
    for temperature in (0.9, 0.0):
        value["workload"]["temperature"] = temperature
        own = problem.parent / f"own{temperature}.yaml"
        own.write_text(json.dumps(value))
        folder = tmp_path / str(temperature)
        done = train_drafter(own, "draft", folder, steps=2, loss="kl", learning_rate=1e-4)
        assert max(map(abs, done.losses)) < 1e-3
        counted = evaluation(done.drafter, unseen_texts(Workbench(load_problem(own)), silent), 2)
        assert [row[0] for row in counted.accepted] == list(counted.reached)


def test_a_later_draft_learns_what_the_earlier_ones_miss(bench: Workbench, tmp_path: Path) -> None:
    """SpecInfer's boosting: of the target as an earlier draft, nothing is left along its texts."""
    folder, target = bench.problem.models.drafts[0].path, bench.models["target"]
    texts = [
        Text(tuple(text.tokens), text.start) for text in unseen_texts(bench, silent) if text.output
    ]
    recipe, counts = replace(RECIPE, on_policy=0.0), []
    for before in ((), (bench.models["draft"],), (bench.models["draft"], target)):
        learner = DraftLearner(folder, target, recipe, before=before)
        features = Features(learner, [texts], soft_objective(learner, recipe))
        counts.append(learner.rows(features, [0], 0)[0].counts)
    ranks = [
        greedy_ranks(
            text_logits(bench.models["draft"], t.tokens, t.start), list(t.tokens[t.start :]), 1
        )
        for t in texts
    ]
    assert counts[0].sum() == sum(map(len, ranks))
    assert counts[1].sum() == sum(rank != 0 for row in ranks for rank in row) > 0
    assert not counts[2].any()
    with pytest.raises(UsageError, match='no draft model "other"'):
        train_drafter(bench.problem, "draft", tmp_path / "x", after=["other"])


def test_one_pass_drafts_what_its_masks_learned(problem: Path, tmp_path: Path) -> None:
    """PARD: the masks learn, and rounds accept as many tokens as training says."""
    more = {"learning_rate": 0.01, "parallel": 3}
    done = train_drafter(problem, "draft", tmp_path / "draft", steps=15, **more)
    config = json.loads((tmp_path / "draft/config.json").read_text())
    assert config["pard_token"] == done.drafter.mask_token and config["spd_type"] == "pard"
    texts = unseen_texts(Workbench(load_problem(problem)), silent)
    untrained = Workbench(load_problem(problem)).models["draft"]
    untrained.mask_token = done.drafter.mask_token
    counts = [evaluation(one, texts, 0) for one in (untrained, done.drafter)]
    rates = [sum(row[0] for row in one.accepted[:3]) / one.reached[0] for one in counts]
    assert rates[1] > rates[0] + 0.1, rates
    published = hand_over_drafter(problem, "draft", tmp_path / "draft", number_type="float32")
    assert published.rounds > 0
    assert "drafts 3 tokens in one pass" in (published.folder / "README.md").read_text()
    assert isinstance(published.profile.evidence, RoundsRun)
    served = Workbench(with_drafter(bare_problem(load_problem(problem)), "draft", published.folder))
    facts = gather_facts(served.problem, device=load_device("cpu-generic"))
    plan = METHOD.plan(facts, ParallelChainOptions.of("draft", chain(3)))
    request = texts[0].request
    runs = [
        generate(get_backend(name).compile(plan, served.models), [request]).completions[0]
        for name in ("oracle", "eager")
    ]
    assert runs[0].tokens == runs[1].tokens == texts[0].output
    assert runs[0].rounds == runs[1].rounds < len(texts[0].output)
    with pytest.raises(UsageError, match="measured by running its rounds"):
        train_drafter(problem, "draft", tmp_path / "draft", steps=40, worth=0.01, **more)


@pytest.mark.long
@pytest.mark.parametrize("backend", ["inductor", "onnxruntime"])
def test_compiled_rounds_draft_in_one_pass(problem: Path, backend: str) -> None:
    value = load_problem(problem)
    models = dict(Workbench(value).models)
    models["draft"].mask_token, models["draft"].by_slots = 5, True
    facts = gather_facts(value, device=load_device("cpu-generic"))
    plan = METHOD.plan(facts, ParallelChainOptions.of("draft", chain(3)))
    request = unseen_texts(Workbench(value), silent)[0].request
    runs = [
        generate(get_backend(name).compile(plan, models), [request]).completions[0]
        for name in ("eager", backend)
    ]
    assert runs[0].tokens == runs[1].tokens and runs[0].rounds == runs[1].rounds
