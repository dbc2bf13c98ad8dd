"""Random heads for the roles of `tests.backends.kinds.DRAFTERS`, beside a tiny pair."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from specplan.cost_models.models.architectures.config import Config
from specplan.cost_models.models.heads.description import HeadDescription
from specplan.cost_models.models.heads.neighbours import store_config
from specplan.cost_models.models.heads.own_modules import mtp
from specplan.cost_models.models.heads.reading import read_description
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.heads.drafter import Drafter
from specplan.runtime.models.neighbours.building import states_before_last
from specplan.runtime.models.neighbours.store import NeighbourStore
from specplan.runtime.requests import Request
from tests.backends.pairs import plain, run
from tests.runtime.heads import bodies, formats


def with_heads(models: dict[str, CausalModel]) -> dict[str, Any]:
    """A pair by `tests.backends.pairs`, and a random head for every role of `DRAFTERS`."""
    target = models["target"]
    size = target.vocab_size
    stored = {
        "head": formats.eagle3(
            size=size, reads=2, reduced=False, eagle_aux_hidden_state_layer_ids=[1, 2]
        ),
        "flash": formats.dflash(
            size=size, block=8, dflash_config={"mask_token_id": 3, "target_layer_ids": [0, 1]}
        ),
        "heads": formats.medusa(size=size),
        "beside": formats.parallel_layers(size=size),
        "adapter": formats.kangaroo(layer=1, size=size),
        "steps": formats.hydra(size=size),
        "slots": formats.streams(layer=1, layers=target.num_layers, size=size),
        "clover": bodies.clover(version=1, size=size),
        "clover2": bodies.clover(size=size),
        "tandem": bodies.tandem((1, 2), size=size),
        "chimera": bodies.chimera(size=size),
        "fspad": bodies.fspad(size=size),
        "amphista": bodies.amphista(size=size),
    }
    made: dict[str, Any] = {
        name: _random(read_description(one.config, target, name), target)
        for name, one in stored.items()
    }
    tensors = formats.modules("deepseek", 1, target.num_layers)
    config = Config({**formats.LAYERS, "vocab_size": size}, "module")
    made["neighbours"] = _store(target)
    return {**models, **made, "module_0": _random(mtp(config, target, 0, tensors), target)}


def _store(target: CausalModel) -> NeighbourStore:
    """States of texts that the target wrote, which end in loops as others of it do."""
    size = target.vocab_size
    requests = [
        Request(prompt_tokens=tuple((seed * 7 + n * n) % size for n in range(9)), max_new_tokens=24)
        for seed in range(12)
    ]
    outputs = run(plain(), {"target": target}, requests)
    texts = [
        torch.tensor([*one.prompt_tokens, *out]) for one, out in zip(requests, outputs, strict=True)
    ]
    states = [states_before_last(target, text[:-1], 64) for text in texts]
    documents = [torch.full((len(part),), number) for number, part in enumerate(states)]
    config = store_config(target, sum(map(len, states)), nearest=16, offset=0.5)
    return NeighbourStore(
        read_description(config, target, "neighbours"),
        target,
        torch.cat(states),
        torch.cat([text[1:] for text in texts]),
        torch.cat(documents),
    )


def _random(description: HeadDescription, target: CausalModel) -> Drafter:
    """A head of random weights that agrees with its target more often than chance."""
    from dataclasses import replace

    if description.embedding == "either":
        description = replace(description, embedding="target")
    head = Drafter(description, target).requires_grad_(False)
    make = formats.Random(11)
    for name, weight in head.weights_by_name().items():
        weight.copy_(_weight(make, name, weight, target))
    head.pack()
    return head


def _weight(make: formats.Random, name: str, weight: Tensor, target: CausalModel) -> Tensor:
    if name.startswith("heads") and name.endswith("weight"):
        given: Tensor = target.head.weight
        return given.repeat(1, weight.shape[1] // given.shape[1])
    if weight.dim() == 1:
        return make.norm(len(weight)) if "norm" in name else torch.zeros_like(weight)
    return make(*weight.shape, scale=0.3)
