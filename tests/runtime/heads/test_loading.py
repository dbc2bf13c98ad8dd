"""Checkpoints of heads: every spelling that engines accept, and errors that say what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from specplan.cost_models.models.heads.reading import read_description
from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.heads.drafter import Drafter
from specplan.runtime.models.heads.loading import load_head, load_module
from specplan.runtime.models.heads.unrolled import unrolled
from specplan.runtime.models.loading import load_model
from tests.backends.pairs import save_pair
from tests.runtime.heads import bodies, formats, papers
from tests.runtime.heads.formats import Stored

TEXT = (3, 14, 15, 9, 26, 5, 35, 8, 9, 7)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("target")
    save_pair(folder, formats.VOCABULARY, scale=0.3, layers=6)
    return folder / "target"


@pytest.fixture(scope="module")
def target(home: Path) -> CausalModel:
    return load_model(home, dtype="float64")


def changed(stored: Stored, drop: str = "", **tensors: Tensor) -> Stored:
    """The same with other tensors, and without one."""
    remaining = {name: x for name, x in stored.tensors.items() if name != drop}
    return Stored(stored.config, {**remaining, **tensors})


BROKEN: dict[str, tuple[Stored, str]] = {
    "missing": (changed(formats.eagle3(), "norm.weight"), "weights are missing: norm.weight"),
    "no embedding of two": (
        changed(formats.medusa(), "1.0.linear.bias"), "weights are missing: blocks.1.0.bias"
    ),
    "unknown": (
        changed(formats.eagle3(), extra=torch.zeros(2)), "1 tensors are not of the format eagle3: "
    ),
    "a second layer": (
        changed(formats.eagle3(names="layers"), **formats.eagle3(layers=2).tensors),
        "describes no weight layers.1",
    ),
    "no map": (changed(formats.eagle3(), "d2t"), "no d2t says which"),
    "tokens instead of offsets": (
        changed(formats.eagle3(), d2t=formats.some_tokens()), "holds offsets from j"
    ),
    "an empty map": (
        changed(formats.eagle3(), d2t=torch.zeros(formats.KNOWN, dtype=torch.int64)),
        "d2t and t2d name different tokens",
    ),
    "another map": (
        changed(formats.eagle3(), t2d=torch.arange(formats.VOCABULARY) < formats.KNOWN),
        "d2t and t2d name different tokens",
    ),
    "biases that are not described": (
        Stored({**formats.medusa("vllm").config, "medusa_fc_bias": True},
               formats.medusa("vllm").tensors), "weights are missing"
    ),
    "another width": (
        changed(formats.eagle3(), **{"fc.weight": torch.zeros(32, 64)}), "project.weight is"
    ),
    "not numbers": (
        changed(formats.eagle3(), **{"norm.weight": torch.full((32,), torch.nan)}), "not numbers"
    ),
    "fewer slots than config.json says": (
        Stored(formats.look_ahead_tokens(4).config, formats.look_ahead_tokens().tensors),
        r"slots is \[3, 32\], config.json says \[4, 32\]",
    ),
    "slots beside something else": (
        changed(formats.look_ahead_tokens(), extra=torch.zeros(2)), "not of the format look_ahead"
    ),
    "slots that enter behind the last layer": (
        formats.hidden_transfer(layer=6), "transfer_layer is 6, and the target has 6 layers"
    ),
    "streams without a layer": (formats.streams(layer=0), "stream_rank is 5, adapter_rank 2"),
    "adapters of fewer layers": (
        formats.streams(layers=5), r"output_down is \[3, 2, 32\], config.json says \[4, 2, 32\]"
    ),
    "slots without weights": (changed(formats.look_ahead_tokens(), "slots.weight"), "no weights"),
    "slots of another target": (
        Stored({**formats.look_ahead_tokens().config, "hidden_size": 48}, {"x": torch.zeros(1)}),
        "states of size 48, the target's hidden size is 32",
    ),
    "one state for two": (
        changed(bodies.fspad(), **{"layers.0.mlp.down_proj.weight": torch.zeros(32, 40)}),
        r"down_proj.weight is \[32, 40\], config.json says \[64, 40\]",
    ),
    "more heads than config.json says": (
        Stored(bodies.amphista().config, bodies.amphista(4).tensors), r"positions is \[4, 32\]"
    ),
    "no places of heads": (
        changed(bodies.amphista(), "auto_embedding.positions"), "missing: mixed.positions"
    ),
    "heads of the first stage beyond the last": (
        bodies.amphista(first=4), "3 heads, 4 of the first stage"
    ),
    "a layer that reads nothing": (
        Stored(bodies.tandem().config | {"tandem_layers": [1]}, bodies.tandem().tensors),
        "names 1 layers of the target for 2 of its own",
    ),
    "no trigram": (
        changed(bodies.chimera(), "trimlp.1.weight"), "missing: ngram.project.weight"
    ),
    "no block": (
        changed(bodies.clover(), "clover_head_mlp_rnn2.v.bias"), "missing: by_token.later.v.bias"
    ),
    "a block of Clover-2": (
        changed(bodies.clover(1), **{"clover_head_mlp2.bias": torch.zeros(32)}), "describes no"
    ),
    "heads that do not divide": (
        bodies.clover(num_attention_heads=5, head_dim=8), "do not divide the hidden size 32"
    ),
    "copies that differ": (
        Stored(formats.mlp_speculator(tied=True).config, formats.mlp_speculator().tensors), "tied"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_broken_checkpoints_are_refused(case: str, target: CausalModel, tmp_path: Path) -> None:
    stored, says = BROKEN[case]
    with pytest.raises(UsageError, match=says):
        load_head(stored.save(tmp_path), target)


def test_pickles_are_refused(target: CausalModel, tmp_path: Path) -> None:
    folder = formats.eagle3().save(tmp_path)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(UsageError, match=r"safetensors"):
        load_head(folder, target)


def test_weights_are_no_numbers_until_they_are_loaded(target: CausalModel) -> None:
    for stored in (formats.eagle3(), formats.dflash(), formats.hydra(), formats.redrafter()):
        head = Drafter(read_description(stored.config, target, "x"), target)
        assert all(weight.isnan().all() for weight in head.parameters())


SAME_LAYERS: tuple[dict[str, Any], ...] = (
    {},
    {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2, 2]}},
    {"eagle_aux_hidden_state_layer_ids": [2, 3, 3]},
)


def test_every_spelling_of_layers_names_the_same_states(target: CausalModel) -> None:
    """`speculators` counts layers that have run, others name the layer whose output it is."""
    layers = [
        read_description(formats.eagle3(**more).config, target, "x").reads.layers
        for more in SAME_LAYERS
    ]
    assert layers == [(2, 3, 3)] * 3
    last = {"eagle_aux_hidden_state_layer_ids": [2, 3, 6]}
    with pytest.raises(MissingCapabilityError, match="after the target's last layer"):
        read_description(formats.eagle3(**last).config, target, "x")


def test_a_whole_vocabulary_needs_no_map(target: CausalModel, tmp_path: Path) -> None:
    stored = formats.eagle3(reduced=False)
    head = load_head(changed(stored, d2t=torch.zeros(61).long()).save(tmp_path), target)
    assert head.outputs.tokens is None


def test_a_heads_own_matrix_is_kept(target: CausalModel, tmp_path: Path) -> None:
    stored = formats.eagle3(reduced=False)
    head = load_head(stored.save(tmp_path), target)
    assert torch.equal(head.weights_by_name()["heads.0.weight"], stored.tensors["lm_head.weight"])
    assert not torch.equal(head.weights_by_name()["heads.0.weight"], target.head.weight)


def test_what_a_step_passes_on_is_set_by_the_flag(target: CausalModel, tmp_path: Path) -> None:
    plain, normed = formats.eagle3(), formats.eagle3(norm_output=True)
    heads = [load_head(x.save(tmp_path / str(n)), target) for n, x in enumerate((plain, normed))]
    tokens, features = torch.tensor([TEXT]), torch.randn(1, len(TEXT), 96).double()
    first, second = ([*unrolled(head, tokens, features, 2)] for head in heads)
    assert torch.equal(first[0][0, 5], second[0][0, 5])
    assert not torch.allclose(first[1][0, 5, :9], second[1][0, 5, :9])


def test_a_state_that_is_perturbed_changes_the_next_step(
    target: CausalModel, tmp_path: Path
) -> None:
    head = load_head(formats.eagle3(reduced=False).save(tmp_path), target)
    tokens, known = torch.tensor([[5]]), torch.ones(1, 1, dtype=torch.bool)
    one = torch.ones(1, 1, dtype=torch.int64)
    state = torch.randn(1, 1, 32).double()
    entered = [head.enter(tokens, one, x, known, one) for x in (state, state + 0.1)]
    assert not torch.allclose(*entered)


def test_texts_in_a_batch_are_texts_alone(target: CausalModel, tmp_path: Path) -> None:
    head = load_head(formats.eagle3(reduced=False).save(tmp_path), target)
    tokens = torch.tensor([TEXT, TEXT[::-1]])
    features = torch.randn(2, len(TEXT), 96).double()
    both = [*unrolled(head, tokens, features, 3)]
    for row in range(2):
        alone = [*unrolled(head, tokens[row : row + 1], features[row : row + 1], 3)]
        for step in range(3):
            torch.testing.assert_close(both[step][row, 1:], alone[step][0, 1:])


def test_gradients_reach_every_weight(target: CausalModel, tmp_path: Path) -> None:
    stored = {
        "eagle3": formats.eagle3(fc_norm=True), "medusa": formats.medusa(),
        "hydra": formats.hydra(), "mlp": formats.mlp_speculator(), "redrafter": formats.redrafter(),
        "dflash": formats.dflash(), "eagle": formats.eagle1(),
        "slots": formats.look_ahead_tokens(), "maps": formats.hidden_transfer(),
        "streams": formats.streams(layers=6), "chimera": bodies.chimera(),
        "tandem": bodies.tandem(), "bita": formats.bita(layers=6),
    }  # fmt: skip
    for name, one in stored.items():
        head = load_head(one.save(tmp_path / name), target)
        head.requires_grad_(True)
        states = torch.randn(1, len(TEXT), 32 * head.description.reads.count).double()
        logits = [*unrolled(head, torch.tensor([TEXT]), states, 3)]
        sum(x[0, 4].logsumexp(-1) - x[0, 4].max() for x in logits).backward()  # type: ignore[union-attr]
        dead = [n for n, w in head.weights_by_name().items() if w.grad is None or not w.grad.any()]
        assert not dead, (name, dead)


NAMES = {
    "deepseek": ("eh_proj", "", "enorm", "hnorm", "shared_head.norm"),
    "mimo": ("input_proj", "", "token_layernorm", "hidden_layernorm", "final_layernorm"),
    "qwen": ("fc", "layers.0.", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"),
}


@pytest.mark.parametrize("form", NAMES)
def test_a_targets_module_is_that_of_the_paper(form: str, home: Path, tmp_path: Path) -> None:
    """DeepSeek-V3, arXiv 2412.19437 section 2.2, under the names of three checkpoints."""
    import json
    import shutil

    folder = tmp_path / "target"
    shutil.copytree(home, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_nextn_predict_layers": 1}))
    tensors = formats.modules(form, 1, 6)
    formats.save_file(tensors, folder / "modules.safetensors")
    target = load_model(folder, dtype="float64")
    head = load_module(folder, target, 0)
    states = torch.randn(1, len(TEXT), 32).double()
    by_step = [*unrolled(head, torch.tensor([TEXT]), states, 2)]
    start = {"deepseek": "model.layers.6.", "mimo": "model.mtp_layers.0.", "qwen": "mtp."}[form]
    join, layer, *norms = NAMES[form]
    names = (
        f"{start}{join}.weight", f"{start}{layer}", *(f"{start}{name}.weight" for name in norms)
    )  # fmt: skip
    deep = form == "deepseek"
    table = tensors.get(f"{start}embed_tokens.weight", target.family.embedding.weight)  # type: ignore[attr-defined]
    last = tensors.get(f"{start}shared_head.head.weight", target.head.weight)
    wanted = papers.concat(
        tensors, table, last, TEXT[:7], target.family.finish(states[0, :6]), TEXT[7:8],
        names=names, epsilon=1e-6, onward_normed=not deep, first_embedding=not deep,
        layer_epsilon=1e-6,
    )  # fmt: skip
    for step in range(2):
        torch.testing.assert_close(by_step[step][0, 6], wanted[step], rtol=0, atol=2e-5)
    with pytest.raises(UsageError, match="holds no multi-token-prediction module 1"):
        load_module(folder, target, 1)
