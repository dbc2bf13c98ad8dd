"""Ray Serve LLM: vLLM's settings passed through as `engine_kwargs`; `serve run ray_serve.yaml`."""

from __future__ import annotations

from typing import Any

from specplan.backends.engines.job import Emission, Job, command_line
from specplan.backends.engines.vllm import notes, server_settings


def project(job: Job) -> Emission:
    """`ray_serve.yaml`: one application with one model."""
    arguments = {name.replace("-", "_"): value for name, value in server_settings(job).items()}
    config: dict[str, Any] = {
        "model_loading_config": {"model_id": "target", "model_source": job.target},
        "engine_kwargs": arguments,
    }
    application = {
        "name": "target",
        "route_prefix": "/",
        "import_path": "ray.serve.llm:build_openai_app",
        "args": {"llm_configs": [config]},
    }
    return Emission(
        {"ray_serve.yaml": {"applications": [application]}},
        command=command_line("serve run ray_serve.yaml"),
        notes=(
            *notes(job),
            "To force acceptance, emit for the vLLM that Ray brings (vllm@0.29) and merge the "
            "speculative-config of forced.yaml.",
        ),
    )
