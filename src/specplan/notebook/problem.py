"""Problems by keywords: `Problem(target=..., device="8xh200", batch=[1, 16])`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from specplan.ir.errors import UsageError
from specplan.notebook.sweeps import Sweep
from specplan.planner.problem import schema
from specplan.planner.problem.loading import load_problem as load_checked
from specplan.planner.problem.loading import problem_from_dict
from specplan.planner.problem.short_form import KEY_OF, merged
from specplan.progress import Progress, silent

if TYPE_CHECKING:
    from specplan.result import Result


class Problem(schema.Problem):
    """What is to be decoded, on what, and what counts as better; checked when it is made.

    By keywords: `target` is a folder or the id of a cached model, `drafts` maps names to folders,
    `batch`, `prompt` and `backend` are one value or several, `tpot` and `ttft` are limits such as
    "20ms", `memory` one such as "80GB". By the keys of a problem file: `models`, `workload` and so
    on. Relative paths start at the current folder. A problem is frozen; `replace` makes another.

    Raises:
        UsageError: names every key that is wrong.
        InfeasibleError: a limit cannot be met by any plan.
    """

    def __init__(
        self,
        target: Path | str | None = None,
        *,
        drafts: Mapping[str, Path | str] | None = None,
        device: str | None = None,
        backend: str | Sequence[str] | None = None,
        batch: int | Iterable[int] | None = None,
        prompt: int | Iterable[int] | None = None,
        output: int | None = None,
        cached_prefix: int | None = None,
        acceptance: Mapping[str, Any] | None = None,
        tpot: float | str | None = None,
        ttft: float | str | None = None,
        memory: float | str | None = None,
        temperature: float | None = None,
        request_rate: float | None = None,
        **keys: Any,
    ) -> None:
        short = {
            "target": target,
            "drafts": drafts,
            "device": device,
            "backend": backend,
            "batch": batch,
            "prompt": prompt,
            "output": output,
            "cached_prefix": cached_prefix,
            "acceptance": acceptance,
            "tpot": tpot,
            "ttft": ttft,
            "memory": memory,
            "temperature": temperature,
            "request_rate": request_rate,
        }
        further = {word: value for word, value in keys.items() if word in KEY_OF}
        document = {"schema_version": schema.SCHEMA_VERSION} | {
            key: value for key, value in keys.items() if key not in KEY_OF
        }
        checked = problem_from_dict(merged(document, _plain(short | further)))
        super().__init__(**{name: getattr(checked, name) for name in schema.Problem.model_fields})

    @classmethod
    def of(cls, checked: schema.Problem) -> Self:
        """A checked problem with the methods of this class."""
        return cls.model_construct(
            **{name: getattr(checked, name) for name in schema.Problem.model_fields}
        )

    def replace(self, **changes: Any) -> Self:
        """The same problem with other values, by the words that make one: `replace(batch=8)`."""
        document = self.model_dump(mode="json")
        return self.of(problem_from_dict(merged(document, _plain(changes))))

    def assume(self, rates: Mapping[str, Any] | None = None, /, **by_name: Any) -> Self:
        """The same problem with assumed acceptance: `assume(eagle=0.8)`, `assume(eagle=[.8, .7])`.

        Args:
            rates: by drafter, for names that are no keywords: `{"beam(draft, 4)": 0.6}`.
            by_name: by drafter: P(a draft token is accepted | those before it were), such
                probabilities by position, `{"length": 2.9, "at": 3}`, or "prior".
        """
        own = self.model_dump(mode="json")["acceptance"]
        return self.replace(acceptance={**own, **(rates or {}), **by_name})

    def optimize(self, *, out: Path | str | None = None, progress: Progress = silent) -> Result:
        """The fastest plan, as `specplan.optimize` finds it; `out` is a folder for a bundle."""
        from specplan.api import optimize

        return optimize(self, out=out, progress=progress)

    def sweep(
        self,
        acceptance: float | Iterable[float] | Mapping[str, float | Iterable[float]] | None = None,
        progress: Progress = silent,
        **values: Any,
    ) -> Sweep:
        """What drafting would gain over values of acceptance and of other words.

        Args:
            acceptance: P(a draft token is accepted | those before it were), for all drafters or by
                drafter; left out, the problem's own, and 0.5 ... 0.9 where it has none.
            progress: called for every problem.
            values: one or several values of a word, such as `device=["8xh200", "8xb200"]`; each is
                a problem of its own. `batch` and `prompt` are the operating points of all.

        Raises:
            UsageError: a value is wrong, or nothing in the problem drafts.
        """
        from specplan.sweeping import sweep

        points = {word: values.pop(word) for word in ("batch", "prompt") if word in values}
        base = self.replace(**points) if points else self
        swept = {word: _several(word, given) for word, given in values.items()}
        variants = [dict(zip(swept, chosen, strict=True)) for chosen in product(*swept.values())]
        problems = [(chosen, base.replace(**chosen) if chosen else base) for chosen in variants]
        if not isinstance(acceptance, Mapping):
            rates = None if acceptance is None else _rates(acceptance)
            return Sweep(tuple(sweep(problems, rates, progress)), tuple(swept))
        rows = [
            row
            for drafter, rates in acceptance.items()
            for row in sweep(problems, _rates(rates), progress)
            if row["drafter"] == drafter
        ]
        return Sweep(tuple(rows), tuple(swept))

    def __repr__(self) -> str:
        work = self.workload
        words = {
            "target": self.models.target.path.name,
            "drafts": [draft.name for draft in self.models.drafts],
            "device": self.device,
            "backend": self.backends or self.backend,
            "batch": list(work.batch_sizes),
            "prompt": list(work.lengths) if len(work.lengths) > 1 else work.prompt_tokens,
            "output": work.output_tokens,
            "cached_prefix": work.cached_prefix,
            "acceptance": sorted(self.acceptance),
            "objective": self.objective,
        }
        keywords = ", ".join(f"{name}={value!r}" for name, value in words.items() if value)
        return f"Problem({keywords})"

    __str__ = __repr__

    def __dir__(self) -> list[str]:
        """What a problem has; pydantic's own names are left out."""
        return [*schema.Problem.model_fields, "assume", "of", "optimize", "replace", "sweep"]


def load_problem(path: Path | str) -> Problem:
    """Read and check a problem file; paths inside it are relative to its folder.

    Raises:
        UsageError: names everything in the file that is wrong.
        InfeasibleError: a limit cannot be met by any plan.
    """
    return Problem.of(load_checked(path))


def _several(word: str, given: Any) -> list[Any]:
    """The values of a swept word; a text or a mapping is one of them."""
    plain = _plain(given)
    values = plain if isinstance(plain, list) else [plain]
    if not values:
        raise UsageError("there is no value to sweep", where=word, remedy="Give one or several.")
    return values


def _rates(given: Any) -> list[float]:
    """Swept acceptance as probabilities."""
    rates = _several("acceptance", given)
    wrong = [one for one in rates if not isinstance(one, int | float) or not 0.0 <= one <= 1.0]
    if wrong:
        raise UsageError(
            f"must be probabilities from 0 to 1, got {wrong[0]!r}",
            where="acceptance",
            remedy="Write acceptance=0.7 or acceptance=[0.5, 0.7, 0.9].",
        )
    return rates


def _plain(value: Any) -> Any:
    """A value with numpy's arrays and numbers, and paths, as Python's own numbers and texts."""
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_plain(one) for one in value]
    if isinstance(value, Path):
        return str(value)
    return value.item() if hasattr(value, "item") else value
