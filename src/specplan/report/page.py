"""The report as text: templates filled with the sections of `content`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specplan.ir.errors import UsageError
from specplan.ir.files import write_atomic
from specplan.ir.plan import Plan
from specplan.report.content import content

FORMS = {".html": "report.html.j2", ".md": "report.md.j2"}
"""Templates by the ending of the file that is asked for."""


def write_report(
    path: Path,
    plan: Plan,
    report: Mapping[str, Any],
    *,
    source: str,
    steps: Sequence[str] = (),
    bench: Mapping[str, Any] | None = None,
) -> None:
    """Write a report; see `render`.

    Raises:
        UsageError: the file ends neither in .html nor in .md.
    """
    write_atomic(path, render(path.suffix, plan, report, source=source, steps=steps, bench=bench))


def render(
    form: str,
    plan: Plan,
    report: Mapping[str, Any],
    *,
    source: str,
    steps: Sequence[str] = (),
    bench: Mapping[str, Any] | None = None,
) -> str:
    """The report of a decision.

    Args:
        form: `.html` for a page that needs no network, `.md` for Markdown.
        plan: the chosen plan.
        report: as a bundle holds it, `explanation` included.
        source: the bundle or problem, as commands name it.
        steps: commands to go on with; an undecided answer has its own.
        bench: what `specplan bench --json` measured of it.

    Raises:
        UsageError: another form.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    if form not in FORMS:
        raise UsageError(
            f"a report cannot be written as '{form}'",
            where="--out",
            remedy="Name a file that ends in .html or .md.",
        )
    environment = Environment(
        loader=PackageLoader("specplan.report"),
        autoescape=form == ".html",
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    sections = content(plan, report, source, steps, bench, charts=form == ".html")
    return environment.get_template(FORMS[form]).render(sections)
