"""Plans that nobody's method writes: graphs do as the interpreter does, or both refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from specplan.backends.eager.backend import EagerBackend
from specplan.backends.eager.capabilities import CAPABILITIES
from specplan.backends.onnxruntime.backend import OnnxRuntimeBackend
from specplan.backends.ops.tensors.values import Tree
from specplan.backends.static.executable import StaticExecutable
from specplan.backends.static.graph_capabilities import STATIC
from specplan.ir.capabilities import refusals
from specplan.ir.errors import UsageError
from specplan.ir.plan import Plan
from specplan.ir.rules.verify import verify_plan
from specplan.ir.text.parser import parse_plan
from specplan.runtime.generate import generate
from specplan.runtime.models.causal import CausalModel
from specplan.runtime.requests import Request
from tests.backends.definition import decodes_as_defined
from tests.backends.pairs import load_pair, plainly, save_pair

VOCABULARY = 17
HEAD = "plan written\nmodel target\nmodel draft\nstate @kv = cache target\n"
JUDGED = """  %l = forward target %c cache=@kv pending=1
  %v = uniform 9 stream=accept
  %a = accept %c target=%l rule=recursive by=%v
  %e = emit %a
  commit @kv %e
"""
DRAFT = "  %t = root\n  %q = forward draft %t cache=@dkv pending=9\n"
CACHE, PHRASES = "state @dkv = cache draft\n", "state @s = source phrases(order=3, width=1"
LOG, ADJACENCY = "state @s = source log(capacity=100)\n", "state @s = source adjacency(width=4)\n"
THREE = "  %t = root\n  %x = lookup @s %t at=%t children=3 length=1\n  %f = pick %x of=newest\n"
TURNS = """  %t = root
  %t2 = root
  %c = lookup @s %t at=%t length=2
  %q = forward draft %t2 cache=@dkv pending=9
  %d0 = grow %t2 at=%t2 logits=%q children=2
  %f = pick %d0 of=newest
  %q1 = forward draft %f cache=@dkv pending=9
  %d = grow %d0 at=%f logits=%q1
"""
REROOTED = """  %w = load @w
  %l = forward target %w cache=@kv pending=1
  %q = forward draft %w cache=@dkv pending=3
  %tip = pick %w of=leaves
  %c = grow %w at=%tip logits=%q
  %v = uniform 9 stream=accept
  %a = accept %c target=%l rule=token by=%v
  %e = emit %a
  %r = reroot %c %e nodes=9
  commit @kv %e
"""


def written(states: str, body: str, judged: str = JUDGED, after: str = "") -> str:
    drafts = "  commit @dkv %e\n" if "@dkv" in states else ""
    return f"{HEAD}{states}round r {{\n{body}{judged}{drafts}{after}}}\n"


TAUGHT_AFTER = "  %c = grow %t at=%t logits=%q children=2\n  update @s %t last=3\n"
LOOKED_UP_AFTER = "  %n = measure %q top1\n  update @s %t last=6\n"
LOOKUP = "  %c = lookup @s %t at=%t match=[1, 3] children={} length=3{}\n"
BOTH = "  update @s %d last=3\n", "  update @s %t last=3\n"
WINDOW = "state @w = value tree(nodes=3, depth=3)\n" + CACHE
RAN = {
    "text is learned after a forward": written(
        PHRASES + ", capacity=100)\n" + CACHE, DRAFT + TAUGHT_AFTER
    ),
    "text is looked up after a forward": written(
        LOG + CACHE, DRAFT + LOOKED_UP_AFTER + LOOKUP.format(1, "")
    ),
    "a merged tree is looked up after a forward": written(
        LOG + CACHE, DRAFT + LOOKED_UP_AFTER + LOOKUP.format(2, " nodes=4")
    ),
    "runs are learned before the text": written(
        PHRASES + ", capacity=100)\n" + CACHE, TURNS, after="".join(BOTH)
    ),
    "the text is learned before runs": written(
        PHRASES + ", capacity=100)\n" + CACHE, TURNS, after="".join(reversed(BOTH))
    ),
    "runs of what is left, which is less than may be": written(
        WINDOW + PHRASES + ", capacity=50)\n", REROOTED, "", "  update @s %r last=2\n"
    ),
    "drawn nodes in a state of given ones": written(
        "state @x = value tree(nodes=1, depth=1)\n" + CACHE,
        "  %o = load @x\n" + DRAFT + "  %u = uniform 1 stream=d\n"
        "  %c = grow %t at=%t logits=%q how=draw by=%u\n  store @x %c\n",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("written")
    save_pair(folder, VOCABULARY)
    return folder


@pytest.fixture(scope="module")
def models(folder: Path) -> dict[str, CausalModel]:
    return load_pair(folder)


def requests(temperature: float, count: int = 6, tokens: int = 40) -> list[Request]:
    return [
        Request(
            prompt_tokens=tuple((7 * i + 3 * j) % 5 for j in range(3 + i % 5)),
            max_new_tokens=tokens + i % 3,
            temperature=temperature,
            seed=i,
        )
        for i in range(count)
    ]


def checked(text: str) -> Plan:
    plan = parse_plan(text)
    assert not verify_plan(plan)
    assert not refusals(plan, CAPABILITIES) and not refusals(plan, STATIC)
    return plan


@pytest.mark.parametrize("name", RAN)
def test_graphs_do_as_the_interpreter(name: str, models: dict[str, CausalModel]) -> None:
    """The same tokens in as many rounds; those of greedy requests are of plain decoding."""
    plan, asked = checked(RAN[name]), requests(1.0)
    asked[::2] = requests(0.0)[::2]
    decoded = [
        [(one.tokens, one.rounds) for one in generate(executable, asked).completions]
        for executable in (EagerBackend().compile(plan, models), StaticExecutable(plan, models))
    ]
    assert decoded[0] == decoded[1]
    assert [tokens for tokens, _ in decoded[0][::2]] == plainly(models, asked[::2])


def stored(how: str, rule: str) -> str:
    """Three children that the last round left are judged."""
    by = "" if how == "best" else " by=%u"
    body = DRAFT + "  %c = load @x\n  %u = uniform 3 stream=d\n"
    body += f"  %d = grow %t at=%t logits=%q children=3 how={how}{by}\n  store @x %d\n"
    state = "state @x = value tree(nodes=3, depth=1, parents=[-1, -1, -1], how=draw)\n"
    return written(state + CACHE, body, JUDGED.replace("rule=recursive", f"rule={rule}"))


@pytest.mark.parametrize("how", ["best", "draw_distinct", "draw"])
def test_a_state_of_drawn_nodes_takes_no_others(how: str) -> None:
    """Else they would be judged as what they are not, and the target's law were lost."""
    findings = [str(one) for one in verify_plan(parse_plan(stored(how, "k_seq")))]
    assert bool(findings) == (how != "draw")
    assert all("@x takes nodes of how=draw only" in text for text in findings)


def test_drawn_nodes_are_given_ones_in_a_state_that_keeps_no_laws(
    models: dict[str, CausalModel],
) -> None:
    executable = EagerBackend().compile(
        checked(RAN["drawn nodes in a state of given ones"]), models
    )
    session = executable.start(requests(1.0))
    session.prefill()
    session.step("r")
    state = next(value for name, value in session.batch.values.items() if str(name) == "x")
    assert isinstance(state, Tree) and not state.probs and bool((state.probs_row == -1).all())


BELOW = "  %c = lookup @s %x at=%f children=1 length=2 nodes=4\n"
TAUGHT = "  update @s %{} logits=%{}\n"
INTERPRETED = {
    "continuations of several nodes in so many": written(
        ADJACENCY, THREE + BELOW, after=TAUGHT.format("c", "l")
    ),
    "rows of the root alone are learned": written(
        ADJACENCY + CACHE, DRAFT + TAUGHT.format("t", "q") + "  %o = lookup @s %t at=%t "
        "children=2\n  %c = grow %o at=%t logits=%q\n",
    ),
    "several continuations of the text below each node": written(
        CACHE, DRAFT + "  %g = grow %t at=%t logits=%q children=2\n  %f = pick %g of=newest\n"
        "  %c = lookup @text %g at=%f match=[1, 3] children=[2, 1] length=2\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("name", INTERPRETED)
def test_what_makes_no_graph_decodes_as_is_defined(
    name: str, temperature: float, models: dict[str, CausalModel]
) -> None:
    decodes_as_defined(INTERPRETED[name], models, requests(temperature, count=3, tokens=12))


@pytest.mark.parametrize("how", ["best", "shared by=%u"])
def test_no_node_has_more_children_than_there_are_tokens(
    how: str, models: dict[str, CausalModel]
) -> None:
    grown = "  %u = uniform 1 stream=d\n  %c = grow %t at=%t logits=%q children={} how={}\n"
    for count in (VOCABULARY, VOCABULARY + 1):
        judged = JUDGED.replace("uniform 9", f"uniform {count + 1}")
        plan = parse_plan(written(CACHE, DRAFT + grown.format(count, how), judged))
        assert not verify_plan(plan)
        if count > VOCABULARY:
            with pytest.raises(
                UsageError, match="18 different children, and the vocabulary has 17"
            ):
                EagerBackend().compile(plan, models)
        else:
            EagerBackend().compile(plan, models)


def test_graphs_look_up_below_nodes_that_data_chooses(models: dict[str, CausalModel]) -> None:
    body = "  %t = root\n  update @s %t last=6\n"
    body += "  %x = lookup @s %t at=%t match=[1, 3] children=1 length=4 nodes=2\n"
    body += "  %f = pick %x of=leaves\n  %c = lookup @text %x at=%f length=2\n"
    plan = parse_plan(written(LOG, body))
    assert not verify_plan(plan) and not refusals(plan, STATIC)
    asked = requests(0.0)
    expected = generate(EagerBackend().compile(plan, models), asked).completions
    generation = generate(StaticExecutable(plan, models), asked).completions
    assert [one.tokens for one in generation] == [one.tokens for one in expected]


def test_formulas_need_no_value_for_requests_that_have_just_ended(
    models: dict[str, CausalModel],
) -> None:
    after = "  %n = measure %e accepted\n" + '  %z = compute "1.0 / n" n=%n\n  store @x %z\n'
    body = DRAFT + "  %c = grow %t at=%t logits=%q\n"
    plan = checked(written("state @x = value number(init=0.0)\n" + CACHE, body, after=after))
    asked = [
        Request(prompt_tokens=(1 + i, 2, 3), max_new_tokens=1, temperature=0.0) for i in range(6)
    ]
    for executable in (
        EagerBackend().compile(plan, models), StaticExecutable(plan, models)
    ):  # fmt: skip
        assert all(len(one.tokens) == 1 for one in generate(executable, asked).completions)


def test_two_states_may_change_places(folder: Path, tmp_path: Path) -> None:
    """A compiled round writes a state that takes what was another's input."""
    states = "state @x = value number(init=1.0)\nstate @y = value number(init=0.0)\n"
    body = "  %t = root\n  %p = load @x\n  %s = load @y\n"
    body += "  %c = lookup @text %t at=%t match=[1, 2] length=2\n"
    plan = checked(written(states, body, after="  store @x %s\n  store @y %p\n"))
    session = OnnxRuntimeBackend().compile(plan, load_pair(folder, dtype="float32"), tmp_path)
    running = session.start(requests(0.0, count=1))
    running.prefill()
    seen = []
    for _ in range(3):
        running.step("r")
        values = {str(name): float(parts[0]) for name, parts in running.values.items()}
        seen.append((values["x"], values["y"]))
    assert seen == [(0.0, 1.0), (1.0, 0.0), (0.0, 1.0)]
