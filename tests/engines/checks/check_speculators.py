"""Logits of an EAGLE-3 head by `speculators`.

    check_speculators.py HEAD TARGET INPUTS OUT STEPS LAYERS

HEAD is a checkpoint that specplan wrote, in SpecForge's names; `speculators` converts it to its own
form. INPUTS holds `tokens` `[1, T]` and `states` `[1, T, layers * width]` of the target; OUT gets
`logits` `[STEPS, T - 1, vocabulary]`, whose row t belongs to token t + 1.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import mkdtemp

import torch
from safetensors.torch import load_file, save_file
from speculators.convert.eagle.eagle3_converter import Eagle3Converter
from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig


def main(head: str, target: str, inputs: str, out: str, steps: str, layers: str) -> None:
    """Write the logits."""
    folder = Path(mkdtemp()) / "converted"
    ids = [int(layer) for layer in layers.split(",")]
    Eagle3Converter().convert(
        head, folder, target, validate=False, eagle_aux_hidden_state_layer_ids=ids
    )
    config = Eagle3SpeculatorConfig.from_pretrained(folder)
    config.transformer_layer_config._attn_implementation = "eager"
    model = Eagle3DraftModel.from_pretrained(folder, config=config)
    with torch.no_grad():
        model.embed_tokens.weight.fill_(torch.nan)  # absent from the file: else memory as it was
    model.load_verifier_weights()
    model.to(torch.float64).eval()
    given, logits = load_file(inputs), []
    model.lm_head.register_forward_hook(lambda module, args, result: logits.append(result[0]))
    tokens, states = given["tokens"][:, 1:], given["states"][:, :-1].to(torch.float64)
    with torch.no_grad():
        model(states, tokens, torch.zeros_like(tokens), ttt_steps=int(steps))
    save_file({"logits": torch.stack(logits).contiguous()}, out)


if __name__ == "__main__":
    main(*sys.argv[1:])
