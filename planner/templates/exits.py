"""Tokens that leave the target early, where its lower layers are sure: rounds and families.

A round runs the lower layers for the text's last token, measures how sure they are by their logits
or by their states, and compares that with a number that was calibrated before (`value calibrated`).
The output follows the lower layers' law where they are sure. With a quality limit the plans promise
it (`law=bounded`), else nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from specplan.ir.plan import Plan
from specplan.ir.values import print_atom
from specplan.planner.drafters.trained_exits import TrainedExits, read_trained_exits
from specplan.planner.facts import ProblemFacts
from specplan.planner.method import Family, Method, OptionsT, Refusal
from specplan.planner.quality.limit import promise
from specplan.planner.reasons import Cause, Reason
from specplan.planner.templates.plan_text import single_round_plan, uniforms
from specplan.planner.templates.profiled_by_running import ProfiledByRunning

WAITING = 8
"""Tokens that the deep layers catch up on in one pass, at most; then they must."""
DEPTHS = (1 / 4, 1 / 2, 3 / 4)
"""Parts of the stack after which a token may leave."""
SURE = (0.95, 0.9, 0.8, 0.6, 0.4)
"""Probabilities, or differences of them, from which the lower layers' token is emitted."""
SATURATION, CLASSIFIER, POLICY = "saturation", "classifier", "policy"
SATURATED = (0.999, 0.995, 0.99, 0.98, 0.95)
"""Cosines of the states of neighbouring layers from which a token leaves."""


class Exits(ProfiledByRunning[OptionsT]):
    """A method whose tokens leave the target early.

    Its settings are known from one traced run of the target's own texts, whatever their thresholds.

    Attributes:
        exits: layers after which one token may leave.
    """

    exits: ClassVar[int] = 1
    law = "free"
    engine_drafter = ""
    acceptance = "how sure the layers are along the target's own texts, traced once"

    def promise(self, facts: ProblemFacts) -> str:
        """What is tested before the plan runs, where the problem limits quality."""
        quality = facts.problem.limits.quality
        return self.law if quality is None else print_atom(promise(quality))

    def unavailable(self, facts: ProblemFacts) -> str | None:
        """A stack of few layers leaves nothing out."""
        few = len(exit_depths(facts.target.num_layers)) < self.exits
        return "the target has too few layers to leave it early" if few else None

    def settings_of(self, facts: ProblemFacts) -> Iterator[tuple[str, OptionsT]]:
        """Every setting with the name of its family, safer ones first in each."""
        raise NotImplementedError

    def run_settings(self, facts: ProblemFacts) -> Iterator[OptionsT]:
        """All settings."""
        if self.unavailable(facts) is None:
            yield from (options for _, options in self.settings_of(facts))

    def choices(self, facts: ProblemFacts) -> Sequence[Family[OptionsT] | Refusal]:
        """A family for each way to be sure, whose settings differ by their thresholds."""
        few = self.unavailable(facts)
        if few is not None:
            return [Refusal("any", few)]
        if self.is_unasked(facts):
            words = f'it changes the output: name "{self.name}" in methods, or give limits.quality'
            return [Refusal("any", Reason(words, Cause.OPT_IN))]
        families: dict[str, list[OptionsT]] = {}
        unknown: OptionsT | None = None
        for name, options in self.settings_of(facts):
            if self.drafter(facts, options) in facts.profiles:
                families.setdefault(name, []).append(options)
            else:
                unknown = options
        known = [Family.of(name, settings) for name, settings in families.items()]
        if known or unknown is None:
            return known
        return [Refusal("any", self._unmeasured(facts, unknown))]


def exit_depths(num_layers: int) -> tuple[int, ...]:
    """The layers of a target after which tokens may leave, in rising order."""
    layers = {max(1, round(part * num_layers)) for part in DEPTHS}
    return tuple(sorted(layer for layer in layers if layer < num_layers))


def trained_exits(facts: ProblemFacts, kind: str) -> TrainedExits | None:
    """The exits that the problem names, of a kind."""
    problem = facts.problem
    folder = problem.exit_classifier if kind == CLASSIFIER else problem.exit_policy
    return None if folder is None else read_trained_exits(folder, kind, facts.target)


def can_measure(facts: ProblemFacts, measure: str, *layers: int) -> bool:
    """Whether a measure can be taken after some layers: of states they need others, or training."""
    if measure == SATURATION:
        return min(layers) > 1
    if measure not in (CLASSIFIER, POLICY):
        return True
    trained = trained_exits(facts, measure)
    return trained is not None and set(layers) <= set(trained.layers)


def sure_pass(
    facts: ProblemFacts, measure: str, begin: int, layer: int, name: str = ""
) -> tuple[str, tuple[int, ...]]:
    """Ops that run the layers before an exit: logits `%s`, states `%h`, how sure it is `%c`.

    Args:
        facts: the problem.
        measure: one that `can_measure`.
        begin: the exit before, or 0; its states are `%h` if the measure reads states.
        layer: of the exit.
        name: what the names of the values end with; one letter longer than at the exit before.

    Returns:
        The ops, and the layers whose states they record.
    """
    run, entering = "forward target %t cache=@kv pending=1", f" features=@x{begin}" if begin else ""
    lower = f"%s{name} = {run} layers=[{begin}:{layer}]{entering} keep=@x{layer}"
    if measure in (CLASSIFIER, POLICY):
        trained = trained_exits(facts, measure)
        assert trained is not None, "can_measure says so"
        lower = f"{lower} gives=[logits, states]".replace(" =", f", %h{name} =", 1)
        return f"{lower}\n%c{name} = measure %h{name} {trained.measure(layer)}", (layer,)
    if measure != SATURATION:
        return f"{lower}\n%c{name} = measure %s{name} {measure}", (layer,)
    ops, below, other = "", layer - 1, f"%h{name[:-1]}"
    if begin < below:
        other = f"%g{name}"
        ops = f"{other} = {run} layers=[{begin}:{below}]{entering} keep=@x{below} gives=[states]\n"
    ops += f"%s{name}, %h{name} = {run} layers=[{below}:{layer}] features=@x{below} keep=@x{layer}"
    ops += f" gives=[logits, states]\n%c{name} = measure %h{name} saturation beside={other}"
    return ops, (below, layer) if begin < below else (layer,)


def copied_plan(
    facts: ProblemFacts,
    method: Method[Any],
    layers: Sequence[int],
    measure: str,
    bar: float,
    threshold: str = "b",
) -> Plan:
    """Exits in a row; of a token that leaves, the layers above store keys and values of its state.

    Args:
        facts: the problem.
        method: whose plan it is.
        layers: after which a token may leave.
        measure: one that `can_measure` there.
        bar: the calibrated number.
        threshold: a formula of it, `b`, from which a token leaves.
    """
    last, tracks, begin, ends = facts.target.num_layers, list[int](), 0, [*layers]
    head, tail = list[str](), list[str]()
    for place, layer in enumerate(ends):
        name = "i" * place
        ops, recorded = sure_pass(facts, measure, begin, layer, name)
        tracks += recorded
        head += [
            ops,
            f'%go{name} = compute "c < {threshold}" c=%c{name} b=%b',
            f'%sure{name} = compute "c >= {threshold}" c=%c{name} b=%b',
            f"when %sure{name} {{",
            f"  forward target %t cache=@kv pending=1 layers=[{layer}:{last}] features=@x{layer} "
            "gives=[] only=keys_values",
            "}",
            f"%l{name} = when %go{name} otherwise=[%s{name}] {{",
        ]
        tail = [f"yield %l{name}i", "}", *tail]
        begin = layer
    whole = f"%l{'i' * len(ends)} = forward target %t cache=@kv pending=1 layers=[{begin}:{last}]"
    body = "\n".join([*head, f"{whole} features=@x{begin}", *tail])
    return exit_plan(facts, method, body, bar, tracks)


def exit_plan(
    facts: ProblemFacts,
    method: Method[Any],
    body: str,
    bar: float,
    tracks: Sequence[int],
) -> Plan:
    """A plan of one round that emits one token by the logits `%l`.

    Args:
        facts: the problem.
        method: whose plan it is.
        body: ops that give `%l` at the root `%t`; they read the number `%b`.
        bar: the calibrated number.
        tracks: layers whose states are recorded, in `@x<layer>`.
    """
    draw, by = uniforms(facts, 1, "%v", stream="accept", use="rule=token")
    states = [f"@bar = value calibrated(init={print_atom(float(bar))})"]
    states += [f"@x{layer} = track target layer={layer}" for layer in tracks]
    commits = "\n".join(f"commit @x{layer} %e" for layer in tracks)
    text = f"""%t = root
%b = load @bar
{body}
{draw}
%a = accept %t target=%l {by}
%e = emit %a
commit @kv %e
{commits}"""
    return single_round_plan(facts, method, (), text, states=states)


def put_off(layer: int, last: int, condition: str, operands: str) -> str:
    """The deep layers, where a token is not sure or enough of them wait: `%l` out of `%s`."""
    return f"""%n = measure @kv lag(layers={layer}:{last})
%go = compute "{condition} or n >= {WAITING - 1}" {operands} n=%n
%l = when %go otherwise=[%s] {{
  %d = forward target %t cache=@kv pending={WAITING} layers=[{layer}:{last}] features=@x{layer}
  yield %d
}}"""
