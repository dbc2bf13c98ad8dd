"""Rows of engine benchmarks: reading, splitting, predicting, scoring."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specplan.ir.errors import UsageError

PAGE = """
- Hardware: NVIDIA H100 GPU (1x)
- sglang version: 0.5.6
```
python -m sglang.launch_server \\
  --model Qwen/Qwen3-8B
```
============ Serving Benchmark Result ============
Max request concurrency:                 4
Successful requests:                     100
Total input tokens:                      23300
Total generated tokens:                  22100
Mean TPOT (ms):                          7.19
"""


@pytest.fixture(autouse=True)
def scripts(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Imports as the benchmark itself does them."""
    monkeypatch.syspath_prepend(str(repository / "benchmarks"))


def row(**changes: Any) -> dict[str, Any]:
    """Qwen3-8B on one H100, four requests in flight: 7.38 ms under vLLM 0.11 (GPUStack)."""
    setting = {"engine_version": "0.11.0", "num_devices": 1, "concurrency": 4}
    return {
        "system": "vLLM",
        "source": "a page",
        "hardware": "NVIDIA H100 SXM",
        "model_pair": {"target": "Qwen/Qwen3-8B", "draft": None},
        "metric": "tpot",
        "value": 7.38,
        "unit": "ms",
        "setting": setting | {"input_len": 233, "output_len": 221},
    } | changes


def test_rows_are_scored_by_engine_and_metric(tmp_path: Path) -> None:
    import serving_engines

    path = tmp_path / "rows.json"
    slow = row(metric="output_throughput", value=4 / 7.6e-3, unit="tokens/s")
    path.write_text(json.dumps([row(), slow, row(hardware="an abacus"), row(system="llama.cpp")]))
    document = serving_engines.score_file(path)
    (one,) = document["engines"]
    assert (one["engine"], one["metric"]) == ("vllm", "tpot")
    assert one["count"] + one["fitted"] == 2
    assert (one["median_error"] or one["fitted_error"]) < 0.12
    assert document["unpredicted"] == {
        "no data sheet of 'an abacus'": 1, "no engine of ours": 1
    }  # fmt: skip
    assert serving_engines.show(path, None, as_json=True) == 0
    with pytest.raises(UsageError, match="not a list"):
        path.write_text("3")
        serving_engines.score_file(path)


def test_the_hash_of_a_source_decides_who_sets_constants() -> None:
    from engine_rows.split import sets_nothing

    from published_rows.row import Row

    rows = [Row("vLLM", "tpot", source=f"run {number}") for number in range(2000)]
    unseen = [sets_nothing(one) for one in rows]
    assert 0.3 < sum(unseen) / len(unseen) < 0.4
    assert unseen == [sets_nothing(one) for one in rows]


def test_a_page_of_results_is_read(tmp_path: Path) -> None:
    from engine_rows.serving_pages import cookbook_rows

    page = tmp_path / "docs" / "autoregressive" / "Qwen" / "Qwen3.md"
    page.parent.mkdir(parents=True)
    page.write_text(PAGE)
    (one,) = cookbook_rows(tmp_path)
    assert (one["system"], one["hardware"]) == ("SGLang", "NVIDIA H100 GPU (1x)")
    assert one["model_pair"]["target"] == "Qwen/Qwen3-8B" and one["value"] == 7.19e-3
    wanted = {"engine_version": "0.5.6", "concurrency": 4, "input_len": 233, "output_len": 221}
    assert one["setting"].items() >= wanted.items()


@pytest.mark.shared
def test_gains_of_specforge(shared: Path) -> None:
    """185 runs of EAGLE-3 heads: where rounds take longer than plain steps, within 8 %."""
    import serving_engines

    document = serving_engines.score_file(shared / "data" / "eagle3_h200_dev.json")
    (gains,) = document["engines"]
    assert gains["metric"] == "gain" and gains["fitted_error"] < 0.08
