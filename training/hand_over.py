"""A trained drafter as it is published: files that engines load, a profile, a model card, a check.

The check: the weights as they are published, loaded by the runtime, accept on every prompt, round
by round, as many draft tokens as the passes of training say of them.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from specplan.cost_models.acceptance.drafters import Drafter as Drafts
from specplan.cost_models.acceptance.drafters import Model
from specplan.cost_models.acceptance.hazards import posterior
from specplan.cost_models.acceptance.profile import AcceptanceProfile
from specplan.cost_models.devices.device import load_device
from specplan.cost_models.models.heads.look_ahead import MODEL_TYPE
from specplan.ir.errors import SpecplanError, UsageError
from specplan.ir.files import read_json, staged, write_json_atomic
from specplan.measure.acceptance.profile import measure_acceptance
from specplan.measure.acceptance.teacher import TracedText
from specplan.measure.progress import Progress
from specplan.measure.workbench import Workbench
from specplan.planner import Problem, gather_facts
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import own_rounds
from specplan.planner.methods.draft_model import METHOD as DRAFT_MODEL
from specplan.planner.methods.draft_model import (
    PARALLEL_LENGTHS,
    DraftModelOptions,
    ParallelChainOptions,
)
from specplan.planner.search.settings import settings_by
from specplan.planner.training.curves import Evaluation
from specplan.planner.trees import chain
from specplan.runtime.generate import generate
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.models.heads.drafter import Drafter
from specplan.training.checkpoints import OPPONENT, OPTIMIZER, STATE
from specplan.training.evaluating import (
    RANKS,
    evaluation,
    first_place,
    most_ahead,
    ranks_along,
    unseen_texts,
    with_drafter,
)

PUBLISHED, PROFILE_FILE, CARD = "published", "acceptance.json", "README.md"
OF_TRAINING = (STATE, OPTIMIZER, OPPONENT, "model.safetensors")
"""Files of a training that are not published as they are."""
CHECKED_PROMPTS = 200
CHECKED_DEPTH = 3


@dataclass(frozen=True)
class HandedOver:
    """A drafter that is ready to be served.

    Attributes:
        folder: with config.json, model.safetensors, acceptance.json and README.md.
        prompts: on which training and serving were compared.
        rounds: rounds in which they accepted the same number of draft tokens: all there were.
        profile: its acceptance.
        evaluation: by position, on the same texts.
    """

    folder: Path
    prompts: int
    rounds: int
    profile: AcceptanceProfile
    evaluation: Evaluation


def hand_over(
    problem: Problem, family: str, folder: Path, number_type: str, progress: Progress
) -> HandedOver:
    """Publish a trained drafter, after a check that it is served as it was trained.

    Args:
        problem: that it was trained for.
        family: a name of `FAMILIES`, or of a draft model.
        folder: of its training.
        number_type: of the published weights, "bfloat16" or "float32".
        progress: called during everything that takes long.

    Raises:
        UsageError: the folder holds no training.
        SpecplanError: training and serving disagree; names the first prompt.
    """
    if not (folder / STATE).is_file():
        raise UsageError(
            "the folder holds no training", where=str(folder), remedy="Train with --stage train."
        )
    state = read_json(folder / STATE, "state of a training")
    published = folder / PUBLISHED
    _write_weights(folder, published, getattr(torch, number_type))
    served = with_drafter(problem, family, published)
    greedy = {"temperature": 0.0, "top_k": 0, "top_p": 1.0}
    workload = served.workload.model_copy(update=greedy)
    certain = Workbench(served.model_copy(update={"workload": workload}))
    checked = unseen_texts(certain, progress, CHECKED_PROMPTS)
    facts = gather_facts(certain.problem, device=load_device("cpu-generic"))
    rounds = _checked(certain, facts, family, checked, progress)
    bench = Workbench(served)
    texts = unseen_texts(bench, progress, CHECKED_PROMPTS)
    counted = evaluation(bench.models[family], texts, int(state["step"]))
    ahead = state["recipe"].get("parallel", 1) > 1
    named = served.model_copy(update={"methods": (DRAFT_MODEL.name,)}) if ahead else served
    facts = gather_facts(named, device=load_device("cpu-generic"))
    drafter: Drafts = Model(family)
    if ahead:
        lengths = (one for one in PARALLEL_LENGTHS if one <= state["recipe"]["parallel"])
        options = ParallelChainOptions.of(family, chain(max(lengths, default=PARALLEL_LENGTHS[0])))
        drafter = own_rounds(facts, DRAFT_MODEL, options)
    profile = measure_acceptance(bench, facts, wanted=[drafter], progress=progress)[drafter]
    profile.save(published / PROFILE_FILE)
    done = HandedOver(published, len(checked), rounds, profile, counted)
    (published / CARD).write_text(card(done, state, family, problem, number_type))
    return done


def _write_weights(folder: Path, published: Path, number_type: torch.dtype) -> None:
    """The public checkpoint, without what only training needs."""
    stored = load_file(folder / "model.safetensors")
    tensors = {
        name: value.to(number_type) if value.is_floating_point() else value
        for name, value in stored.items()
    }
    with staged(published) as place:
        for path in folder.iterdir():
            if path.is_file() and path.name not in OF_TRAINING:
                shutil.copy(path, place / path.name)
        config = read_json(folder / "config.json")
        name = str(number_type).removeprefix("torch.")
        keys = {"torch_dtype", *({"dtype"} & config.keys())}  # the latter as of transformers 5
        write_json_atomic(place / "config.json", {**config, **dict.fromkeys(sorted(keys), name)})
        save_file(tensors, place / "model.safetensors", metadata={"format": "pt"})


def _checked(
    bench: Workbench, facts: ProblemFacts, family: str, texts: Sequence[TracedText],
    progress: Progress,
) -> int:  # fmt: skip
    """Rounds that were compared.

    Raises:
        SpecplanError: a round accepts another number of draft tokens than training says.
    """
    drafter: Drafter | CausalModel = bench.models[family]
    depth = min(CHECKED_DEPTH, most_ahead(drafter))
    if isinstance(drafter, CausalModel):
        form = DraftModelOptions if drafter.mask_token is None else ParallelChainOptions
        plan = DRAFT_MODEL.plan(facts, form.of(family, chain(depth)))
    else:
        plan = _chain(facts, family, depth)
    executable, rounds = bench.compile(plan), 0
    for number, text in enumerate(texts):
        progress("training against serving", number, len(texts))
        lengths: list[int] = []

        def count(_: int, new: tuple[int, ...], __: object, into: list[int] = lengths) -> None:
            into.append(len(new))

        made = generate(executable, [text.request], on_tokens=count).completions[0]
        if made.tokens != text.output:
            raise _differs(text, f"it emits {made.tokens}, and the target writes {text.output}")
        ranks = ranks_along(drafter, text, depth, RANKS)
        wanted = rounds_of(ranks, depth, first_place(drafter))
        counts = [one for one in lengths if one]
        if counts != wanted:
            raise _differs(text, f"rounds emit {counts} tokens, and {wanted} by training")
        rounds += len(wanted)
    return rounds


def rounds_of(ranks: Sequence[Sequence[int]], depth: int, first: int = 1) -> list[int]:
    """Tokens that rounds of a chain emit along a text, by the ranks of training.

    Args:
        ranks: of every token, by how far it was drafted ahead.
        depth: of the chain.
        first: the first token that is drafted; of heads the second one, as the first round of a
            text drafts nothing.
    """
    lengths, place = [1] * first, first
    while place < len(ranks):
        ahead = 0
        while ahead < depth and place + ahead < len(ranks) and ranks[place + ahead][ahead] == 0:
            ahead += 1
        lengths.append(min(ahead + 1, len(ranks) - place))
        place += ahead + 1
    return lengths


def _differs(text: TracedText, what: str) -> SpecplanError:
    return SpecplanError(
        f"the drafter is not served as it was trained: after prompt {text.name}, {what}",
        remedy="Where two tokens are equally likely, another number type decides differently: try "
        "float32 or float64. Else this is a bug of the head's format or of the runtime.",
    )


def _chain(facts: ProblemFacts, family: str, depth: int) -> Any:
    """The plan of a chain of so many draft tokens."""
    exits = family in facts.drafters and facts.drafters[family].kind == "exit"
    for setting in settings_by(facts, Model(family)):
        options: Any = setting.options
        tree = getattr(options, "tree", None)
        chained = tree.is_chain and tree.depth == depth if tree is not None else False
        if chained or (exits and getattr(options, "length", 0) == depth):
            return setting.method.plan(facts, setting.options)
    raise UsageError(f"no method drafts a chain of {depth} with {family}")


def card(
    done: HandedOver, state: dict[str, Any], family: str, problem: Problem, number_type: str
) -> str:
    """README.md of a published drafter."""
    counted, recipe = done.evaluation, state["recipe"]
    rows = [
        f"| {place + 1} | {reached} | {posterior(accepted[0], reached).words('.3f')} |"
        for place, (reached, accepted) in enumerate(
            zip(counted.reached, counted.accepted, strict=True)
        )
        if reached
    ]
    workload = problem.workload
    form = read_json(done.folder / "config.json").get("model_type", "")
    return "\n".join(
        [
            f"# {family} for {problem.models.target.path.name}",
            "",
            f"{_kind(state, family, form)}, trained by `specplan train`. It changes no output: the "
            "target judges every draft token.",
            "",
            f"- target: `{problem.models.target.path.name}`, digest `{state['target'][:16]}`",
            f"- training: {state['step']} steps of {recipe['rows']} rows of up to "
            f"{recipe['row_tokens']} tokens, loss {recipe['loss']}, seed {recipe['seed']}",
            f"- texts: {state['answers']} {_texts(recipe)}",
            f"- weights: {number_type}, in "
            + ("a form of specplan's own" if form == MODEL_TYPE else "the form that engines load"),
            f"- check: on {done.prompts} held-out prompts, {done.rounds} rounds accepted as many "
            "draft tokens served as in training",
            "",
            f"Measured on prompts of the task `{workload.task or 'any'}`, of at most "
            f"{workload.lengths and max(workload.lengths)} tokens, at temperature "
            f"{workload.temperature:g}; rounds draft the likeliest tokens:",
            "",
            "| position | rounds | accepted, given those before (90 % interval) |",
            "|---:|---:|---|",
            *rows,
            "",
            "It accepts less on other kinds of text, at other temperatures, and with another chat "
            "template than it was trained on.",
            "",
        ]
    )


def _texts(recipe: dict[str, Any]) -> str:
    """What was learned."""
    at = f"at temperature {recipe['temperature']:g}"
    if recipe["answers"]:
        return f"answers of the target {at}"
    return f"texts as they stand, of each token what the target would write {at}"


def _kind(state: dict[str, Any], family: str, form: str) -> str:
    if "draft" in state:
        share, ahead = (state["recipe"][name] for name in ("on_policy", "parallel"))
        if ahead > 1:
            return f"A draft model that drafts {ahead} tokens in one pass (PARD)"
        return f"A draft model, distilled from its target ({share:.0%} of the steps on policy)"
    if form == MODEL_TYPE:
        return f"What its target reads ahead of its text ({family})"
    return f"A drafter ({family}) that reads the hidden states of its target"
