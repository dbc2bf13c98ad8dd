"""A plan bound to its models: checkpoints and requests must fit it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from specplan.ir.blocks import Skips, read_heads
from specplan.ir.errors import MissingCapabilityError, UsageError
from specplan.ir.ops import Commit, Forward, Grow, Place, Relabel
from specplan.ir.plan import CacheState, Plan, ValueState, walk_plan
from specplan.ir.types.residency import stack_ends
from specplan.ir.values import State
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.heads.looking_ahead import looking_ahead
from specplan.runtime.models.modules import Module
from specplan.runtime.requests import Request
from specplan.runtime.sources.registry import shared_sources
from specplan.runtime.sources.source import Source


class BoundPlan:
    """A plan bound to its models, and to what its sources learned of requests of all batches.

    Attributes:
        plan: what runs.
        models: by the names the plan gives them, the target with slots where a drafter brings them.
        shared: sources that outlive a batch, by name; see `Executable`.

    Raises:
        UsageError: a model is missing, or has other layers or another vocabulary than the plan.
        MissingCapabilityError: heads of a model with sliding windows choose what a cache holds.
    """

    def __init__(self, plan: Plan, models: Mapping[str, Module]) -> None:
        check_models(plan, models)
        self.plan = plan
        self.models = looking_ahead(models, plan.models_run)
        self.shared: dict[str, Source] = {}
        self.forget()

    def forget(self) -> None:
        """See `Executable.forget`."""
        self.shared.update(shared_sources(self.plan, self.models["target"].vocab_size))


def check_roles(plan: Plan, given: Collection[str]) -> None:
    """Refuse a plan some of whose models are not given.

    Args:
        plan: a verified plan.
        given: names of the models that are there.

    Raises:
        UsageError: names the models that are missing.
    """
    missing = [name for name in plan.models_run if name not in given]
    if missing:
        raise UsageError(
            f"no model is given for {', '.join(missing)}",
            where=f"plan {plan.name}",
            remedy="Give one checkpoint for each model the plan runs.",
        )


def check_models(plan: Plan, models: Mapping[str, Module]) -> None:
    """Refuse checkpoints that are not those of the plan.

    Args:
        plan: a verified plan.
        models: by the names the plan gives them.

    Raises:
        UsageError: a model is missing, or has other layers or another vocabulary than the plan.
        MissingCapabilityError: a cache keeps chunks of a model with sliding windows, or does not
            say how recurrent layers go back.
    """
    check_roles(plan, models)
    sizes = {models[name].vocab_size for name in plan.models_run}
    if len(sizes) > 1:
        raise UsageError(
            f"the models' vocabularies differ in size ({sorted(sizes)})",
            where=f"plan {plan.name}",
            remedy="Draft with a model that shares the target's tokenizer.",
        )
    for what in _differences(plan, models):
        remedy = "Give the checkpoint that the plan was made for."
        raise UsageError(what, where=f"plan {plan.name}", remedy=remedy)
    _check_windows(plan, models)
    _check_recurrent(plan, models)


def check_requests(
    plan: Plan,
    models: Mapping[str, Module],
    requests: Sequence[Request],
    *,
    empty: bool = False,
    images: bool = False,
) -> None:
    """Refuse a batch that the plan or its models cannot run.

    Args:
        plan: what runs.
        models: by the names the plan gives them.
        requests: of the batch.
        empty: there may be none.
        images: prompts may hold images.

    Raises:
        UsageError: names the request and what is wrong with it.
        MissingCapabilityError: a request has an image, and `images` is not set.
    """
    if not images:
        refuse_images(requests)
    if not requests and not empty:
        raise UsageError("a batch needs at least one request")
    vocabulary = models["target"].vocab_size
    longest = min(models[name].max_positions for name in plan.models_run)
    for index, request in enumerate(requests):
        where, length = f"request {index}", len(request.prompt_tokens)
        if not all(0 <= token < vocabulary for token in request.prompt_tokens):
            raise UsageError(
                f"a prompt token lies outside the vocabulary of {vocabulary}", where=where
            )
        _check_images(request, models["target"], where)
        if length + request.max_new_tokens > longest:
            raise UsageError(
                f"{length} prompt tokens and {request.max_new_tokens} new ones exceed the "
                f"models' {longest} positions",
                where=where,
                remedy=f"Ask for at most {max(longest - length, 0)} new tokens.",
            )
        if request.grammar is not None and request.grammar.tokens.vocab_size > vocabulary:
            raise UsageError(
                f"the grammar is over {request.grammar.tokens.vocab_size} tokens, and the target "
                f"has {vocabulary}",
                where=where,
                remedy="Compile it with the target's tokenizer.",
            )
        if plan.greedy_only and request.temperature > 0:
            raise UsageError(
                f"the plan was made for temperature 0, and {request.temperature} is asked for",
                where=where,
                remedy="Optimise again with workload.temperature set.",
            )


def refuse_images(requests: Iterable[Request]) -> None:
    """Refuse requests with images where nothing reads them.

    Raises:
        MissingCapabilityError: says what does.
    """
    if any(request.images is not None for request in requests):
        raise MissingCapabilityError(
            "a request has an image, which is read only where a plan runs op by op, in a batch "
            "that begins together",
            where="request.images",
            remedy="Use the backend eager, without requests that join a running batch.",
        )


def _check_images(request: Request, target: Module, where: str) -> None:
    """Each embedding of an image has a place in the prompt, and the target sees it."""
    images = request.images
    if images is None:
        return
    if not isinstance(target, CausalModel) or not target.image_tokens:
        raise UsageError(
            "the prompt has an image, and the target reads text alone",
            where=where,
            remedy="Leave the image out, or give a target that sees images.",
        )
    places = images.count_in(request.prompt_tokens)
    wanted = len(images.pixels) * target.image_tokens
    if places != wanted:
        raise UsageError(
            f"the prompt has {places} image tokens, and its images take {wanted}",
            where=where,
            remedy=f"Write token {images.token} {target.image_tokens} times for each image.",
        )


def _differences(plan: Plan, models: Mapping[str, Module]) -> Iterator[str]:
    """Layers, tokens and numbers of children that a plan names and its checkpoints do not have."""
    vocabulary, most = models["target"].vocab_size, 0
    for item in plan.rounds:
        for name, end in stack_ends(plan, item).items():
            layers = models[name].num_layers
            if end not in (0, layers):
                what = f"the plan ends the stack of {name} at layer {end}"
                yield f"{what}, and it has {layers} layers"
    named = [
        state.kind.integer("init", -1)
        for state in plan.states
        if isinstance(state, ValueState) and state.kind.name == "tree"
    ]
    for op in walk_plan(plan):
        if isinstance(op, Forward) and op.policy is not None:
            heads = read_heads(op.policy.words("retrieval"))
            yield from _missing_heads(op.model, models[op.model], heads)
        match op:
            case Forward() if op.skip:
                height, layers = Skips.read(op.skip).height, models[op.model].num_layers
                if height > layers:
                    what = f"the plan leaves out a block of layer {height - 1} of {op.model}"
                    yield f"{what}, and it has {layers} layers"
            case Place(tokens=tokens):
                named += tokens
            case Relabel(token=int() as token):
                named.append(token)
            case Grow(how="best" | "shared" | "minhash", children=children):
                most = max((most, *(children if isinstance(children, tuple) else (children,))))
    if max(named, default=-1) >= vocabulary:
        yield f"the plan names token {max(named)}, and the vocabulary has {vocabulary}"
    if most > vocabulary:
        what = f"the plan grows {most} different children"
        yield f"{what}, and the vocabulary has {vocabulary} tokens"


def _missing_heads(role: str, model: Module, heads: Collection[tuple[int, int]]) -> Iterator[str]:
    """Heads that a plan names and a model does not have."""
    if not isinstance(model, CausalModel) or model.recurrent:
        yield f"the plan tells heads of {role} apart, and not all its layers have keys and values"
        return
    wide = max((head for _, head in heads), default=0)
    high = max((layer for layer, _ in heads), default=0)
    if high >= model.num_layers or wide >= model.family.kv_heads:
        has = f"{model.num_layers} layers of {model.family.kv_heads} heads"
        yield f"the plan names head {wide} or layer {high} of {role}, and it has {has}"


def _check_windows(plan: Plan, models: Mapping[str, Module]) -> None:
    """Windows go by the positions of slots, and heads that choose tokens share none.

    Raises:
        MissingCapabilityError: names the view and its model.
    """
    for state in plan.states:
        if not isinstance(state, CacheState) or not (state.retrieves or state.observes):
            continue
        model = models[state.model]
        windows = model.family.windows if isinstance(model, CausalModel) else ()
        if any(window is not None for window in windows):
            raise MissingCapabilityError(
                f"@{state.name} keeps other tokens in each head, and layers of {state.model} have "
                "sliding windows",
                where=f"plan {plan.name}",
                remedy="Keep the first and the latest tokens: policy=sink_recent.",
            )


def _lives_on(plan: Plan, cache: State) -> bool:
    """Whether drafted nodes stay in a cache after a round."""
    commits = (op for op in walk_plan(plan) if isinstance(op, Commit) and op.state == cache)
    return any(op.alive is not None for op in commits)


def _check_recurrent(plan: Plan, models: Mapping[str, Module]) -> None:
    """A cache of a model with recurrent layers says how they go back, and holds all of the text.

    Raises:
        MissingCapabilityError: names the cache and its model.
    """
    for state in plan.states:
        if not isinstance(state, CacheState):
            continue
        model, what = models[state.model], ""
        if not isinstance(model, CausalModel) or not model.recurrent:
            continue
        if state.rollback is None:
            what = "the plan does not say how they forget rejected tokens"
        elif state.view is not None or state.policy is not None:
            what = "it holds a part of the text, and their state is of all of it"
        elif state.rollback == "replay" and _lives_on(plan, state.name):
            what = "nodes live on (commit alive=) that rollback=replay never keeps"
        if what:
            raise MissingCapabilityError(
                f"@{state.name} is a cache of {state.model} with recurrent layers, and {what}",
                where=f"plan {plan.name}",
                remedy=f"Declare `state @{state.name} = cache {state.model} rollback=snapshot`.",
            )
