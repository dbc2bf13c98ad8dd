"""Reasoning is written several tokens at once, and the answer is asked for before it is complete.

FastCoT (Zhang et al. 2023, arXiv 2311.08263): a window of guesses stands behind the reasoning, and
every pass of the target verifies the first of them and corrects the others, as in Jacobi decoding
(`jacobi`). After a number of passes the reasoning ends as it is: what the window holds is
approximate, never verified, and nevertheless part of the text. Behind it stands what asks for the
answer (`workload.answer_trigger`, such as the tokens of " Therefore, the answer is"), and the
target writes the answer after both. Lossy: approximate reasoning stays in the text.

The window slides: tokens that are verified leave it, and new guesses join it at its end, except
before the last pass, so that every token which stays was corrected once. The pass that ends the
reasoning also computes the keys and values of the approximate tokens and of the trigger, and the
first token of the answer. Passes are counted for each request, so that its output does not depend
on others in its batch. A text that a stop token ends sooner is not asked for an answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Annotated

from specplan.ir.plan import Plan
from specplan.ir.values import print_atom
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Option, Options
from specplan.planner.methods.jacobi import FIRST_GUESS
from specplan.planner.reasons import Cause, Reason
from specplan.planner.templates.plan_text import single_round_plan, uniforms
from specplan.planner.templates.profiled_by_running import ProfiledByRunning

WINDOWS = (4, 8, 16)
PARTS = (1 / 4, 1 / 2, 3 / 4)
"""Passes that reason, as parts of the output's tokens; each pass settles one token at least."""
EVERYTHING = "rollback(threshold=1e6)"
"""Accepts a node whose -ln p is at most 1e6 nats, and so every one."""


@dataclass(frozen=True)
class FastCoTOptions(Options):
    """How much is guessed at once, and when the answer is asked for."""

    reads = "windows of {window}, the answer after {passes} passes"

    window: Annotated[int, Option("tokens that are guessed behind the reasoning")]
    passes: Annotated[int, Option("passes of the target that correct them before the last one")]


class FastCoT(ProfiledByRunning[FastCoTOptions]):
    """Pays where an answer needs the gist of the reasoning and not its wording."""

    summary = "reasoning ends after some passes with guesses as they are, then comes the answer"
    paper = "Zhang et al. 2023, arXiv 2311.08263"
    differs = (
        "The answer is decoded by the same window of guesses, where the paper writes it token by "
        "token, and reasoning that a stop token ends sooner gets no answer."
    )
    law = "free"
    memory = "the guesses, 17 bytes per token of the window and request"
    sources = ("jacobi",)
    family = "windows of reasoning"

    def unavailable(self, facts: ProblemFacts) -> str | None:
        """Something must ask for the answer, in tokens of the target."""
        trigger = facts.problem.workload.answer_trigger
        if not trigger:
            return Reason(
                "nothing asks for the answer: give the tokens that do as workload.answer_trigger",
                Cause.OPT_IN,
            )
        if max(trigger) >= facts.target.vocab_size:
            return f"workload.answer_trigger: the target has no token {max(trigger)}"
        return None

    def run_settings(self, facts: ProblemFacts) -> Iterator[FastCoTOptions]:
        """Every window with every number of passes that leaves room for an answer."""
        if self.unavailable(facts) is None:
            outputs = facts.requests[0].output_tokens
            passes = dict.fromkeys(max(1, int(part * outputs)) for part in PARTS)
            yield from (FastCoTOptions(*one) for one in product(WINDOWS, passes))

    def plan(self, facts: ProblemFacts, options: FastCoTOptions) -> Plan:
        """Verify and correct the window; once, take it whole, with what asks for the answer."""
        trigger, window = facts.problem.workload.answer_trigger, options.window
        nodes, last = window + len(trigger), options.passes
        draw, how = uniforms(facts, nodes + 1, stream="accept", use="rule=deterministic")
        body = f"""
%g = load @guess
%n = load @passes
%l = forward target %g cache=@kv pending=1
{draw}
%a = accept %g target=%l {how}
%b = adopt %g %a
%ends = compute "n == {last}" n=%n
%x = when %ends otherwise=[%b] {{
  %all = accept %g target=%l rule={EVERYTHING}
  %c = adopt %g %all
  yield %c
}}
%p = accept %x rule=all
%e = emit %p
commit @kv %e
%new = relabel %g logits=%l
%r = reroot %new %e nodes={window}
%tip = pick %r of=leaves
%more = place %r at=%tip tokens=[{FIRST_GUESS}] upto={window}
%asks = compute "n == {last - 1}" n=%n
%next = when %asks otherwise=[%more] {{
  %asked = place %r at=%tip tokens={print_atom(trigger)}
  yield %asked
}}
store @guess %next
%m = compute "n + 1" n=%n
store @passes %m"""
        states = (
            f"@guess = value tree(nodes={nodes}, depth={nodes}, init={FIRST_GUESS})",
            "@passes = value number(init=0)",
        )
        return single_round_plan(facts, self, (), body, states=states)


METHOD = FastCoT()
