"""NVIDIA Dynamo with vLLM workers: vLLM's options, passed through by `dynamo.vllm`."""

from __future__ import annotations

import json
import shlex
from typing import Any

from specplan.backends.engines.job import Emission, Job, command_line
from specplan.backends.engines.vllm import notes, server_settings


def project(job: Job) -> Emission:
    """`dynamo.yaml`, a DynamoGraphDeployment, and the command for one machine."""
    arguments = _arguments(job)
    worker = {
        "componentType": "worker",
        "replicas": 1,
        "resources": {"limits": {"gpu": str(job.devices)}},
        "extraPodSpec": {
            "mainContainer": {"command": ["python3", "-m", "dynamo.vllm"], "args": arguments}
        },
    }
    deployment: dict[str, Any] = {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": "specplan"},
        "spec": {
            "services": {
                "Frontend": {"componentType": "frontend", "replicas": 1},
                "VllmWorker": worker,
            }
        },
    }
    return Emission(
        {"dynamo.yaml": deployment},
        command=command_line(
            "python3 -m dynamo.frontend --discovery-backend file & "
            "python3 -m dynamo.vllm --discovery-backend file",
            *(shlex.quote(part) for part in arguments),
        ),
        notes=(
            *notes(job),
            "The command runs on one machine and finds its workers by files; without "
            "--discovery-backend file Dynamo looks for an etcd server.",
            "Set the container image of dynamo.yaml's worker to that of your release.",
        ),
    )


def _arguments(job: Job) -> list[str]:
    arguments = ["--model", job.target]
    for name, value in server_settings(job).items():
        arguments += [f"--{name}", json.dumps(value) if isinstance(value, dict) else str(value)]
    return arguments
