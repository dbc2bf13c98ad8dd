"""The problem: what is to be decoded, on what, how often, and what counts as better.

Field descriptions state units; they become the exported JSON Schema (`problem_json_schema`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from specplan.cost_models.acceptance.drafter_texts import read_drafter
from specplan.cost_models.acceptance.drafters import Drafter
from specplan.ir.capabilities import INTERPRETER, backend_name
from specplan.planner.problem.acceptance import (
    FORMS_OF_ACCEPTANCE,
    PRIOR,
    Acceptance,
    drafters_with_priors,
    printed_drafter,
)
from specplan.planner.problem.limits import Device, Followed, Limits, Strict
from specplan.planner.problem.models import Formats, Models, formats_words

SCHEMA_VERSION = 1

NO_BACKEND = "none"
"""The backend of problems that are planned for and not run here."""

Count = Annotated[int, Field(strict=True, ge=1)]
BatchSize = Annotated[int, Field(strict=True, ge=1, le=1_000_000)]
"""Schedules are read at every batch size up to the largest; none that is served is near this."""
NonNegative = Annotated[int, Field(strict=True, ge=0)]
PositiveReal = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
Backend = Annotated[str, AfterValidator(backend_name)]


class Workload(Followed):
    """The requests to be served.

    Give `output_tokens` with `prompt_tokens` or `prompt_lengths`, or `trace`.
    """

    batch_sizes: tuple[BatchSize, ...] = Field(
        min_length=1, description="Numbers of requests decoded together."
    )
    prompt_tokens: Count | None = Field(
        default=None, description="Length of a prompt, in tokens; not together with trace."
    )
    prompt_lengths: tuple[Count, ...] | None = Field(
        default=None,
        min_length=1,
        description="Several lengths of prompts, in tokens, each priced apart at every batch "
        "size; instead of prompt_tokens.",
    )
    cached_prefix: NonNegative = Field(
        default=0,
        description="Tokens at the start of every prompt whose KV cache is there already (a "
        "prefix-cache hit): they take memory and are attended to, but need no prefill.",
    )
    output_tokens: Count | None = Field(
        default=None, description="Length of an output, in tokens; not together with trace."
    )
    trace: Path | None = Field(
        default=None,
        description="JSON Lines file of requests, one object per line with prompt_tokens and "
        "output_tokens; relative to the problem file.",
    )
    temperature: Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)] = Field(
        default=0.0, description="Sampling temperature; 0 is greedy decoding."
    )
    top_k: NonNegative = Field(
        default=0,
        description="Sample among this many most probable tokens; off if 0, or if greedy.",
    )
    top_p: Annotated[float, Field(strict=True, gt=0, le=1, allow_inf_nan=False)] = Field(
        default=1.0,
        description="Sample among the fewest tokens with this total probability; off if greedy.",
    )
    answer_trigger: tuple[NonNegative, ...] = Field(
        default=(),
        description="Token ids of the text that asks for the answer behind reasoning, such as "
        '" Therefore, the answer is", for fastcot.',
    )
    images: NonNegative = Field(
        default=0,
        description="Images in each prompt, for a target that sees them; their embeddings are part "
        "of the prompt's length.",
    )
    request_rate: PositiveReal | None = Field(
        default=None,
        description='Requests that arrive per second; with the objective "goodput" only.',
    )
    task: str = Field(
        default="", description="Only prompts of this task are used; empty uses all of them."
    )
    prompts: Path | None = Field(
        default=None,
        description="JSON Lines file of prompts to measure acceptance on, one object per line "
        "with text and optionally id, task and split; relative to the problem file.",
    )

    @field_validator("top_k", "top_p")
    @classmethod
    def _off_when_greedy(cls, value: float, info: ValidationInfo) -> float:
        """Both off at temperature 0, so that greedy workloads are equal whatever they state."""
        off: float = cls.model_fields[str(info.field_name)].default
        return off if info.data.get("temperature") == 0.0 else value

    @property
    def greedy(self) -> bool:
        """Whether the most probable token is always taken."""
        return self.temperature == 0.0

    @property
    def lengths(self) -> tuple[int, ...]:
        """Lengths of prompts, in tokens; empty with a trace."""
        return self.prompt_lengths or ((self.prompt_tokens,) if self.prompt_tokens else ())


class Pool(Strict):
    """Devices that read prompts for the problem's device, which decodes."""

    device: Device = Field(
        description="One group of them, which shares every layer, as `device` names it: 2xh100-sxm."
    )
    replicas: Count = Field(
        default=1, description="Groups, each of which reads one prompt at a time."
    )
    bandwidth: PositiveReal | None = Field(
        default=None,
        description="Bytes per second over which the caches of a prompt leave a group; left out, "
        "50 GB/s for each of its devices (400 Gb/s).",
    )


class Serving(Strict):
    """How the server batches requests; what is left out is the backend's own way."""

    prefill: Literal["chunked", "first", "elsewhere"] | None = Field(
        default=None,
        description="Where prompts are read: chunked, in chunks along with steps (as engines do); "
        "first, whole, before the next step; elsewhere, by other devices.",
    )
    pool: Pool | None = Field(
        default=None,
        description="The devices that read prompts elsewhere; left out, one like the problem's, "
        "from which caches move in no time.",
    )
    running: Count | None = Field(
        default=None, description="Requests that are decoded together, at most."
    )
    step_tokens: Count | None = Field(
        default=None, description="Prompt tokens that one step or one prefill reads, at most."
    )
    burstiness: Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)] = Field(
        default=1.0,
        description="Squared coefficient of variation of the times between arrivals: 1 for random "
        "(Poisson) arrivals, 0 for arrivals at equal intervals.",
    )


class Problem(Strict):
    """A decoding problem: models, device, workload, objective and limits."""

    schema_version: Annotated[int, Field(strict=True)] = Field(
        description=f"Version of this format; {SCHEMA_VERSION} is the current one."
    )
    models: Models = Field(description="The target model and the draft models at hand.")
    sources: tuple[str, ...] = Field(
        default=("prompt_lookup",),
        description='What may draft beside models: "prompt_lookup", "mtp" (the target\'s own '
        'modules), "suffix" and "trie" (past outputs), "ngram" and "automaton" (the request\'s own '
        'text), "adjacency" (the target\'s own last choices), "datastore" (a corpus), "jacobi" and '
        '"lookahead" (the target\'s parallel guesses), "token_graph" (runs of a draft model\'s own '
        "hypotheses).",
    )
    datastore: Path | None = Field(
        default=None,
        description='Folder made by `specplan datastore build`, for the source "datastore"; '
        "relative to the problem file.",
    )
    gates: Path | None = Field(
        default=None,
        description="Which heads of the target look up distant text, as DuoAttention publishes it: "
        "a line per layer, in it a number from 0 to 1 per key/value head, tabs between; relative "
        "to the problem file. `specplan profile gates` measures one.",
    )
    token_exits: Path | None = Field(
        default=None,
        description="Which tokens leave the target after which layer, for exit_by_token: a line "
        "per token id, in it a layer or a share for each layer, tabs between; relative to the "
        "problem file. `specplan profile token-exits` measures one.",
    )
    exit_classifier: Path | None = Field(
        default=None,
        description="Folder with a classifier per exit layer of the target, for the exits of CALM; "
        "relative to the problem file. `specplan train --exits classifier` trains one.",
    )
    exit_policy: Path | None = Field(
        default=None,
        description="Folder with a policy that says where tokens leave the target, for "
        "policy_exit; relative to the problem file. `specplan train --exits policy` trains one.",
    )
    methods: tuple[str, ...] | None = Field(
        default=None,
        description="Methods to consider; left out, all of them. Autoregressive decoding is "
        "always a candidate.",
    )
    device: Device = Field(
        default="measured",
        description='"measured" (this machine, by `specplan profile device`), a name from '
        "`specplan devices`, or the path of a measured device file.",
    )
    backend: Backend = Field(
        default=INTERPRETER,
        description='What compiles and runs the plan; only plans that it runs are chosen. "none": '
        "the plan is not run here, and none is refused. The name of an engine, with or without "
        "@VERSION: the plan is served by it, and only plans that it can express are chosen.",
    )
    backends: tuple[Backend, ...] = Field(
        default=(),
        description="Several backends or engines to choose among, each as `backend` has it; "
        "instead of backend. A plan is searched for on each, and the best of all is taken; an "
        "earlier one where a later one is no gain.",
    )
    formats: tuple[Formats, ...] = Field(
        default=(),
        description="Several dtypes to choose among, each for the target and its draft models, or "
        "by model, as {target: Q8_0, draft: Q4_0}; instead of their own. With a format of caches "
        "too, {dtype: float32, kv_format: float16}. A plan is searched for in each, and the best "
        "of all is taken; an earlier one where a later one is no gain. "
        "limits.quality with held_out_loss bounds what the later ones may lose against the first.",
    )
    workload: Workload = Field(description="What is served: batch sizes, lengths, sampling.")
    acceptance: dict[str, Acceptance] = Field(default_factory=dict, description=FORMS_OF_ACCEPTANCE)
    objective: Literal["latency", "tpot", "throughput", "goodput"] = Field(
        default="latency",
        description="latency: least seconds per output token of a request, geometric mean over "
        "loads; throughput: most output tokens per second of the device, mean over loads; prefill "
        "included in both. tpot: least seconds per output token while decoding, geometric mean "
        "over loads, without prefill. "
        "goodput: most requests per second served within the limits at workload.request_rate, "
        "then least seconds of a request, modelled as continuous batching (see serving).",
    )
    serving: Serving = Field(
        default_factory=Serving,
        description='How requests are batched as they arrive; read with the objective "goodput".',
    )
    limits: Limits = Field(default_factory=Limits, description="What a plan must not exceed.")
    profiles: Path = Field(
        default=Path(".specplan"),
        description="Folder for measured tables, relative to the problem file.",
    )
    seed: NonNegative = Field(
        default=0, description="Seed of everything drawn at random while measuring."
    )

    @field_validator("acceptance", mode="before")
    @classmethod
    def _name_drafters(cls, value: Any, info: ValidationInfo) -> Any:
        """Drafters as they are printed; see `printed_drafter`."""
        if value == PRIOR:
            return dict.fromkeys(drafters_with_priors(info.data), PRIOR)
        if not isinstance(value, dict):
            return value
        return {printed_drafter(name): path for name, path in value.items()}

    @property
    def stated_acceptance(self) -> dict[Drafter, Acceptance]:
        """What the problem states of acceptance, by who drafts."""
        return {read_drafter(name): stated for name, stated in self.acceptance.items()}

    @property
    def all_backends(self) -> tuple[str, ...]:
        """What the plan may be for: `backends`, or `backend` alone."""
        return self.backends or (self.backend,)

    @property
    def label(self) -> str:
        """One backend and its formats, to tell them from others: `onnxruntime, Q8_0`."""
        return ", ".join([self.backend, *map(formats_words, self.formats)])


def problem_json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a problem file."""
    schema = Problem.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "specplan problem"
    return schema
