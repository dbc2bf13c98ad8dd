"""Small files in the published formats of other programs, written for these tests.

Where each format is described: the docstring of its importer. The figures of the vLLM response are
those of the example in its documentation.
"""

from __future__ import annotations

import json
from typing import Any

PROMETHEUS = """\
# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 600.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 400.0
# TYPE vllm:spec_decode_num_drafts_created gauge
vllm:spec_decode_num_drafts_created{engine="0",model_name="m"} 1.7600000000e+09
# TYPE vllm:spec_decode_num_draft_tokens_total counter
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 1800.0
vllm:spec_decode_num_draft_tokens_total{engine="1",model_name="m"} 1200.0
# TYPE vllm:spec_decode_num_accepted_tokens_total counter
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 1000.0
vllm:spec_decode_num_accepted_tokens_total{engine="1",model_name="m"} 660.0
# TYPE vllm:spec_decode_num_accepted_tokens_per_pos_total counter
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 430.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="m",position="0"} 280.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 320.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="m",position="1"} 210.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="2"} 250.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="m",position="2"} 170.0
vllm:spec_decode_num_accepted_tokens_per_pos_created{engine="0",model_name="m",position="0"} 1.7e+09
vllm:num_requests_running{engine="0",model_name="m"} 2.0
"""
VLLM_LOG = """\
(APIServer pid=7) INFO 11-24 10:00:01 [loggers.py:127] Engine 000: Avg prompt throughput: 12.3 \
tokens/s, Avg generation throughput: 268.0 tokens/s, Running: 4 reqs, Waiting: 0 reqs
(APIServer pid=7) INFO 11-24 10:00:01 [metrics.py:96] SpecDecoding metrics: Mean acceptance \
length: 2.68, Accepted throughput: 102.10 tokens/s, Drafted throughput: 182.80 tokens/s, \
Accepted: 1022 tokens, Drafted: 1830 tokens, Per-position acceptance rate: 0.770, 0.540, 0.366, \
Avg Draft acceptance rate: 55.8%
(APIServer pid=7) INFO 11-24 10:00:11 [metrics.py:96] SpecDecoding metrics: Mean acceptance \
length: 2.50, Accepted throughput: 60.00 tokens/s, Drafted throughput: 120.00 tokens/s, \
Accepted: 600 tokens, Drafted: 1200 tokens, Per-position acceptance rate: 0.700, 0.500, 0.300, \
Avg Draft acceptance rate: 50.0%
"""
SGLANG_LOG = """\
[2026-11-24 10:00:00] server_args=ServerArgs(model_path='m', speculative_algorithm='EAGLE3', \
speculative_num_steps=3, speculative_eagle_topk=1, speculative_num_draft_tokens=4, \
decode_log_interval=40)
[2026-11-24 10:00:09 TP0] Decode batch. #running-req: 8, #token: 9012, token usage: 0.01, \
accept len: 2.90, accept rate: 0.63, cuda graph: True, gen throughput (token/s): 1488.36, \
#queue-req: 0,
[2026-11-24 10:00:12 TP0] Decode batch. #running-req: 4, #token: 4502, token usage: 0.01, \
accept len: 2.60, accept rate: 0.53, cuda graph: True, gen throughput (token/s): 801.20, \
#queue-req: 0,
"""
LLAMA_CPP = """\
llamacpp:spec_decode_num_draft_tokens_total 300
llamacpp:spec_decode_num_accepted_tokens_total 150
llamacpp:spec_decode_num_drafts_total 100
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 80
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 50
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="2"} 20
"""
BENCH: dict[str, Any] = {
    "date": "20261101-120000",
    "backend": "openai-chat",
    "model_id": "m",
    "completed": 80,
    "output_throughput": 812.5,
    "spec_decode_acceptance_rate": 40.67,
    "spec_decode_acceptance_length": 2.22,
    "spec_decode_num_drafts": 5000,
    "spec_decode_draft_tokens": 15000,
    "spec_decode_accepted_tokens": 6100,
    "spec_decode_per_position_acceptance_rates": [0.62, 0.39, 0.21],
}
RESPONSE: dict[str, Any] = {
    "id": "chatcmpl-1",
    "choices": [{"index": 0, "finish_reason": "stop"}],
    "usage": {"completion_tokens": 53},
    "metrics": {
        "speculative_decoding": {
            "mean_acceptance_length": 1.2325581395348837,
            "draft_acceptance_rate": 0.07751937984496124,
            "acceptance_histogram": [39, 1, 0, 3],
            "num_spec_steps": 43,
            "num_accepted_draft_tokens": 10,
            "num_draft_tokens": 129,
            "num_spec_tokens": 3,
        }
    },
}
STEPS: dict[str, Any] = {
    "mean_acceptance_length": 2.4,
    "draft_acceptance_rate": 7 / 12,
    "acceptance_histogram": [1, 2, 1, 1],
    "num_spec_steps": 5,
    "num_accepted_draft_tokens": 7,
    "num_draft_tokens": 12,
    "num_spec_tokens": 3,
    "per_step_accepted": [3, 1, 2, 0, 1],
    "per_step_drafted": [3, 3, 3, 2, 1],
}
DETAILED: dict[str, Any] = {"metrics": {"speculative_decoding": STEPS}}
SERVER_INFO: dict[str, Any] = {
    "model_path": "m",
    "speculative_algorithm": "EAGLE3",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
    "internal_states": [
        {"last_gen_throughput": 120.5, "avg_spec_accept_length": 2.8},
        {"last_gen_throughput": 118.0, "avg_spec_accept_length": 2.9},
    ],
    "version": "0.5.16",
}
SGLANG_METRICS = """\
# HELP sglang:spec_accept_length Mean acceptance length (accepted drafts + bonus token per forward).
# TYPE sglang:spec_accept_length gauge
sglang:spec_accept_length{model_name="m",tp_rank="0"} 2.3
sglang:spec_accept_rate{model_name="m",tp_rank="0"} 0.43
sglang:spec_num_steps{model_name="m"} 3
"""


def iteration(drafted: int, accepted: int, requests: int, rank: int = 0) -> dict[str, Any]:
    """An iteration of TensorRT-LLM."""
    return {
        "iter": 7,
        "iterLatencyMS": 21.5,
        "attentionDpRank": rank,
        "specDecodingStats": {
            "numDraftTokens": drafted,
            "numAcceptedTokens": accepted,
            "numRequestsWithDraftTokens": requests,
            "acceptanceLength": 1.0 + accepted / requests if requests else 0.0,
            "iterLatencyMS": 3.0,
            "draftOverhead": 0.14,
        },
    }


ITERATIONS = [iteration(0, 0, 0), iteration(24, 12, 8), iteration(24, 15, 8), iteration(6, 5, 2)]


def answer(*accept_lengths: int, question: int = 81) -> str:
    """A line of Spec-Bench's answers."""
    record = {
        "question_id": question,
        "category": "writing",
        "model_id": "vicuna-7b-sps",
        "choices": [
            {
                "index": 0,
                "turns": ["..."],
                "decoding_steps": [len(accept_lengths)],
                "new_tokens": [sum(accept_lengths)],
                "wall_time": [1.5],
                "accept_lengths": list(accept_lengths),
            }
        ],
        "tstamp": 1.7e9,
    }
    return json.dumps(record) + "\n"


ACCEPTANCE_CSV = """\
subset,num_drafts,num_draft_tokens,num_accepted_tokens,acceptance_length,acceptance_at_pos_0,acceptance_at_pos_1,acceptance_at_pos_2
HumanEval,1000,3000,1710,2.71,0.80,0.55,0.36
math_reasoning,2000,6000,2400,2.20,0.65,0.35,0.20
short,500,1000,400,1.80,0.50,0.30,
"""
SPECDEC_BENCH: dict[str, Any] = {
    "Request_AL": {"0": {"0": 2.5}, "1": {"0": 2.1}},
    "Average_AL": 2.3,
    "Acceptance_Length_Histogram": {"1": 40, "2": 30, "4": 30},
    "Conditional_Acceptance_Rate": {"1": 1.0, "2": 0.6, "4": 0.5},
    "Joint_Acceptance_Rate": {"1": 1.0, "2": 0.6, "4": 0.3},
}
GOLDEN_YAML = """\
qwen3.5-397b:
  thinking_on: {1: 1.93, 2: 2.73, 3: '3.39', 4: 3.97, 5: 4.41, 6: 4.80, 7: 5.04, 8: 5.21}
"""
