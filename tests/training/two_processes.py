"""Trains Medusa heads in as many processes as call it; see `test_trainer.py`."""

from __future__ import annotations

import json
from pathlib import Path

from specplan.cost_models.models.new_heads import medusa_config
from specplan.measure.workbench import Workbench
from specplan.planner import load_problem
from specplan.training.learning.packing import Text
from specplan.training.recipe import Recipe
from specplan.training.trainer import train_head


def train_heads(problem: Path, folder: Path) -> None:
    """Four texts of other lengths, two steps."""
    bench = Workbench(load_problem(problem))
    path = bench.problem.models.target.path / "config.json"
    config = medusa_config(json.loads(path.read_text()), "target", heads=2)
    texts = [Text(tuple(range(5, 5 + length)), 3) for length in (9, 12, 20, 30)]
    recipe = Recipe(row_tokens=30, learning_rate=0.01, warmup=1)
    train_head(config, bench.models["target"], texts, 2, folder, recipe)
