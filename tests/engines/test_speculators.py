"""`speculators` reads the EAGLE-3 heads that are trained here, and computes the same logits."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from specplan.cost_models.models.new_heads import eagle3_config
from specplan.measure.acceptance.heads import text_features
from specplan.runtime.models.heads.loading import load_head
from specplan.runtime.models.heads.text_attention import Texts
from specplan.runtime.models.heads.unrolled import unrolled
from specplan.runtime.models.loading import load_model
from specplan.training.new_heads import new_head, public_tensors
from tests.backends.pairs import save_pair
from tests.engines.environments import FOLDER, installed, python_of

CHECK = Path(__file__).parent / "checks/check_speculators.py"
VOCABULARY, KNOWN, STEPS = 61, 24, 3


def test_logits_are_those_of_speculators(tmp_path: Path) -> None:
    """Of a random head with a reduced vocabulary, along a text and its own states, to 1e-4."""
    if not installed("speculators"):
        pytest.skip(
            f"{FOLDER / 'speculators'} is not installed; run: "
            "python -m tests.engines.environments speculators"
        )
    save_pair(tmp_path, VOCABULARY, layers=8)
    target = load_model(tmp_path / "target", dtype="float64")
    given = json.loads((tmp_path / "target/config.json").read_text())
    config = eagle3_config(given, "target", layers=1, halves=0, vocabulary=KNOWN)
    new = new_head(config, target, 0, [range(7, VOCABULARY, 2)])
    with torch.no_grad():
        make = torch.Generator().manual_seed(0)
        for weight in new.parameters():
            weight += 0.2 * torch.randn(weight.shape, generator=make, dtype=weight.dtype)
    folder = tmp_path / "head"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(public_tensors(new), folder / "model.safetensors")
    head = load_head(folder, target)

    tokens = torch.randint(0, VOCABULARY, (1, 14), generator=make)
    layers = head.description.reads.layers
    states = text_features(target, Texts.alone(tokens), layers)
    inputs, out = tmp_path / "inputs.safetensors", tmp_path / "logits.safetensors"
    save_file({"tokens": tokens, "states": states.detach().contiguous()}, inputs)
    arguments = [folder, tmp_path / "target", inputs, out, STEPS, ",".join(map(str, layers))]
    subprocess.run([python_of("speculators"), CHECK, *map(str, arguments)], check=True)

    theirs, known = load_file(out)["logits"], head.outputs.tokens
    assert known is not None and len(known) == KNOWN
    with torch.no_grad():
        ours = [logits[0][:, known] for logits in unrolled(head, tokens, states, STEPS)]
    for step, logits in enumerate(ours):
        last = tokens.shape[1] - step
        assert logits[1:last].abs().max() > 0.5
        torch.testing.assert_close(logits[1:last], theirs[step, : last - 1], rtol=0, atol=1e-4)
