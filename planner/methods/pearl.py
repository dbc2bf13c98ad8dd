"""A draft model goes on drafting while the target verifies what it drafted before.

PEARL (Liu et al. 2024, arXiv 2408.11850): draft and verification run side by side. Each round the
target judges what is left of the last drafts and the first token after it, while the draft model
writes as many tokens again at the end. As long as all is accepted, whole windows are judged (the
paper's post-verify); a rejection drops all that was drafted behind it, and of the next draft the
first token alone is judged while the rest is drafted (its pre-verify). Tokens are judged one by one
against the law that they were drawn from, which keeps the target's law at every temperature; the
end of a window without a rejection brings no token of the target's own.

A round takes as long as the slower of the two where the device has room for both, and otherwise
the sum (`lane_overlap` of the device). Left out is that windows grow and shrink with the two
models' speeds: the length is an option.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

from specplan.ir.plan import Plan
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Options
from specplan.planner.templates.plan_text import cache_of, single_round_plan
from specplan.planner.templates.profiled_by_running import ProfiledByRunning

LENGTHS = (2, 3, 4, 6, 8)


@dataclass(frozen=True)
class PearlOptions(Options):
    """Who drafts, and how much at a time.

    Attributes:
        draft: name of the draft model.
        length: tokens that it drafts while the target verifies.
    """

    draft: str
    length: int

    @property
    def nodes(self) -> int:
        """Drafted tokens that a round judges, at most."""
        return self.length

    @property
    def words(self) -> str:
        """`windows of 4 by draft`."""
        return f"windows of {self.length} by {self.draft}"


class Pearl(ProfiledByRunning[PearlOptions]):
    """Pays where draft model and target do not slow each other, and most drafts are accepted."""

    name: ClassVar[str] = "pearl"
    summary: ClassVar[str] = "a draft model goes on drafting while the target verifies"
    paper: ClassVar[str] = "Liu et al. 2024, arXiv 2408.11850"
    memory: ClassVar[str] = (
        "a window of drafts; at a temperature above 0 with their laws, 4 bytes per token, request "
        "and entry of the vocabulary"
    )
    needs_draft_model: ClassVar[bool] = True
    by_name: ClassVar[bool] = True
    family: ClassVar[str] = "windows"
    domains: ClassVar[Mapping[str, str]] = {
        "draft": "who drafts",
        "length": "tokens that are drafted while as many are verified",
    }

    def settings(self, models: Sequence[str]) -> Iterator[PearlOptions]:
        """A few lengths for every draft model."""
        return (PearlOptions(draft, length) for draft, length in product(models, LENGTHS))

    def plan(self, facts: ProblemFacts, options: PearlOptions) -> Plan:
        """Verify the window and draft on from its end; judge both, keep what is left."""
        draft, kept = options.draft, options.length - 1
        cache, greedy = cache_of(draft), facts.greedy
        how, law = ("", "") if greedy else (" how=draw by=%", ", how=draw")
        first, later = ("", "") if greedy else (f"{how}u0", f"{how}u")
        body = f"""%w = load @window
%l = segment lane=verify {{
  %o = forward target %w cache=@kv pending=1
  yield %o
}}
%c = segment lane=draft {{
  %q0 = forward {draft} %w cache={cache} pending=1
  %tip = pick %w of=leaves{"" if greedy else _uniform("u0", 0)}
  %t0 = grow %w at=%tip logits=%q0{first}
  %d = repeat {kept} (%t = %t0) {{
    %f = pick %t of=newest
    %q = forward {draft} %f cache={cache}{"" if greedy else _uniform("u", 1)}
    %n = grow %t at=%f logits=%q{later}
    yield %n
  }}
  yield %d
}}
{_judged(options, greedy)}
%e = emit %a
%r = reroot %c %e nodes={kept}
commit @kv %e
commit {cache} %e
store @window %r"""
        window = f"@window = value tree(nodes={kept}, depth={kept}{law})"
        return single_round_plan(facts, self.name, (draft,), body, states=[window])


def _uniform(name: str, offset: int) -> str:
    return f"\n%{name} = uniform 1 stream=draft" + (f" offset={offset}" if offset else "")


def _judged(options: PearlOptions, greedy: bool) -> str:
    if greedy:
        return "%a = accept %c target=%l"
    numbers = f"%v = uniform {2 * options.length} stream=accept"  # drafted tokens, and a bonus
    return f"{numbers}\n%a = accept %c target=%l rule=token by=%v"


METHOD = Pearl()
