"""PEARL's windows: one of them takes the draft model as long as the target's pass."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from specplan.planner.methods.pearl import LENGTHS, LONGEST, METHOD, matched_length
from tests.planner.example_facts import example_facts


def test_a_window_follows_the_speeds_of_the_models(tmp_path: Path) -> None:
    facts = example_facts(tmp_path)
    batch, context = np.array(facts.batch_sizes)[:, None], np.array(facts.contexts)
    target, draft = (
        float(np.mean(facts.device.forward_seconds(facts.shape(role), batch, 1, context).median))
        for role in ("target", "draft")
    )
    length = matched_length(facts, "draft")
    assert length == min(max(round(target / draft), LENGTHS[0]), LONGEST)
    assert (length - 0.5) * draft < target < (length + 0.5) * draft or length == LONGEST
    settings = [one.length for one in METHOD.run_settings(facts)]
    assert settings == sorted({*LENGTHS, length})
    alike = replace(facts, drafts={"draft": facts.target})
    assert matched_length(alike, "draft") == LENGTHS[0], "a draft as slow as the target"
