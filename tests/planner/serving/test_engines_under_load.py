"""A 70B model behind an engine: the first token under load, and memory of many requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from specplan.notebook.problem import Problem
from specplan.result import Result
from tests.planner.big_models import write_70b


def optimize(folder: Path, device: str, backend: str, **settings: Any) -> Result:
    if not (folder / "target").exists():
        write_70b(folder)
    problem = Problem(
        target=folder / "target",
        drafts={"eagle": folder / "eagle"},
        device=device,
        backend=backend,
        prompt=1024,
        output=512,
        **settings,
    )
    return problem.assume(eagle=0.8).optimize()


def test_the_first_token_at_three_requests_a_second_waits_for_its_own_prompt(
    tmp_path: Path,
) -> None:
    """One prompt of 1,024 tokens takes eight H200 about 50 ms."""
    result = optimize(
        tmp_path,
        "8xh200",
        "vllm",
        batch=[1, 4, 16, 64, 256],
        objective="goodput",
        request_rate=3.0,
    )
    served = result.at_load
    assert served is not None and served.whole
    (at,) = served.mean.lengths
    assert 0.01 < float(at.times.ttft) < 0.1
    assert 3.0 < served.most.mean < 100.0
    assert result.search.plain.estimate is not None
    plain = result.search.served_by(result.search.plain)
    assert plain is not None and float(plain.mean.lengths[0].times.tpot) > float(at.times.tpot)


def test_an_engine_reads_the_prompts_of_512_requests_in_steps_of_its_own(tmp_path: Path) -> None:
    priced = {}
    for backend in ("vllm", "none"):
        plain = optimize(tmp_path, "8xh100-sxm", backend, batch=[1, 512]).search.plain
        priced[backend] = plain.estimates[-1]
    assert priced["vllm"].batch == 512 and priced["vllm"].memory.total < 8 * 80e9
    assert priced["none"].batch == 1, "512 prompts at once do not fit"
