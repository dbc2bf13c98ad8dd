"""Every family of heads: logits equal the paper's, along a text and in decoding."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.heads.drafter import Drafter
from specplan.runtime.models.heads.loading import load_head, places_of
from specplan.runtime.models.heads.unrolled import unrolled
from specplan.runtime.models.loading import load_model
from specplan.training.new_heads import name_in_files
from tests.backends.pairs import save_pair
from tests.runtime.heads import bodies, formats, papers
from tests.runtime.heads.formats import Stored

TEXT = (3, 14, 15, 9, 26, 5, 35, 8, 9, 7, 9, 32)
ROOT = 8
"""The root of what is drafted; the text goes on behind it."""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> CausalModel:
    folder = tmp_path_factory.mktemp("target")
    save_pair(folder, formats.VOCABULARY, scale=0.3, layers=6)
    return load_model(folder / "target", dtype="float64")


def states_at(target: CausalModel, layers: Sequence[int], finished: bool = False) -> Tensor:
    """The target's states at the text, those of several layers joined, `[1, T, F]`."""
    tokens = torch.tensor([TEXT])
    positions = torch.arange(len(TEXT))[None]
    mask = torch.ones(1, len(TEXT), len(TEXT), dtype=torch.bool).tril()
    parts = []
    for layer in layers:
        cache = target.new_cache(1, len(TEXT))
        parts.append(target.hidden(tokens, positions, positions, mask, cache, (0, layer)))
    states = torch.cat(parts, 2)
    return target.family.finish(states) if finished else states


def _table(target: CausalModel) -> Tensor:
    table: Tensor = target.family.embedding.weight  # type: ignore[attr-defined]
    return table


def by_eagle3(target: CausalModel, stored: Stored, states: Tensor, steps: int) -> Tensor:
    drafted = TEXT[ROOT + 1 : ROOT + steps]
    config = {**stored.config, **stored.config.get("transformer_layer_config", {})}
    if stored.config.get("mask_token_id") is not None:
        return papers.peagle(
            config, stored.tensors, _table(target), TEXT[: ROOT + 1], states[:ROOT], steps
        )
    return papers.eagle3(
        config, stored.tensors, _table(target), TEXT[: ROOT + 1], states[:ROOT], drafted
    )


def by_eagle1(target: CausalModel, stored: Stored, states: Tensor, steps: int) -> Tensor:
    layers = " ".join(f"layers.{n}." for n in range(stored.config["num_hidden_layers"]))
    return papers.concat(
        stored.tensors, stored.tensors["embed_tokens.weight"], target.head.weight,
        TEXT[: ROOT + 1], target.family.finish(states[:ROOT]), TEXT[ROOT + 1 : ROOT + steps],
        names=("fc.weight", layers, "", "", ""), epsilon=1e-6,
    )  # fmt: skip


def by_medusa(target: CausalModel, stored: Stored, states: Tensor, steps: int) -> Tensor:
    form = "original" if "medusa_num_heads" in stored.config else "vllm"
    blocks = stored.config.get("medusa_num_layers", stored.config.get("num_hidden_layers"))
    state = target.family.finish(states[ROOT - 1])
    logits = papers.medusa(stored.tensors, form, steps, blocks, state)
    if form == "original":
        return logits
    offsets = stored.tensors["token_map"] - torch.arange(formats.KNOWN)
    return papers.whole(logits, {"d2t": offsets}, formats.VOCABULARY)


def by_blockwise(target: CausalModel, stored: Stored, states: Tensor, steps: int) -> Tensor:
    state = target.family.finish(states[ROOT - 1])
    return papers.blockwise(stored.tensors, target.head.weight, steps, state)


def by_cerberus(target: CausalModel, stored: Stored, states: Tensor, steps: int) -> Tensor:
    return papers.cerberus(stored.tensors, steps, 2, target.family.finish(states[ROOT - 1]))


def by_parallel_layers(target: CausalModel, stored: Stored, states: Tensor, steps: int) -> Tensor:
    norm, head = target.family.finish, target.head.weight
    return papers.parallel_layers(stored.tensors, norm, head, states[:ROOT], steps)


def by_hydra(target: CausalModel, stored: Stored, states: Tensor, steps: int) -> Tensor:
    state = target.family.finish(states[ROOT - 1])
    return papers.hydra(stored.tensors, _table(target), 2, state, TEXT[ROOT : ROOT + steps])


def by_mlp(target: CausalModel, stored: Stored, states: Tensor, steps: int) -> Tensor:
    state, scaled = target.family.finish(states[ROOT - 1]), stored.config["scale_input"]
    return papers.mlp_speculator(stored.tensors, state, TEXT[ROOT : ROOT + steps], scaled)


def by_redrafter(target: CausalModel, stored: Stored, states: Tensor, steps: int) -> Tensor:
    state = target.family.finish(states[ROOT - 1])
    return papers.redrafter(stored.tensors, _table(target), 2, state, TEXT[ROOT : ROOT + steps])


def by_dflash(target: CausalModel, stored: Stored, states: Tensor, steps: int) -> Tensor:
    text = TEXT[: ROOT + 1]
    table, head = _table(target), target.head.weight
    return papers.dflash(stored.config, stored.tensors, table, head, text, states[:ROOT])[:steps]


def by_kangaroo(target: CausalModel, stored: Stored, states: Tensor, steps: int) -> Tensor:
    given, head = stored.tensors, target.head.weight
    rows = (states[: ROOT + 1 + step] for step in range(steps))
    return torch.stack([papers.kangaroo(given, None, head, row) for row in rows])


def by_clover(target: CausalModel, stored: Stored, states: Tensor, steps: int) -> Tensor:
    text, drafted = TEXT[: ROOT + 1], TEXT[ROOT + 1 : ROOT + steps]
    head = target.head.weight
    return bodies.by_clover(stored, _table(target), head, states[:ROOT], text, drafted)


def by_amphista(target: CausalModel, stored: Stored, states: Tensor, steps: int) -> Tensor:
    text, given = TEXT[: ROOT + 1], target.family.finish(states[:ROOT])
    return bodies.by_amphista(stored, _table(target), target.head.weight, given, text)[:steps]


def by_chimera(target: CausalModel, stored: Stored, states: Tensor, steps: int) -> Tensor:
    text, drafted = TEXT[: ROOT + 1], TEXT[ROOT + 1 : ROOT + steps]
    given = target.family.finish(states[:ROOT])
    return bodies.by_chimera(stored.tensors, _table(target), given, text, drafted)


def by_tandem(target: CausalModel, stored: Stored, states: Tensor, steps: int) -> Tensor:
    text, drafted = TEXT[: ROOT + 1], TEXT[ROOT + 1 : ROOT + steps]
    return bodies.by_tandem(stored, states[:ROOT], text, drafted)


def by_fspad(target: CausalModel, stored: Stored, states: Tensor, steps: int) -> Tensor:
    text, drafted = TEXT[: ROOT + 1], TEXT[ROOT + 1 : ROOT + steps]
    given = target.family.finish(states[:ROOT])
    return bodies.by_fspad(stored.tensors, target.head.weight, given, text, drafted)


EAGLE3 = {
    "specforge": formats.eagle3(),
    "nvidia": formats.eagle3(
        names="layers", eagle_config={"eagle_aux_hidden_state_layer_ids": [0, 1, 4]}
    ),
    "speculators": formats.speculators_form(
        formats.eagle3(
            names="layers", eagle_aux_hidden_state_layer_ids=[1, 2, 5], norm_before_residual=True,
            norm_before_fc=True,
        ),
        "eagle3",
    ),
    "eagle 3.1": formats.eagle3(
        names="layers", layers=2, embedding=True, fc_norm=True, norm_output=True
    ),
    "one state": formats.eagle3(reads=1, eagle_aux_hidden_state_layer_ids=[3], reduced=False),
}  # fmt: skip
PEAGLE = formats.speculators_form(
    formats.eagle3(names="layers", layers=2, mask_token_id=60, num_depths=4), "peagle"
)
CASES: dict[str, tuple[Stored, Any, int]] = {
    **{name: (stored, by_eagle3, 3) for name, stored in EAGLE3.items()},
    "peagle": (PEAGLE, by_eagle3, 3),
    "eagle": (formats.eagle1(), by_eagle1, 3),
    "eagle of two layers": (formats.eagle1(layers=2), by_eagle1, 3),
    "medusa": (formats.medusa(), by_medusa, 3),
    "medusa of two blocks": (formats.medusa(blocks=2), by_medusa, 3),
    "medusa of vllm": (formats.medusa("vllm"), by_medusa, 3),
    "blockwise": (formats.blockwise(), by_blockwise, 3),
    "cerberus": (formats.cerberus(), by_cerberus, 3),
    "layers beside the last": (formats.parallel_layers(), by_parallel_layers, 3),
    "hydra": (formats.hydra(), by_hydra, 3),
    "mlp speculator": (formats.mlp_speculator(), by_mlp, 3),
    "tied mlp speculator": (formats.mlp_speculator(4, tied=True, scaled=False), by_mlp, 4),
    "redrafter": (formats.redrafter(), by_redrafter, 3),
    "dflash": (formats.dflash(), by_dflash, 3),
    "kangaroo": (formats.kangaroo(), by_kangaroo, 3),
    "fspad": (bodies.fspad(), by_fspad, 3),
    "amphista": (bodies.amphista(), by_amphista, 3),
    "amphista of one stage": (bodies.amphista(4, first=0), by_amphista, 3),
    "chimera": (bodies.chimera(), by_chimera, 3),
    "tandem": (bodies.tandem(), by_tandem, 3),
    "tandem of one layer": (bodies.tandem((3,)), by_tandem, 3),
    "clover": (bodies.clover(version=1), by_clover, 3),
    "clover 2": (bodies.clover(), by_clover, 3),
}


def features_of(head: Drafter, target: CausalModel) -> Tensor:
    return states_at(target, head.description.reads.layers or (target.num_layers,))


@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_the_paper(case: str, target: CausalModel, tmp_path: Path) -> None:
    stored, paper, steps = CASES[case]
    head = load_head(stored.save(tmp_path), target)
    states = features_of(head, target)
    by_step = [*unrolled(head, torch.tensor([TEXT]), states, steps)]
    wanted = paper(target, stored, states[0], steps)
    for step in range(steps):
        torch.testing.assert_close(by_step[step][0, ROOT], wanted[step], rtol=0, atol=2e-5)
    assert all(not torch.equal(a, b) for a, b in pairwise(wanted))
    weights = [*head.weights_by_name()]
    names = [name_in_files(head.description, weight) for weight in weights]
    places = places_of(head.description, frozenset(names), tmp_path)
    assert [places[name] for name in names] == weights, "names lead there and back"


def test_slots_are_inputs_of_the_target_behind_its_text(tmp_path: Path) -> None:
    """PaSS, arXiv 2311.13581 section 3: embeddings appended to the text, and a plain pass."""
    stored = formats.look_ahead_tokens()
    save_pair(tmp_path, formats.VOCABULARY, scale=0.3)
    target = load_model(tmp_path / "target", dtype="float64")
    stock = LlamaForCausalLM.from_pretrained(tmp_path / "target", dtype=torch.float64)
    head = load_head(stored.save(tmp_path / "slots"), target)
    by_step = [*unrolled(head, torch.tensor([TEXT]), states_at(target, [3]), 3)]
    before = stock.get_input_embeddings()(torch.tensor([TEXT[:ROOT]]))
    given = torch.cat([before, stored.tensors["slots.weight"][None]], 1)
    with torch.no_grad():
        wanted = stock(inputs_embeds=given).logits[0, ROOT:]
    for step in range(3):
        torch.testing.assert_close(by_step[step][0, ROOT], wanted[step], rtol=0, atol=2e-5)
    assert all(not torch.equal(a, b) for a, b in pairwise(wanted))
