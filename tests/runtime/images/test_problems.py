"""Problems whose prompts hold images: measured, planned, run and compared like any other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from PIL import Image
from typer.testing import CliRunner

import specplan
from specplan.bundles.decoder import Decoder, ImagePrompt, Settings
from specplan.cli.main import program
from specplan.cost_models.devices.device import load_device
from specplan.cost_models.devices.measured.device import MeasuredDevice
from specplan.cost_models.devices.measured.rows import PrefillRow
from specplan.cost_models.devices.measured.table import MeasuredTable, Provenance
from specplan.cost_models.estimate import Estimate, Pricer
from specplan.cost_models.models.model_shape import ModelShape
from specplan.cost_models.prefill import prefill_seconds
from specplan.cost_models.vision import SeeingShape, image_tokens, with_images
from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.measure.acceptance.continuations import request_of
from specplan.measure.progress import silent
from specplan.measure.workbench import Workbench
from specplan.planner import gather_facts, load_problem, read_prompts
from specplan.planner.method import Family
from specplan.planner.methods.draft_model import METHOD as DRAFT_MODEL
from specplan.runtime.generate import generate
from specplan.training.texts import training_texts
from tests.backends.pairs import plain
from tests.measure.problems import TOKENIZER
from tests.runtime.images.llava import PLACES, picture, save_llava

TEXT = "<image>\ndef mean(values):"


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four prompts with an image each, for a tiny LLaVA and a draft model of text."""
    folder = tmp_path_factory.mktemp("problem")
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(TOKENIZER))
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
    image = tokenizer.convert_tokens_to_ids("<image>")
    save_llava(folder, vocabulary=len(tokenizer), image=image)
    for name in ("target", "draft"):
        tokenizer.save_pretrained(folder / name)
    lines = []
    for number in range(4):
        Image.fromarray(picture(number)).save(folder / f"{number}.png")
        lines.append(json.dumps({"text": f"{TEXT} # {number}", "image": f"{number}.png"}))
    (folder / "prompts.jsonl").write_text("\n".join(lines))
    value = {
        "schema_version": 1,
        "models": {
            "target": {"path": "target"},
            "drafts": [{"name": "draft", "path": "draft"}],
        },
        "device": "cpu-generic",
        "sources": [],
        "methods": ["draft_model"],
        "workload": {
            "batch_sizes": [1],
            "prompt_tokens": 24,
            "output_tokens": 8,
            "images": 1,
            "prompts": "prompts.jsonl",
        },
    }
    path = folder / "problem.yaml"
    path.write_text(json.dumps(value))
    return path


def test_acceptance_is_measured_with_the_image(problem: Path, tmp_path: Path) -> None:
    """What a plan accepts when it runs is what was told along the target's own texts."""
    specplan.optimize(problem, out=tmp_path / "bundle")
    profiles = specplan.profile_acceptance(problem)
    bench, device = Workbench(load_problem(problem)), load_device("cpu-generic")
    facts = gather_facts(bench.problem, device=device, profiles=profiles)
    prompts = bench.prompts("profile")
    assert [prompt.tokens.count(bench.reader.token) for prompt in prompts] == [PLACES] * 2
    requests = [request_of(bench, prompt, number) for number, prompt in enumerate(prompts)]
    for family in DRAFT_MODEL.choices(facts):
        assert isinstance(family, Family)
        for options in family.settings[:2]:
            plan = DRAFT_MODEL.plan(facts, options)
            profile = profiles[DRAFT_MODEL.drafter(facts, options)]  # type: ignore[index]
            priced = Pricer(device, facts.shapes, 1, 24, 8).estimate(plan, profile)
            assert isinstance(priced, Estimate)
            ran = [generate(bench.compile(plan), [one]).rounds for one in requests]
            assert sum(ran) / 2 == pytest.approx(priced.rounds.mean) and sum(ran) < 16
    compared = specplan.bench(tmp_path / "bundle", repeats=1)
    assert compared.line("transformers.generate").differing == 0
    assert all(line.differing == 0 for line in compared.lines)
    output = Decoder(tmp_path / "bundle").generate(
        [ImagePrompt(f"{TEXT} # 0", (problem.parent / "0.png",))], Settings(max_new_tokens=8)
    )
    expected = generate(bench.compile(plain()), requests[:1]).completions[0].tokens
    assert output.completions[0].tokens == expected


def test_what_reads_texts_alone_says_so(problem: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text(json.dumps({"text": "<image> a", "image": ["0.png"]}))
    with pytest.raises(MissingCapabilityError, match="has an image, and texts alone are read"):
        training_texts(Workbench(load_problem(problem)), other, silent)
    other.write_text(json.dumps({"text": "<image> a", "image": 3}))
    with pytest.raises(UsageError, match='"image" must be the name of a file'):
        read_prompts(other)


def test_run_takes_images(problem: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.txt"
    plan.write_text(specplan.print_plan(plain()))
    folder, prompt = problem.parent, ["--prompt", TEXT, "--max-new-tokens", "4", "--json"]
    asked = ["run", str(plan), "--model", f"target={folder / 'target'}", *prompt]
    texts = []
    for name in ("0.png", "1.png"):
        ran = CliRunner().invoke(program(), [*asked, "--image", str(folder / name)])
        assert ran.exit_code == 0, ran.output
        texts.append(json.loads(ran.stdout)["completions"][0]["tokens"])
    assert texts[0] != texts[1]
    wrong = CliRunner().invoke(
        program(), [*asked, "--prompt", "a", *["--image", str(folder / "0.png")] * 3]
    )
    assert isinstance(wrong.exception, UsageError) and "3 images for 2 prompts" in str(
        wrong.exception
    )


def test_images_are_priced_in_the_prompt(problem: Path) -> None:
    """The tower's parameters are those that `transformers` builds."""
    folder = problem.parent
    facts = gather_facts(load_problem(problem))
    assert isinstance(facts.target, SeeingShape) and facts.target.images == 1
    tower = facts.target.vision
    model: Any = transformers.LlavaForConditionalGeneration.from_pretrained(folder / "target")
    projector = model.model.multi_modal_projector
    built = sum(one.numel() for one in model.model.vision_tower.parameters())
    assert tower.parameters == built + projector.linear_1.weight.numel()
    bare = ModelShape.from_folder(folder / "target")
    device = load_device("cpu-generic")
    seen, read = (prefill_seconds(device, one, 1, 24) for one in (facts.target, bare))
    assert float(np.max(seen.median)) > float(np.max(read.median))
    assert facts.target.resident_bytes == bare.resident_bytes + tower.weight_bytes
    here = MeasuredTable("here", Provenance("x", "eager", 1, "2026-11-27", 1e12))
    for tokens in (16, 32):
        time, about = tokens / 1000, {"model": bare.digest, "dtype": bare.dtype}
        here.add(PrefillRow(time, time, time, 5, batch=1, tokens=tokens, **about))
    estimate = prefill_seconds(MeasuredDevice(here), facts.target, 1, 24).median
    share = tower.parameters * (PLACES + 1) / (bare.matmul_parameters * 24)
    assert estimate == pytest.approx(0.024 * (1 + share))
    config = json.loads((folder / "target/config.json").read_text())
    assert image_tokens(config, "a") == PLACES
    assert image_tokens(config | {"vision_feature_select_strategy": "full"}, "a") == PLACES + 1
    with pytest.raises(MissingCapabilityError, match="llama"):
        with_images(bare, folder / "draft", 1)
    value = json.loads(problem.read_text())
    value["workload"]["images"] = 4
    (folder / "more.yaml").write_text(json.dumps(value))
    with pytest.raises(UsageError, match="the images take 36 tokens"):
        gather_facts(load_problem(folder / "more.yaml"))
