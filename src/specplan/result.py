"""What `optimize` gives back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from specplan.backends.bundle import Bundle
    from specplan.cost_models.estimate import Estimate
    from specplan.cost_models.intervals import Interval
    from specplan.ir.plan import Plan
    from specplan.notebook.plots import Plot
    from specplan.planner.problem.schema import Problem
    from specplan.planner.search.candidates import Candidate
    from specplan.planner.search.search import SearchResult
    from specplan.planner.search.what_if import WhatIfRow
    from specplan.planner.serving.at_load import AtLoad


@dataclass(frozen=True, repr=False)
class Result:
    """The chosen plan, and everything that it was chosen from.

    Attributes:
        search: every candidate with its price or its refusal.
        bundle: what was written, or None when nothing was asked for.
    """

    search: SearchResult
    bundle: Bundle | None = None

    @property
    def problem(self) -> Problem:
        """The problem, every path absolute."""
        return self.search.facts.problem

    @property
    def plan(self) -> Plan:
        """The chosen plan."""
        assert self.search.chosen.plan is not None, "a chosen candidate has a plan"
        return self.search.chosen.plan

    @property
    def verdict(self) -> Literal["decided", "undecided"]:
        """`undecided` where no acceptance is known for any drafter that the problem lists.

        `plan` is no speculation then, and `what_if` says what drafting would gain.
        """
        return "undecided" if self.search.undecided else "decided"

    @property
    def what_if(self) -> tuple[WhatIfRow, ...]:
        """Per drafter, load and acceptance, what drafting would gain; empty where decided."""
        return self.search.what_if

    @property
    def estimates(self) -> tuple[Estimate, ...]:
        """Predictions for the chosen plan, one per batch size of the workload."""
        return self.search.chosen.estimates

    @property
    def speedup(self) -> Interval:
        """How many times as fast as autoregressive decoding the chosen plan is predicted to be."""
        return self.search.speedup

    @property
    def at_load(self) -> AtLoad | None:
        """What the chosen plan serves of the load, modelled; None but for the objective goodput."""
        return self.search.at_load

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Every candidate, chosen, beaten or refused."""
        return self.search.candidates

    @cached_property
    def answer(self) -> dict[str, Any]:
        """The part of `explanation` that says what was decided and among what."""
        from specplan.planner.explain.data import summarise

        return summarise(self.search)

    def explanation(self) -> dict[str, Any]:
        """Why this plan, as JSON data."""
        from specplan.planner.explain.data import explain

        return explain(self.search)

    def screen(self) -> dict[str, Any]:
        """The part of `explanation` that a screen shows; grids have no column for break-even."""
        grid = len(self.search.facts.contexts) > 1
        return self.answer if grid else self.explanation()

    def summary(self) -> str:
        """What was decided and among what, in words; `explain` says why as well."""
        from specplan.planner.explain.words import summary_words

        return "\n".join(summary_words(self.answer))

    def explain(self) -> str:
        """Why this plan, in words."""
        from specplan.planner.explain.words import explain_words

        return "\n".join(explain_words(self.explanation()))

    def table(self) -> Any:
        """One row per operating point, as a pandas DataFrame, or as a list without pandas.

        The columns, with their units, are those of `specplan.notebook.tables.point_rows`; an
        undecided result has the rows of `what_if`.
        """
        from specplan.notebook.tables import frame, result_rows

        return frame(result_rows(self))

    def plot(self) -> Plot:
        """Time per output token over the batch size, with and without speculation.

        Raises:
            UndecidedError: no acceptance is known, so that there is no plan to draw.
            ImportError: matplotlib is not installed (extra `report`).
        """
        from specplan.notebook.plots import TPOT_BY_BATCH, plot_lines
        from specplan.notebook.tables import result_rows

        check_decided(self.search.undecided, "a plot", "plot")
        series: dict[str, list[dict[str, Any]]] = {}
        for row in result_rows(self):
            series.setdefault(f"{row['prompt_tokens']:.0f} prompt tokens,", []).append(row)
        columns = [("tpot_ms_plain", "without"), ("tpot_ms", "with speculation")]
        return plot_lines(series.items(), columns, *TPOT_BY_BATCH)

    def __repr__(self) -> str:
        """The decision in a few lines."""
        from specplan.notebook.cards import text_card

        return text_card(self)

    def _repr_html_(self) -> str:
        from specplan.notebook.cards import html_card

        return html_card(self)

    def as_dict(self) -> dict[str, Any]:
        """The answer as JSON data: the verdict, the plan as text (None if undecided), and why."""
        from specplan.ir.text.printer import print_plan

        return {
            "verdict": self.verdict,
            "plan": None if self.search.undecided else print_plan(self.plan),
            "what_if": [row.as_dict() for row in self.what_if],
            "bundle": None if self.bundle is None else str(self.bundle.folder),
            "explanation": self.explanation(),
            **self._quality(),
        }

    def _quality(self) -> dict[str, Any]:
        """The chosen plan's loss, and speed against loss; empty without a quality limit."""
        data = self.answer.get("quality")
        if data is None:
            return {}
        shown = ("measure", "bound", "risk", "samples")
        return {"quality": {key: data[key] for key in shown}, "front": data["front"]}


def check_decided(undecided: Sequence[str], what: str, where: str) -> None:
    """Refuse to pass on an answer in which nothing could be compared.

    Args:
        undecided: drafters of unknown acceptance, from `SearchResult.undecided`.
        what: would be made of the decision, such as "a bundle".
        where: the command or key concerned.

    Raises:
        UndecidedError: there are such drafters.
    """
    if not undecided:
        return
    from specplan.ir.errors import UndecidedError

    raise UndecidedError(
        f"no acceptance is known for {', '.join(undecided)}, so there is no decision to make "
        f"{what} of",
        where=where,
        remedy="Measure it (`specplan import acceptance`), or assume it in the problem: "
        f"acceptance: {{{undecided[0]}: 0.75}}, or acceptance: prior for published figures of its "
        "kind. `specplan optimize` shows from which acceptance "
        "drafting pays. If you want no speculation in any case: methods: [autoregressive].",
    )
