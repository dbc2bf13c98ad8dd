"""Heads are trained by what decoding runs: exact resume, public checkpoints, trained = served."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from specplan.cost_models.acceptance.drafters import Model
from specplan.cost_models.acceptance.evidence.base import Drafting, read_drafting
from specplan.cost_models.devices.device import load_device
from specplan.cost_models.models.heads.amphista import amphista_config
from specplan.cost_models.models.heads.clover import clover_config
from specplan.cost_models.models.heads.eagle import fspad_config
from specplan.cost_models.models.heads.states_as_keys import chimera_config, tandem_config
from specplan.cost_models.models.new_heads import (
    blockwise_config,
    cerberus_config,
    dflash_config,
    eagle3_config,
    eagle_config,
    hydra_config,
    kangaroo_config,
    medusa_config,
    mlp_speculator_config,
    peagle_config,
    redrafter_config,
)
from specplan.ir.errors import MissingCapabilityError, SpecplanError, UsageError
from specplan.measure.acceptance.continuations import continue_prompts, request_of
from specplan.measure.acceptance.heads import head_ranks
from specplan.measure.acceptance.profile import measure_acceptance
from specplan.measure.acceptance.teacher import TracedText
from specplan.measure.progress import silent
from specplan.measure.workbench import PROFILE, Workbench
from specplan.planner import gather_facts, load_problem
from specplan.planner.problem.loading import problem_from_dict
from specplan.planner.search.settings import settings_by
from specplan.runtime.generate import generate
from specplan.runtime.models.heads.loading import load_head
from specplan.training.learning.packing import Text
from specplan.training.recipe import Recipe
from specplan.training.trainer import train_head
from tests.measure.problems import write_problem
from tests.training.head_losses import head_loss
from tests.training.two_processes import train_heads

torch.set_num_threads(1)
RECIPE = Recipe(rows=2, row_tokens=40, learning_rate=0.02, warmup=2, unroll=3, clip=10.0)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    path = write_problem(tmp_path_factory.mktemp("problem"), prompts=4, output_tokens=12)
    return Workbench(load_problem(path))


@pytest.fixture(scope="module")
def texts(bench: Workbench) -> list[Text]:
    prompts = bench.prompts(PROFILE)
    outputs = continue_prompts(bench, prompts, silent)
    pairs = zip(prompts, outputs, strict=True)
    return [Text((*prompt.tokens, *output), len(prompt.tokens)) for prompt, output in pairs]


def configs(bench: Workbench) -> dict[str, dict[str, Any]]:
    target = json.loads((bench.problem.models.target.path / "config.json").read_text())
    eagle = eagle3_config(target, "target", vocabulary=256)
    eagle["eagle_aux_hidden_state_layer_ids"] = [1, 2]
    flash = dflash_config(target, "target", layers=1, block=4)
    flash["dflash_config"]["target_layer_ids"] = [0, 1]
    medusa = medusa_config(target, "target", heads=3)
    one = eagle_config(target, "target")
    parallel = peagle_config(target, "target", depth=3)
    parallel["eagle_aux_hidden_state_layer_ids"] = [1, 2]
    # half as wide as its target, so that states of both are as wide as its own
    tandem = tandem_config(target, "target", layers=1) | {"tandem_layers": [2], "hidden_size": 16}
    tandem |= {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8}
    return {
        "eagle3": eagle, "medusa": medusa, "eagle": one, "dflash": flash, "peagle": parallel,
        "short_medusa": medusa | {"truncated_vocab_size": 256},
        "hydra": hydra_config(target, "target", heads=3, layers=2),
        "blockwise": blockwise_config(target, "target", heads=3),
        "cerberus": cerberus_config(target, "target", heads=3),
        "mlp_speculator": mlp_speculator_config(target, "target"),
        "redrafter": redrafter_config(target, "target"),
        "kangaroo": kangaroo_config(target, "target", exit_layer=1),
        "fspad": fspad_config(target, "target"),
        "amphista": amphista_config(target, "target", heads=3),
        "chimera": chimera_config(target, "target", heads=3),
        "tandem": tandem,
        "clover": clover_config(target, "target", version=1, heads=3),
        "clover2": clover_config(target, "target", heads=3),
    }  # fmt: skip


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """The system refuses to write more, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


SERVED = (
    "eagle3", "medusa", "hydra", "mlp_speculator", "redrafter", "kangaroo", "clover", "clover2",
    "fspad", "amphista", "chimera", "tandem",
)  # fmt: skip
"""Families that are trained, loaded and served by `test_acceptance_in_training_...` too."""


@pytest.mark.parametrize(
    "family",
    [
        "eagle3", "short_medusa", "dflash", "peagle", "blockwise", "cerberus",
        *(pytest.param(name, marks=pytest.mark.long) for name in ("eagle", *SERVED[1:])),
    ],
)  # fmt: skip
def test_half_and_half_is_the_whole_and_is_what_is_loaded(
    bench: Workbench, texts: list[Text], family: str, tmp_path: Path
) -> None:
    config, target = configs(bench)[family], bench.models["target"]
    whole = train_head(config, target, texts, 30, tmp_path / "whole", RECIPE)
    train_head(config, target, texts, 30, tmp_path / "parts", RECIPE, until=15)
    train_head(config, target, texts, 30, tmp_path / "parts", RECIPE)
    for name in ("model.safetensors", "optimizer.state", "training.json"):
        files = [(tmp_path / folder / name).read_bytes() for folder in ("whole", "parts")]
        assert files[0] == files[1], name
    assert whole.losses[-1] < 0.7 * whole.losses[0]
    loaded = load_head(tmp_path / "whole", target)
    losses = [head_loss(head, texts, RECIPE) for head in (whole.head, loaded)]
    assert losses[0] == losses[1]
    if family in ("eagle3", "short_medusa"):
        stored = load_file(tmp_path / "whole/model.safetensors")
        of_medusa = stored.get("token_map")
        known = stored["d2t"] + torch.arange(256) if of_medusa is None else of_medusa
        seen = {token for text in texts for token in text.tokens}
        assert seen <= set(known.tolist()), "the texts' own tokens are in the vocabulary"


@pytest.mark.parametrize("family", SERVED)
def test_acceptance_in_training_is_acceptance_served(
    bench: Workbench, texts: list[Text], family: str, tmp_path: Path
) -> None:
    """A head that learned its texts by heart is accepted throughout them, as often as it says."""
    config, target = configs(bench)[family], bench.models["target"]
    steps = 100 if family == "tandem" else 60  # it is half as wide
    trained = train_head(config, target, texts, steps, tmp_path / "head", RECIPE)
    value = bench.problem.model_dump(mode="json") | {"profiles": str(tmp_path / "profiles")}
    draft = {"name": "head", "path": str(tmp_path / "head"), "dtype": "float64"}
    value["models"]["drafts"] = [draft]
    served = Workbench(problem_from_dict(value))
    ranks = []
    for index, (prompt, text) in enumerate(zip(served.prompts(PROFILE), texts, strict=True)):
        request = request_of(served, prompt, index)
        traced = TracedText(index, prompt.id, request, text.tokens[text.start :], target)
        before, after = (
            head_ranks([head], traced, 3, 8) for head in (trained.head, served.models["head"])
        )
        assert before == after
        ranks.append(before)
    firsts = [row[0] for text in ranks for row in text[:-1]]
    assert firsts.count(0) > 0.9 * len(firsts)
    wanted = [Model("head")]
    facts = gather_facts(served.problem, device=load_device("cpu-generic"))
    profile = measure_acceptance(served, facts, wanted=wanted, precision=0.0)[wanted[0]]
    facts = replace(facts, profiles={wanted[0]: profile})
    setting = next(
        one for one in settings_by(facts, wanted[0]) if one.options.words.startswith("chain of 3")
    )
    plan = setting.method.plan(facts, setting.options)
    drafting = read_drafting(plan, plan.rounds[0], profile.evidence)
    assert isinstance(drafting, Drafting)
    executable = served.compile(plan)
    rounds = [
        generate(executable, [request_of(served, prompt, index)]).rounds
        for index, prompt in enumerate(served.prompts(PROFILE))
    ]
    expected = drafting.rounds(served.output_tokens, 1).mean
    assert sum(rounds) / len(rounds) == pytest.approx(expected)
    assert drafting.tokens_per_round.mean > 2.5


def test_a_head_is_trained_against_an_adversary(
    bench: Workbench, texts: list[Text], tmp_path: Path
) -> None:
    """It learns beside the head, goes on with it, and is no part of the checkpoint."""
    config, target = configs(bench)["eagle"], bench.models["target"]
    recipe = replace(RECIPE, loss="ce+0.2*adversary", unroll=2)
    whole = train_head(config, target, texts, 20, tmp_path / "whole", recipe)
    train_head(config, target, texts, 20, tmp_path / "parts", recipe, until=9)
    train_head(config, target, texts, 20, tmp_path / "parts", recipe)
    for name in ("model.safetensors", "optimizer.state", "adversary.state"):
        files = [(tmp_path / folder / name).read_bytes() for folder in ("whole", "parts")]
        assert files[0] == files[1], name
    alone = train_head(config, target, texts, 20, tmp_path / "alone", replace(recipe, loss="ce"))
    loaded = load_head(tmp_path / "whole", target)
    losses = [head_loss(head, texts, recipe) for head in (whole.head, loaded, alone.head)]
    assert losses[0] == losses[1] != losses[2] and losses[0] < 0.8 * alone.losses[0]


def test_medusa_heads_begin_as_the_target(
    bench: Workbench, texts: list[Text], tmp_path: Path
) -> None:
    """Before any step a head's loss is that of the target's next token, for another token."""
    config, target = configs(bench)["medusa"], bench.models["target"]
    begun = train_head(config, target, texts, 0, tmp_path / "none", RECIPE)
    features = torch.randn(1, 4, target.hidden_size, dtype=target.dtype)
    entered = target.family.finish(features)
    torch.testing.assert_close(begun.head.own_logits(entered, None, 1), target.head(entered))


def test_what_ends_a_training_leaves_the_last_checkpoint(
    bench: Workbench, texts: list[Text], tmp_path: Path
) -> None:
    config, target, folder = configs(bench)["medusa"], bench.models["target"], tmp_path / "head"
    train_head(config, target, texts, 2, folder, RECIPE)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def whole() -> bool:
        return {path.name: path.read_bytes() for path in folder.iterdir()} == before

    with (
        files_of_at_most(4096),
        pytest.raises(SpecplanError, match=r"step 4 cannot be written .* is whole"),
    ):
        train_head(config, target, texts, 4, folder, RECIPE)
    assert whole() and [path.name for path in tmp_path.iterdir()] == ["head"]
    diverging = replace(RECIPE, learning_rate=1e200, warmup=1, save_every=1)
    with pytest.raises(SpecplanError, match=r"of step 2 is not a number; .* is whole"):
        train_head(config, target, texts, 4, tmp_path / "far", diverging)
    assert json.loads((tmp_path / "far/training.json").read_text())["step"] == 1
    with pytest.raises(UsageError, match="differs in its texts"):
        train_head(config, target, texts[1:], 4, folder, RECIPE)
    with pytest.raises(UsageError, match="differs in its head"):
        train_head({**config, "num_heads": 2}, target, texts, 4, folder, RECIPE)
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="holds no training"):
        train_head(config, target, texts, 4, other, RECIPE)
    beside = {**configs(bench)["kangaroo"], "n_future_tokens": 2, "model_type": "llama"}
    del beside["exit_layer"]
    with pytest.raises(MissingCapabilityError, match="multi_token"):
        train_head(beside, target, texts, 4, tmp_path / "beside", RECIPE)


def test_two_processes_train_what_one_does(bench: Workbench, tmp_path: Path) -> None:
    """As torchrun starts them, on the CPU: each process takes half of the texts, of which some are
    longer."""
    problem = bench.problem.profiles.parent / "problem.yaml"
    settings = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=2, rdzv_backend="c10d",
        rdzv_endpoint="localhost:0", run_id="two", start_method="spawn", monitor_interval=0.1,
    )  # fmt: skip
    elastic_launch(settings, train_heads)(problem, tmp_path / "two")
    train_heads(problem, tmp_path / "one")
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, rtol=1e-9, atol=1e-12)
    states = [
        json.loads((tmp_path / name / "training.json").read_text()) for name in ("one", "two")
    ]
    assert [state["processes"] for state in states] == [1, 2]
