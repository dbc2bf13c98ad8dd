"""Tables of a target that problems name: gates of heads, and exits by token, measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from specplan.progress import Progress, silent

if TYPE_CHECKING:
    from specplan.problems import ProblemLike


def profile_gates(
    problem: ProblemLike, out: Path | str, *, budget: int = 256, progress: Progress = silent
) -> Path:
    """Measure which heads of the target attend to distant text, as `gates` of a problem names it.

    Args:
        problem: with `workload.prompts`.
        out: file to write, a line per layer, a number per key/value head.
        budget: tokens that a head would read instead of the whole text.
        progress: called after every prompt.

    Returns:
        The file.

    Raises:
        UsageError: the problem is broken, naming its key, or no text is longer than the budget.
        MissingCapabilityError: running models needs an extra.
    """
    from specplan.gathering import open_bench
    from specplan.problems import as_problem

    bench, _ = open_bench(as_problem(problem))
    from specplan.measure.gates import measure_gates
    from specplan.planner import write_gates

    write_gates(Path(out), measure_gates(bench, budget, progress=progress))
    return Path(out)


def profile_token_exits(
    problem: ProblemLike, out: Path | str, *, limit: int | None = None, progress: Progress = silent
) -> Path:
    """Measure after how many layers the next token is settled, as `token_exits` names it.

    Args:
        problem: with `workload.prompts`.
        out: file to write, a line per token id, a share for each layer.
        limit: use only so many prompts.
        progress: called after every prompt.

    Returns:
        The file.

    Raises:
        UsageError: the problem is broken, naming its key.
        MissingCapabilityError: running models needs an extra.
    """
    from specplan.gathering import open_bench
    from specplan.problems import as_problem

    bench, _ = open_bench(as_problem(problem))
    from specplan.measure.token_exits import measure_token_exits
    from specplan.planner import write_token_exits

    write_token_exits(Path(out), measure_token_exits(bench, limit=limit, progress=progress))
    return Path(out)
