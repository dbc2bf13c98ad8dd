"""Training resumes after being killed, bit for bit, and its parts compute what they say."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import train
from recipe import corpus, data, draft, loop, nets, stages, store, weights
from recipe.loop import Schedule
from recipe.target import dropped, exits_of

from tests.started import Started

STEPS = 24


def _options(folder: Path, stage: str) -> list[str]:
    return [
        stage, "--tiny", "--steps", str(STEPS), "--threads", "1", "--save-every", "0",
        "--out", str(folder / "out"), "--work", str(folder / "work"),
        "--prompts", str(folder / "prompts"),
    ]  # fmt: skip


def _finish(folder: Path, stage: str) -> None:
    """Run a stage in this process, from its last checkpoint if there is one."""
    loop.use_threads(1)
    train.run(stage, train.plan_of(train.parse(_options(folder, stage))))


def _kill_midway(models: Path, folder: Path, stage: str) -> int:
    """Kill a run once it has a checkpoint; returns the step it had reached."""
    process = Started(str(models / "train.py"), *_options(folder, stage))
    checkpoint = folder / "work" / f"{stage}.safetensors"
    until = time.monotonic() + 120
    while not checkpoint.exists() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.005)
    process.kill()
    loaded = store.load_checkpoint(checkpoint)
    assert loaded is not None, process.output + process.errors
    return int(loaded[1]["step"])


def test_a_killed_run_ends_with_the_same_bits(models: Path, tmp_path: Path) -> None:
    """The first and the last stage that trains; those between are run once, as what they need.

    The first makes its tokenizer and its streams of tokens anew, in another process.
    """
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    for stage in ("target", "draft", "target_functions", "draft_functions"):
        if stage == "draft_functions":
            shutil.rmtree(broken)
            shutil.copytree(whole, broken)
        _finish(whole, stage)
        if stage in ("draft", "target_functions"):
            continue
        assert _kill_midway(models, broken, stage) < STEPS
        _finish(broken, stage)
        place = f"out/{stage.removesuffix('_functions')}/model.safetensors"
        assert (whole / place).read_bytes() == (broken / place).read_bytes()
        ends = [store.load_checkpoint(f / "work" / f"{stage}.safetensors") for f in (whole, broken)]
        assert ends[0] is not None and ends[1] is not None
        assert all(t.equal(ends[1][0][n]) for n, t in ends[0][0].items())


def test_the_data_order_is_a_function_of_the_position() -> None:
    streams = {n: np.arange(5000, dtype=np.uint16) for n in data.MIX}
    first = data.WindowOrder(streams, 32, 0, 1000)
    again = data.WindowOrder(streams, 32, 0, 1000)
    again.batch(500, 4, 32)
    assert first.batch(40, 4, 32).equal(again.batch(40, 4, 32))
    assert first.batch(40, 2, 64).shape == (2, 65)
    assert not first.batch(40, 4, 32).equal(data.WindowOrder(streams, 32, 1, 1000).batch(40, 4, 32))


def test_token_loss_is_cross_entropy_with_its_gradients() -> None:
    rng = torch.Generator().manual_seed(0)
    hidden = torch.randn(30, 8, generator=rng, requires_grad=True)
    head = torch.randn(11, 8, generator=rng, requires_grad=True)
    goal = torch.randint(0, 11, (30,), generator=rng)
    nets.token_loss(hidden, head, goal).backward()
    mine = hidden.grad, head.grad
    hidden.grad = head.grad = None
    F.cross_entropy(hidden @ head.t(), goal).backward()
    torch.testing.assert_close(mine, (hidden.grad, head.grad))


def test_distil_loss_has_its_gradients() -> None:
    rng = torch.Generator().manual_seed(0)
    hidden = torch.randn(30, 8, generator=rng, requires_grad=True)
    head = torch.randn(11, 8, generator=rng, requires_grad=True)
    taught, tutor = torch.randn(30, 6, generator=rng), torch.randn(11, 6, generator=rng)
    both = draft.distil_loss(hidden, head, taught, tutor)
    both[0].backward()
    mine = hidden.grad, head.grad
    hidden.grad = head.grad = None
    teacher = torch.softmax(taught @ tutor.t(), -1)
    goal = (1 - draft.FIRST_CHOICE) * teacher
    goal = goal + draft.FIRST_CHOICE * F.one_hot(teacher.argmax(-1), 11)
    loss = F.cross_entropy(hidden @ head.t(), goal)
    loss.backward()
    torch.testing.assert_close(mine, (hidden.grad, head.grad))
    same = ((hidden @ head.t()).argmax(-1) == teacher.argmax(-1)).float().mean()
    torch.testing.assert_close(both.detach(), torch.stack((loss.detach(), same)))


def test_norm_has_its_gradients() -> None:
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(5, 8, generator=rng, requires_grad=True)
    weight = torch.randn(8, generator=rng, requires_grad=True)
    nets.norm(x, weight).square().sum().backward()
    mine = x.grad, weight.grad
    x.grad = weight.grad = None
    F.rms_norm(x, (8,), weight, nets.EPS).square().sum().backward()
    torch.testing.assert_close(mine, (x.grad, weight.grad))


def test_masters_and_checkpoint_names_are_inverse() -> None:
    masters = weights.initial(stages.TINY_TARGET, 0)
    layers = stages.TINY_TARGET.layers
    back = weights.from_hf_state(weights.hf_state(masters, layers), layers)
    assert set(back) == set(masters)
    assert all(back[n].equal(t.to(torch.bfloat16).float()) for n, t in masters.items())


def test_every_layer_gets_its_turn_as_an_exit() -> None:
    seen = {e for step in range(200) for e in exits_of(step, 20)}
    assert seen == set(range(1, 20))
    assert all(0 not in dropped(s, 20, 0) and 19 not in dropped(s, 20, 0) for s in range(300))


def test_the_schedule_warms_up_and_ends_at_zero() -> None:
    plan = Schedule(1000)
    assert plan.rate(0) < 0.05 and plan.rate(300) == 1.0 and plan.rate(999) < 0.01
    assert not plan.long(899) and plan.long(900)


def test_a_different_library_is_named_file_by_file(tmp_path: Path) -> None:
    rows = [corpus.SourceFile(p, "stdlib", "train", 3, "a") for p in ("a.py", "b.py")]
    corpus.write_manifest(tmp_path / "corpus.json", rows)
    listed = corpus.read_manifest(tmp_path / "corpus.json")
    here = [corpus.SourceFile("a.py", "stdlib", "train", 3, "b")]
    assert corpus.differences(listed, rows) == []
    assert corpus.differences(listed, here) == ["missing here: b.py", "other content: a.py"]


def test_train_stops_on_another_text_unless_asked(tmp_path: Path) -> None:
    plan = stages.tiny(stages.Plan(out=tmp_path, work=tmp_path / "w"))
    rows = [corpus.SourceFile("a.py", "stdlib", "train", 3, "a")]
    corpus.write_manifest(plan.manifest, rows)
    with pytest.raises(stages.CorpusDiffers):
        stages.sources(plan)
    plan.other_corpus = True
    assert stages.sources(plan)
