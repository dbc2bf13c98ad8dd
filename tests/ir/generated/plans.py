"""Plans of one or several rounds, what they assume, and their schedule."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import count
from random import Random

from specplan.ir.plan import Plan
from specplan.ir.rules.verify import Diagnostic, verify_plan
from specplan.ir.text.parser import parse_plan
from specplan.ir.text.printer import print_plan
from specplan.ir.types.infer import InferenceError
from tests.ir.generated.builder import Builder, Promise, Refused, Statements
from tests.ir.generated.rounds import drafted_round, plain_round
from tests.ir.generated.templates import TEMPLATES, exit_calibrated

OnRefusal = Callable[[str, tuple[Diagnostic, ...]], None]
"""Called with a text that the verifier refuses, and why."""
GUARDS = (
    "emitted < 6", "emitted % 3 == 1", "context < 20", "context + emitted > 12", "batch <= 2",
    "phase == 1", "batch > 1 or emitted < 4", "group == 1",
)  # fmt: skip

PROMISES: tuple[Promise, ...] = ("target", "stated", "bounded", "free")
MODELS = (" revision=live", " dtype=float64", ' of=target part="four bits"', " of=target")
"""Attributes of draft models."""
THREADS = (
    'points(skeleton="List points.", point="Expand point {n}.", route="By points?")',
    "fork(fork=5, child=6)",
    'labels(path="labels.json")',
    'thoughts(width=2, depth=2, judge="Rate it.")',
    "after(stop=3)",
)


@lru_cache(maxsize=2048)
def generated_plan(number: int) -> Plan:
    """The verified plan of that number."""
    return _first_verified(number, lambda text, broken: None)


def generated_text(number: int) -> str:
    """The same as text."""
    return print_plan(generated_plan(number))


def _first_verified(number: int, refused: OnRefusal) -> Plan:
    for attempt in count():
        text = _attempt(number, attempt)
        if text is None:
            continue
        plan = parse_plan(text)
        broken = verify_plan(plan)
        if not broken:
            return plan
        refused(text, broken)
    raise AssertionError("count() does not end")


def _attempt(number: int, attempt: int) -> str | None:
    """A text that should verify; None where its parts did not fit."""
    random = Random(f"plan {number}, attempt {attempt}")
    plan = Statements()
    plan.greedy = random.random() < 0.45
    plan.promise = random.choices(PROMISES, (0.57, 0.1, 0.05, 0.28))[0]
    plan.races = not plan.greedy and random.random() < 0.2
    plan.heads = random.random() < 0.3
    share = 0.0 if plan.promise == "bounded" else random.random()
    if share < 0.3:
        plan.passes = "halves"
        plan.states["@x"] = "track target layer=2"
    elif share < 0.5 and plan.promise == "free":
        plan.passes = "thin"
        plan.layers = random.choice((" layers=[0:2, 3:4]", " layers=[0:1, 2:4]"))
    rounds = []
    try:
        for index in range(random.choice((1, 1, 1, 1, 2, 2, 3))):
            build = Builder(random, plan)
            templates = [make for make, fits in TEMPLATES if fits(plan)] + [plain_round]
            fixed = random.random() < (0.45 if plan.passes == "halves" else 0.3)
            make = random.choice(templates) if fixed else drafted_round
            make = exit_calibrated if plan.promise == "bounded" else make
            rounds.append(make(build, f"r{index}"))
    except (InferenceError, Refused):
        return None
    for name in ("draft", "small"):
        if name in plan.models and random.random() < 0.1:
            plan.models[name] = random.choice(MODELS)
    for name, kind in plan.states.items():
        if kind.startswith("cache") and random.random() < 0.05:
            plan.states[name] = f"{kind} dtype=float64"
        if kind in ("cache draft", "cache small") and random.random() < 0.1:
            plan.states[name] = f"{kind} rollback={random.choice(('replay', 'snapshot'))}"
    head = _assumptions(plan, random)
    if random.random() < 0.12:
        head += f"\nthreads {random.randint(2, 4)} by={random.choice(THREADS)}"
    parts = [plan.text(f"p{number}", head.strip()), *rounds]
    if len(rounds) > 1 or random.random() < 0.05:
        parts.append(_schedule(len(rounds), random))
    return "\n".join(parts) + "\n"


def _assumptions(plan: Statements, random: Random) -> str:
    words = []
    if plan.promise == "bounded":
        more = random.choice(("", ", risk=0.1", ", risk=0.1, measure=divergence"))
        words.append(f"law=bounded(loss={random.choice((0.1, 0.2))}{more})")
    elif plan.promise != "target":
        words.append(f"law={plan.promise}")
    changing = any("live" in more for more in plan.models.values())
    if plan.shared or changing or random.random() < 0.1:
        words.append("reproducible=false")
    if not plan.greedy:
        words.append(f"temperature={random.choice(('0.0..1.0', '0.5..1.0', '0.7', '1'))}")
    elif random.random() < 0.5:
        words.append(f"temperature={random.choice(('0.0', '0.0..0.0'))}")
    if random.random() < 0.3:
        words.append("batch=1..4")
    if random.random() < 0.3:
        words.append("context=1..512")
    return f"assume {' '.join(words)}" if words else ""


def _schedule(rounds: int, random: Random) -> str:
    names = random.sample([f"r{index}" for index in range(rounds)], rounds)
    lines = [f'  when "{random.choice(GUARDS)}" {name}' for name in names[1:]]
    if rounds == 1:
        lines = [f'  when "{random.choice(GUARDS)}" {names[0]}']
    head = (
        f"schedule hysteresis={random.choice((0.1, 0.2))}" if random.random() < 0.4 else "schedule"
    )
    return "\n".join([f"{head} {{", *lines, f"  otherwise {names[0]}", "}"])
