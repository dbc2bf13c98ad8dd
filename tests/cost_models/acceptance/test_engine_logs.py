"""Logs of vLLM and SGLang as they are printed, and a server that is asked itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.importing import import_acceptance, understood
from specplan.ir.errors import UsageError
from tests.cost_models.acceptance.importer_files import PROMETHEUS, SGLANG_LOG, VLLM_LOG

Read = Callable[..., AcceptanceProfile]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def call(text: str, **options: Any) -> AcceptanceProfile:
        path = tmp_path / "server.log"
        path.write_text(text)
        return import_acceptance(path, "eagle", **options)

    return call


def chain(length: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(range(-1, length - 1)), (0,) * length


def test_a_vllm_log_is_the_sum_of_its_lines(read: Read) -> None:
    profile = read(VLLM_LOG)
    weights = 1022 / (0.770 + 0.540 + 0.366), 600 / 1.5
    marginal = [
        (a * weights[0] + b * weights[1]) / sum(weights)
        for a, b in zip((0.770, 0.540, 0.366), (0.700, 0.500, 0.300), strict=True)
    ]
    assert profile.accepted_at_least(*chain(3)) == pytest.approx(marginal)
    assert profile.provenance["rounds"] == round(sum(weights))
    text = understood(profile)
    assert "vLLM (vllm-log); 2 lines; 3 draft tokens per step (K)" in text
    assert "1,622 of 3,030 draft tokens accepted" in text


def test_lines_with_other_draft_lengths_add_by_position(read: Read) -> None:
    short = VLLM_LOG.splitlines()[1].replace("0.770, 0.540, 0.366", "0.900").replace("2.68", "1.90")
    profile = read(f"{VLLM_LOG}{short}\n")
    assert 0.74 < profile.hazard(1, 0) < 0.9
    assert profile.hazard(2, 0) == pytest.approx(read(VLLM_LOG).hazard(2, 0))


def test_an_idle_line_counts_nothing_and_a_contradiction_is_an_error(read: Read) -> None:
    counts = "Accepted: 0 tokens, Drafted: 0 tokens"
    idle = f"SpecDecoding metrics: Mean acceptance length: nan, {counts}"
    assert read(f"{VLLM_LOG}{idle}\n").evidence == read(VLLM_LOG).evidence
    with pytest.raises(UsageError, match="count no drafts"):
        read(idle)
    with pytest.raises(UsageError, match="line 3 has a mean acceptance length"):
        read(VLLM_LOG.replace("length: 2.50", "length: 3.50"))
    with pytest.raises(UsageError, match="line 2 lacks"):
        read(VLLM_LOG.replace("Accepted: 1022 tokens, ", ""))


def test_an_sglang_log_weighs_its_lines_by_requests(read: Read) -> None:
    profile = read(SGLANG_LOG)
    assert profile.tokens_per_round(*chain(3)).mean == pytest.approx(2.8, abs=0.02)
    assert profile.provenance["rounds"] == 12 * 40
    assert "SGLang (sglang-log); 2 lines; 3 draft tokens per step (K)" in understood(profile)


@pytest.mark.parametrize(
    ("rates", "tokens"), [(("0.63", "0.53"), 3), (("0.72", "0.65"), 3), (("0.48", "0.43"), 5)]
)
def test_draft_tokens_of_an_sglang_log_without_settings(
    read: Read, rates: tuple[str, str], tokens: int
) -> None:
    """By both meanings of the rate: (length - 1) / K, and length / (K + 1)."""
    lines = "".join(SGLANG_LOG.splitlines(keepends=True)[1:])
    changed = lines.replace("0.63", rates[0]).replace("0.53", rates[1])
    assert read(changed).provenance["draft_tokens"] == tokens


def test_an_sglang_log_that_leaves_the_draft_tokens_open(read: Read) -> None:
    lines = "".join(SGLANG_LOG.splitlines(keepends=True)[1:])
    bare = lines.replace(", accept rate: 0.63", "").replace(", accept rate: 0.53", "")
    with pytest.raises(UsageError, match="--draft-tokens"):
        read(bare)
    assert read(bare, draft_tokens=5).provenance["draft_tokens"] == 5
    with pytest.raises(UsageError, match="trees were drafted"):
        read(SGLANG_LOG.replace("topk=1", "topk=4"))


@pytest.fixture
def server() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            metrics = self.path == "/metrics"
            self.send_response(200 if metrics else 302)
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
            self.end_headers()
            self.wfile.write(PROMETHEUS.encode() if metrics else b"")

        def log_message(self, format: str, *args: Any) -> None:
            pass

    running = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{running.server_port}"
    running.shutdown()


@pytest.mark.parametrize("page", ["", "/", "/metrics"])
def test_a_running_server_is_asked_for_its_counters(
    server: str, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    profile = import_acceptance(f"{server}{page}", "eagle")
    assert profile.hazard(1, 0) == pytest.approx(0.71)
    assert server.partition("//")[2] in profile.source


def test_no_redirect_is_followed_and_silence_is_an_error(server: str) -> None:
    with pytest.raises(UsageError, match="answered 302"):
        import_acceptance(f"{server}/other", "eagle")
    with pytest.raises(UsageError, match="cannot be read"):
        import_acceptance("http://127.0.0.1:1/metrics", "eagle")
