"""What a sweep or a comparison gives back: rows that print, become a table, and are drawn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specplan.notebook.plots import TPOT_BY_BATCH, Plot, plot_lines
from specplan.notebook.tables import (
    Row,
    frame,
    html_table,
    point_rows,
    result_rows,
    text_table,
)

if TYPE_CHECKING:
    from specplan.backends.bundle import Bundle
    from specplan.result import Result


@dataclass(frozen=True, repr=False)
class Sweep:
    """What drafting would gain, by the values that were swept.

    Attributes:
        rows: by drafter, batch and acceptance; `gain` is the speed of a request over no
            speculation, `draft_tokens` the best K, `pays_from` the least acceptance that pays.
        keys: names of the swept values besides acceptance and batch; columns of the rows too.
    """

    rows: tuple[Row, ...]
    keys: tuple[str, ...] = ()

    def table(self) -> Any:
        """The rows as a pandas DataFrame; as a list where pandas is not installed."""
        return frame(self.rows)

    def plot(self) -> Plot:
        """The gain over acceptance, one line per batch and swept values (extra `report`)."""
        from specplan.sweeping import figure_of

        return Plot(figure_of(self.rows, self.keys))

    def save(self, path: Path | str) -> None:
        """Write the rows as CSV."""
        from specplan.ir.files import write_atomic
        from specplan.sweeping import as_csv

        write_atomic(path, as_csv(self.rows, self.keys))

    def _lines(self) -> Iterator[str]:
        from specplan.planner.explain.what_if_words import table_lines

        yield "Speed of a request over no speculation, and K, by assumed acceptance"
        yield from table_lines(self.rows, self.keys)

    def __repr__(self) -> str:
        return "\n".join(self._lines())

    def _repr_html_(self) -> str:
        columns = [*self.keys, "drafter", "batch", "acceptance", "draft_tokens", "gain"]
        return html_table(self.rows, [*columns, "pays_from"])


_COMPARED = (
    "batch", "prompt_tokens", "tpot_ms_a", "tpot_ms_b", "decode_gain_b_over_a", "plan_a", "plan_b",
)  # fmt: skip


@dataclass(frozen=True, repr=False)
class Comparison:
    """Two decisions side by side, at the operating points that both have.

    Attributes:
        rows: `tpot_ms_a`, `tpot_ms_b` (time per output token), `decode_gain_b_over_a` (how many
            times as fast as `a` the plan `b` decodes), `ttft_ms_a`, `ttft_ms_b`,
            `decode_tokens_per_s_a` and `decode_tokens_per_s_b` (of the batch while decoding),
            `plan_a` and `plan_b`, by batch and prompt length.
    """

    rows: tuple[Row, ...]

    def table(self) -> Any:
        """The rows as a pandas DataFrame; as a list where pandas is not installed."""
        return frame(self.rows)

    def plot(self) -> Plot:
        """Times per output token of both over the batch size (extra `report`)."""
        return plot_lines(
            [("", self.rows)], [("tpot_ms_a", "a"), ("tpot_ms_b", "b")], *TPOT_BY_BATCH
        )

    def __repr__(self) -> str:
        return "\n".join(text_table(self.rows, _COMPARED))

    def _repr_html_(self) -> str:
        return html_table(self.rows, _COMPARED)


def compare(a: Result | Bundle | Path | str, b: Result | Bundle | Path | str) -> Comparison:
    """Two decisions side by side.

    Args:
        a: a result, a bundle, or the folder of a bundle.
        b: another one.

    Raises:
        UsageError: a folder is no bundle.
        UndecidedError: a result is undecided, so that there is no plan to compare.
        NothingToCompareError: they have no operating point in common.
    """
    from specplan.ir.errors import NothingToCompareError

    other = {(row["batch"], row["prompt_tokens"]): row for row in _rows(b)}
    rows = []
    for row in _rows(a):
        twin = other.get((row["batch"], row["prompt_tokens"]))
        if twin is not None:
            rows.append(
                {
                    "batch": row["batch"],
                    "prompt_tokens": row["prompt_tokens"],
                    "tpot_ms_a": row["tpot_ms"],
                    "tpot_ms_b": twin["tpot_ms"],
                    "decode_gain_b_over_a": row["tpot_ms"] / twin["tpot_ms"],
                    "ttft_ms_a": row["ttft_ms"],
                    "ttft_ms_b": twin["ttft_ms"],
                    "decode_tokens_per_s_a": row["decode_tokens_per_s_total"],
                    "decode_tokens_per_s_b": twin["decode_tokens_per_s_total"],
                    "plan_a": row["plan"],
                    "plan_b": twin["plan"],
                }
            )
    if not rows:
        raise NothingToCompareError(
            "the two have no batch size with the same prompt length",
            where="compare",
            remedy="Optimize both for the same batch, prompt and output.",
        )
    return Comparison(tuple(rows))


def _bundle_rows(bundle: Bundle) -> list[Row]:
    """The rows of a bundle's plan, from its report.

    Raises:
        UsageError: the report is not what was written.
    """
    from specplan.bundles.report import reading_report

    with reading_report(bundle):
        return point_rows(bundle.report["explanation"])


def _rows(decision: Result | Bundle | Path | str) -> list[Row]:
    from specplan.result import Result, check_decided

    if isinstance(decision, Result):
        check_decided(decision.search.undecided, "a comparison", "compare")
        return result_rows(decision)
    from specplan.backends.bundle import Bundle, load_bundle

    return _bundle_rows(decision if isinstance(decision, Bundle) else load_bundle(decision))
