"""Runs in an environment with vLLM: its parser and the whole of its engine configuration.

A CUDA platform is declared (one H200, or eight), and the compiled extensions, which a CPU cannot
load, are replaced by empty modules: nothing of the configuration calls them. Arguments: folder of
cases, `files` or `ray` or `dynamo`. Prints one JSON document.
"""

import dataclasses
import importlib
import importlib.machinery
import json
import os
import re
import shlex
import sys
import types
from pathlib import Path

os.environ.update(VLLM_LOGGING_LEVEL="ERROR", HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1")


class Empty(types.ModuleType):
    """A module with every name."""

    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *a, **k: None


EXTENSIONS = (
    "_C_stable_libtorch", "_C", "_moe_C", "_moe_C_stable_libtorch", "cumem_allocator", "_qutlass_C",
    "_flashmla_C", "vllm_flash_attn", "vllm_flash_attn.flash_attn_interface",
    "vllm_flash_attn.layers", "vllm_flash_attn.layers.rotary",
)  # fmt: skip
for extension in EXTENSIONS:
    module = Empty(f"vllm.{extension}")
    module.__spec__ = importlib.machinery.ModuleSpec(module.__name__, None)
    sys.modules[module.__name__] = module

import torch  # noqa: E402

_namespace = torch._ops._OpNamespace.__getattr__


def _ops(self, name):
    try:
        return _namespace(self, name)
    except AttributeError:
        if "supports" not in name:
            raise
        return lambda *a, **k: True


torch._ops._OpNamespace.__getattr__ = _ops
torch.cuda.is_available = lambda: False
torch.cuda.get_device_capability = lambda *a, **k: (9, 0)
torch.cuda.get_device_properties = lambda *a, **k: types.SimpleNamespace(
    multi_processor_count=132, total_memory=141 * 10**9, name="NVIDIA H200", major=9, minor=0,
    shared_memory_per_block_optin=232448, shared_memory_per_multiprocessor=233472, warp_size=32,
    max_threads_per_multi_processor=2048, L2_cache_size=50 * 2**20,
)  # fmt: skip

import vllm  # noqa: E402
import vllm.config.speculative as speculative  # noqa: E402
import vllm.config.vllm as whole  # noqa: E402
import vllm.model_executor.models.registry as registry  # noqa: E402
import vllm.platforms as platforms  # noqa: E402
import vllm.platforms.cuda as cuda  # noqa: E402
import vllm.triton_utils as triton_utils  # noqa: E402
import vllm.triton_utils.importing as importing  # noqa: E402
from vllm.platforms.interface import DeviceCapability  # noqa: E402


class Declared(cuda.NonNvmlCudaPlatform):
    """Eight H200."""

    @classmethod
    def get_device_capability(cls, device_id=0):
        return DeviceCapability(9, 0)

    @classmethod
    def has_device_capability(cls, capability, device_id=0):
        return (capability if isinstance(capability, tuple) else divmod(capability, 10)) <= (9, 0)

    @classmethod
    def get_device_name(cls, device_id=0):
        return "NVIDIA H200"

    @classmethod
    def get_device_total_memory(cls, device_id=0):
        return 141 * 10**9

    @classmethod
    def device_count(cls):
        return 8

    @classmethod
    def is_fully_connected(cls, ids):
        return True

    @classmethod
    def num_compute_units(cls, device_id=0):
        return 132


def _inspected(self):
    """What is asked of a model's class, whose import needs the extensions."""
    known = {
        "architecture": self.class_name, "attn_type": "decoder", "default_seq_pooling_type": "LAST",
        "default_tok_pooling_type": "ALL", "score_type": "bi-encoder",
        "supported_video_pruning_methods": (), "is_text_generation_model": True,
        "supports_pp": True, "supports_lora": True,
    }  # fmt: skip
    names = [field.name for field in dataclasses.fields(registry._ModelInfo)]
    return registry._ModelInfo(**{name: known.get(name, False) for name in names})


platforms._current_platform = Declared()
importing.HAS_TRITON = triton_utils.HAS_TRITON = whole.HAS_TRITON = True
registry._LazyRegisteredModel.inspect_model_cls = _inspected
speculative.has_arctic_inference = lambda: True

from vllm.engine.arg_utils import AsyncEngineArgs  # noqa: E402
from vllm.utils.argparse_utils import FlexibleArgumentParser  # noqa: E402


def server_parser():
    """The parser of `vllm serve`."""
    for name in ("common", "launchers", "openai"):
        try:
            made = importlib.import_module(f"vllm.entrypoints.{name}.cli_args").make_arg_parser
        except (ImportError, AttributeError):
            continue
        parser = FlexibleArgumentParser(prog="vllm")
        serve = parser.add_subparsers(dest="subparser").add_parser("serve")
        return parser, made(serve) or serve
    raise RuntimeError("vLLM has no make_arg_parser where it is looked for")


def of_file(case, name):
    """The engine's configuration of a file."""
    target = re.search(r"vllm serve (\S+)", (case / "command").read_text())[1]
    parsed = server_parser()[0].parse_args(["serve", target, "--config", str(case / name)])
    parsed.model = getattr(parsed, "model_tag", None) or parsed.model
    return AsyncEngineArgs.from_cli_args(parsed).create_engine_config()


def files(case):
    """Its files, and the line of the load generator."""
    for name in ("vllm.yaml", "forced.yaml"):
        if (case / name).exists():
            of_file(case, name)
    if (case / "measure").exists():
        from vllm.benchmarks.serve import add_cli_args

        parser = FlexibleArgumentParser(prog="vllm bench serve")
        add_cli_args(parser)
        line = (case / "measure").read_text().replace("\\\n", " ")
        parser.parse_args(shlex.split(line)[3:])


def ray(case):
    """Ray's schema of the deployment, and the engine configuration that it makes."""
    import yaml
    from ray.serve.llm import LLMConfig, LLMServingArgs
    from ray.serve.schema import ServeDeploySchema

    document = yaml.safe_load((case / "ray_serve.yaml").read_text())
    ServeDeploySchema(**document)
    arguments = document["applications"][0]["args"]
    LLMServingArgs(**arguments)
    engine = LLMConfig(**arguments["llm_configs"][0]).get_engine_config()
    AsyncEngineArgs(**engine.get_initialization_kwargs()).create_engine_config()


def dynamo(case):
    """The arguments of Dynamo's worker, and the engine configuration that they make."""
    import yaml
    from dynamo.vllm.args import parse_args

    document = yaml.safe_load((case / "dynamo.yaml").read_text())
    worker = document["spec"]["services"]["VllmWorker"]["extraPodSpec"]["mainContainer"]
    parse_args(worker["args"]).engine_args.create_engine_config()
    line = shlex.split((case / "command").read_text().replace("\\\n", " "))
    parse_args(line[line.index("dynamo.vllm") + 1 :])


def check(reader, case):
    """Why a case is not taken; "" where it is."""
    try:
        reader(case)
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error}"[:600]
    return ""


def options():
    """Names and choices of the server's options and of the keys of the speculative config."""
    serve = server_parser()[1]
    by_name = {}
    for action in serve._actions:
        for name in action.option_strings:
            choices = [str(one) for one in action.choices] if action.choices else None
            by_name[name.lstrip("-")] = {"choices": choices} if choices else {}
    for field in dataclasses.fields(speculative.SpeculativeConfig):
        by_name[f"speculative-config.{field.name}"] = {}
    return by_name


def main():
    folder, kind = Path(sys.argv[1]), sys.argv[2]
    reader = {"files": files, "ray": ray, "dynamo": dynamo}[kind]
    cases = {case.name: check(reader, case) for case in sorted(folder.iterdir())}
    print(json.dumps({"cases": cases, "version": vllm.__version__, "options": options()}))


main()
