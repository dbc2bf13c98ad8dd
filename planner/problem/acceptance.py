"""What a problem may state of acceptance: a number, rates, a mean length, a prior or a file."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from specplan.cost_models.acceptance.drafter_texts import read_drafter
from specplan.cost_models.acceptance.old_profiles import drafter_of_old_name
from specplan.ir.errors import UsageError
from specplan.ir.text.yaml_text import read_yaml
from specplan.planner.problem.limits import QuantityError

Rate = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
PRIOR = "prior"
"""The word for what published figures say of a drafter's kind."""
Rates = Annotated[tuple[Rate, ...], Field(min_length=1)]


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ConditionalRates(_Form):
    """By position: how often a draft token is accepted, given that all before it were."""

    conditional: Rates = Field(
        description="P(draft token i is accepted | all before it were), i = 1, 2, ..."
    )


class MarginalRates(_Form):
    """By position: how often the first i draft tokens are all accepted, as vLLM's log has it."""

    marginal: Rates = Field(
        description="P(the first i draft tokens are all accepted), i = 1, 2, ...; the "
        '"Per-position acceptance rate" of vLLM.'
    )


class MeanLength(_Form):
    """Tokens per step in the mean, at a number of draft tokens."""

    length: float = Field(
        ge=1.0, allow_inf_nan=False, description="Mean tokens per step, the bonus token included."
    )
    at: int = Field(ge=1, description="Draft tokens per step at which it was reached (K).")


_FORMS = "must be a number from 0 to 1, or another form of acceptance"
_FORMS_REMEDY = (
    "Write 0.75, [0.8, 0.7], {marginal: [0.8, 0.6]}, {length: 2.9, at: 3}, prior, or the path of a "
    "profile or log."
)


def _of_known_form(value: Any) -> Any:
    """The value; one clear error instead of one for every form that it is not.

    Raises:
        QuantityError: it has none of the forms.
    """
    problem = _problem(value)
    if problem is not None:
        raise QuantityError(f"{problem}, got {reprlib.repr(value)}", _FORMS_REMEDY)
    return value


def _problem(value: Any) -> str | None:
    if isinstance(value, str | Path | _Form):
        return None
    if isinstance(value, list | tuple):
        return _problem_of_rates(value)
    if not isinstance(value, dict):
        return None if _is_rate(value) else _FORMS
    if set(value) == {"length", "at"}:
        length, at = value["length"], value["at"]
        numbers = _is_number(length) and type(at) is int and at >= 1
        if not numbers or not 1.0 <= length <= at + 1.0:
            return (
                "must have a length from 1 to at + 1 (it counts the bonus token) and a whole "
                "number of draft tokens as at"
            )
        return None
    if set(value) == {"conditional"}:
        return _problem_of_rates(value["conditional"])
    if set(value) == {"marginal"}:
        rates = value["marginal"]
        wrong = _problem_of_rates(rates)
        if wrong is None and any(b > a for a, b in pairwise(rates)):
            return "must not rise: marginal rates are P(the first i draft tokens are all accepted)"
        return wrong
    return _FORMS


def _problem_of_rates(value: Any) -> str | None:
    if isinstance(value, list | tuple) and value and all(map(_is_rate, value)):
        return None
    return _FORMS


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_rate(value: Any) -> bool:
    return _is_number(value) and 0.0 <= value <= 1.0


Acceptance: TypeAlias = Annotated[
    Rate | Rates | ConditionalRates | MarginalRates | MeanLength | Literal["prior"] | Path,
    Field(union_mode="left_to_right"),
    BeforeValidator(_of_known_form),
]
"""One drafter's acceptance as a problem states it; everything but a path is an assumption."""

FORMS_OF_ACCEPTANCE = (
    "Acceptance by drafter. The chance that a draft token is accepted given those "
    "before it, such as {draft: 0.75}; such chances by position, [0.8, 0.76, 0.7]; "
    '{marginal: [0.8, 0.6, 0.4]}, the "Per-position acceptance rate" of vLLM; '
    "{length: 2.9, at: 3}, mean tokens per step at 3 draft tokens, bonus included; prior, what "
    "published figures say of its kind and the task (acceptance: prior is that for all drafters); "
    "or the path of a profile or of a log that `specplan import acceptance` reads. What is no "
    'file is marked as assumed. Drafters: the name of a draft, "text" for '
    'prompt lookup, "mtp", another source by its own name, "first_layers(target, 4)", '
    '"skip_blocks(target, [attn.3, mlp.4])", "small_cache(target, 512)" or "small_cache(target,'
    ' 512, retrieved)", "beam(draft, 4)" for trees that grow by a beam of four, '
    '"drawn(head)" for a head whose tokens are drawn, "interleaved(draft, text)". Those of models '
    "and their beams, sources and parts of the target may be measured on workload.prompts instead."
)
"""The description of the key `acceptance`."""


def written_acceptance(text: str) -> Any:
    """What a word of the command line states, as YAML has it; a path stays the text.

    Raises:
        UsageError: it is no YAML, or begins like a number, is none, and there is no such file.
    """
    value, _ = read_yaml(text, "--acceptance")
    if not isinstance(value, str) or value == PRIOR:
        return value
    number = text[:1].isdecimal() or text[:1] in "+-" or text.strip(".").lower() in ("nan", "inf")
    if number and "/" not in text and not Path(text).exists():
        raise UsageError(
            f'"{text}" is neither a number from 0 to 1 nor a file',
            where="--acceptance",
            remedy="Write --acceptance eagle=0.75, once for each drafter.",
        )
    return text


def drafters_with_priors(fields: Mapping[str, Any]) -> Iterator[str]:
    """The drafters that `acceptance: prior` is about.

    Args:
        fields: of the problem, as far as they were read; broken ones are absent.
    """
    if "models" in fields:
        yield from (draft.name for draft in fields["models"].drafts)
    for source, drafter in (("mtp", "mtp"), ("prompt_lookup", "text")):
        if source in fields.get("sources", ()):
            yield drafter


def printed_drafter(name: Any) -> Any:
    """How a drafter is printed, also one in an old form; what names none stays as it is."""
    if not isinstance(name, str):
        return name
    try:
        old = drafter_of_old_name(name)
        return str(read_drafter(name) if old is None else old)
    except (ValueError, UsageError):
        return name
