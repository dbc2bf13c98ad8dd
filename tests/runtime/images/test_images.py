"""A target that sees images decodes as `transformers` does, whatever a drafter of text proposes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import transformers

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.oracle.backend import OracleBackend
from specplan.backends.static.executable import StaticExecutable
from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.ir.text.parser import parse_plan
from specplan.planner.facts import ProblemFacts
from specplan.runtime.generate import generate
from specplan.runtime.images.inputs import Images
from specplan.runtime.images.model import ImageModel
from specplan.runtime.images.reading import ImageReader
from specplan.runtime.models.loading import load_model
from specplan.runtime.requests import Request
from tests.backends.heads import with_heads
from tests.backends.kinds import LOSSLESS, all_facts, kinds_of
from tests.backends.pairs import plain, run
from tests.plan_texts import drafted_chain
from tests.runtime.images.llava import IMAGE, PLACES, VOCABULARY, picture, save_llava

CHAIN, DRAWN_CHAIN = parse_plan(drafted_chain(3)), parse_plan(drafted_chain(3, drawn=True))
PROMPTS = ((3, IMAGE, 4, 1, 5), (IMAGE, 2, 9, IMAGE, 8, 2), (2, 7 + 1, 2, 8, 2))
"""With one image, with two and with none."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("llava")
    save_llava(folder)
    return folder


@pytest.fixture(scope="module")
def models(folder: Path) -> dict[str, Any]:
    return {name: load_model(folder / name) for name in ("target", "draft")}


class Many(NamedTuple):
    """Models with heads, facts, requests, and what the target decodes."""

    models: dict[str, Any]
    facts: ProblemFacts
    requests: list[Request]
    expected: list[tuple[int, ...]]


@pytest.fixture(scope="module")
def requests(folder: Path) -> list[Request]:
    return asked(folder)


def asked(folder: Path) -> list[Request]:
    """A request for each prompt, with its images."""
    reader, made, seed = ImageReader(folder / "target"), list[Request](), 0
    for prompt in PROMPTS:
        pictures = [picture(seed + n) for n in range(prompt.count(IMAGE))]
        seed += len(pictures)
        tokens, images = reader.read(prompt, pictures) if pictures else (prompt, None)
        made.append(Request(prompt_tokens=tokens, images=images, max_new_tokens=16))
    return made


def generated(folder: Path, request: Request) -> tuple[int, ...]:
    """What `transformers` generates greedily."""
    model: Any = transformers.LlavaForConditionalGeneration.from_pretrained(folder / "target")
    ids = torch.tensor([request.prompt_tokens])
    seen = {} if request.images is None else {"pixel_values": request.images.pixels.double()}
    settings = {"do_sample": False, "max_new_tokens": 16, "attention_mask": torch.ones_like(ids)}
    with torch.inference_mode():
        out = model.generate(input_ids=ids, **seen, **settings)
    return tuple(out[0, len(request.prompt_tokens) :].tolist())


def test_greedy_tokens_are_those_of_transformers(
    folder: Path, models: dict[str, Any], requests: list[Request]
) -> None:
    expected = [generated(folder, request) for request in requests]
    assert run(plain(), models, requests) == expected
    assert run(CHAIN, models, requests) == expected
    executable = EagerBackend().compile(CHAIN, models)
    rounds = [generate(executable, [request]).rounds for request in requests]
    assert sum(rounds[:2]) < 32 and rounds[2] == 4, "without an image it is the target"
    assert run(CHAIN, models, requests[1:2]) == expected[1:2]
    other = ImageReader(folder / "target").read(PROMPTS[0], [picture(5)])[1]
    changed = replace(requests[0], images=other)
    assert run(plain(), models, [changed]) == [generated(folder, changed)] != expected[:1]


def test_the_drafter_reads_the_text_without_the_image(
    models: dict[str, Any], requests: list[Request]
) -> None:
    """Its states behind an image are those of the prompt without image tokens."""
    draft, request = models["draft"], requests[0]
    bare = [token for token in request.prompt_tokens if token != IMAGE]
    states = []
    for tokens, asked in ((list(request.prompt_tokens), [request]), (bare, [])):
        size = len(tokens)
        cache, places = draft.new_cache(1, size), torch.arange(size)[None]
        cache.images = draft.images_of(asked)
        mask = torch.ones(1, size, size, dtype=torch.bool).tril()
        hidden = draft.hidden(torch.tensor([tokens]), places, places, mask, cache)
        states.append(draft.logits(hidden)[0])
    there = torch.tensor(request.prompt_tokens) != IMAGE
    torch.testing.assert_close(states[0][there], states[1])


def test_draws_keep_the_targets_distribution(
    models: dict[str, Any], requests: list[Request]
) -> None:
    """The second token, of 2,000 seeds: chi-square against the target's law with the image."""
    target, (request, *_) = models["target"], requests
    asked = replace(request, temperature=1.0, top_k=4, max_new_tokens=2)
    seeds = [replace(asked, seed=seed) for seed in range(2000)]
    seen = [
        pair for at in range(0, 2000, 500) for pair in run(DRAWN_CHAIN, models, seeds[at:][:500])
    ]
    firsts = law_after(target, request, ())
    for first in firsts.nonzero()[:, 0].tolist():
        law = law_after(target, request, (first,))
        counts = torch.zeros(VOCABULARY, dtype=torch.float64)
        for pair in seen:
            counts[pair[1]] += pair[0] == first
        total = counts.sum()
        assert counts[law == 0].sum() == 0
        assert abs(float(total) / 2000 - float(firsts[first])) < 0.05
        where = law > 0
        chi = (((counts - total * law) ** 2)[where] / (total * law)[where]).sum()
        assert chi < 21.1, (first, chi)  # 3 degrees of freedom, p = 1e-4


def law_after(target: ImageModel, request: Request, more: tuple[int, ...]) -> torch.Tensor:
    """The target's law of the next token among its best four."""
    tokens = [*request.prompt_tokens, *more]
    size = len(tokens)
    cache, places = target.new_cache(1, size), torch.arange(size)[None]
    cache.images = target.images_of([request])
    mask = torch.ones(1, size, size, dtype=torch.bool).tril()
    logits = target.forward(torch.tensor([tokens]), places, places, mask, cache)[0, -1]
    best = logits.topk(4).indices
    return torch.full_like(logits, -torch.inf).index_copy(0, best, logits[best]).softmax(-1)


def test_draws_are_those_of_the_seed_in_any_batch(
    models: dict[str, Any], requests: list[Request]
) -> None:
    drawn = [replace(one, temperature=1.0, seed=n) for n, one in enumerate(requests)]
    together = run(DRAWN_CHAIN, models, drawn)
    assert [run(DRAWN_CHAIN, models, [one])[0] for one in drawn] == together
    assert run(DRAWN_CHAIN, models, drawn[::-1]) == together[::-1]


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(LOSSLESS))
def test_every_lossless_method_sees_the_images(name: str, many: Many) -> None:
    """Its first plan of each family, heads among the drafters."""
    models, facts, requests, expected = many
    for kind in kinds_of(LOSSLESS[name], facts):
        assert run(kind.plan, models, requests) == expected, kind.words


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Many:
    """A target of three layers with drafters of all forms, and what it decodes by itself."""
    folder = tmp_path_factory.mktemp("many")
    save_llava(folder, layers=3)
    models = {"target": load_model(folder / "target")}
    small = transformers.LlamaConfig.from_pretrained(folder / "draft")
    small.num_hidden_layers = 2
    transformers.LlamaForCausalLM(small).double().save_pretrained(folder / "draft")
    models["draft"] = load_model(folder / "draft")
    requests = asked(folder)
    facts = all_facts(folder / "facts", 0.0, VOCABULARY)
    return Many(with_heads(models), facts, requests, run(plain(), models, requests))


def test_what_reads_no_images_says_so(
    folder: Path, models: dict[str, Any], requests: list[Request]
) -> None:
    eager = EagerBackend().compile(plain(), models)
    for other in (OracleBackend().compile(plain(), models), StaticExecutable(plain(), models)):
        with pytest.raises(MissingCapabilityError, match="eager"):
            other.start(requests)
    for first, coming in ((requests[2:], requests[:1]), (requests[:1], requests[2:])):
        with pytest.raises(MissingCapabilityError, match="image"):
            eager.start(first, capacity=64).exchange([], coming)
    text = {"target": models["draft"]}
    with pytest.raises(UsageError, match="text alone"):
        EagerBackend().compile(plain(), text).start(requests[:1])
    assert requests[0].images is not None
    cut = replace(requests[0], images=Images(requests[0].images.pixels[:0], IMAGE))
    with pytest.raises(UsageError, match=f"{PLACES} image tokens, and its images take 0"):
        eager.start([cut])
    with pytest.raises(UsageError, match="places for 2 images, and there are 1"):
        ImageReader(folder / "target").read(PROMPTS[1], [picture(0)])
    with pytest.raises(UsageError, match="sees none"):
        ImageReader(folder / "draft")
    (folder / "no.png").write_text("no picture")
    with pytest.raises(UsageError, match="cannot read an image"):
        ImageReader(folder / "target").read(PROMPTS[0], [folder / "no.png"])


def test_files_and_arrays_are_one(folder: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    image.fromarray(picture(3)).save(folder / "a.png")
    reader = ImageReader(folder / "target")
    one, other = (reader.read((IMAGE,), [given])[1] for given in (folder / "a.png", picture(3)))
    assert torch.equal(one.pixels, other.pixels) and one.digest == other.digest
    assert one.pixels.shape == (1, 3, 12, 12) and np.isfinite(one.pixels.numpy()).all()
