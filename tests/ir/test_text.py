"""Plan text: atoms, places of errors, remedies."""

from __future__ import annotations

import json
import math
from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specplan.ir import (
    parse_ops,
    parse_plan,
    plan_from_json,
    plan_to_json,
    print_op,
    print_plan,
    verify_plan,
)
from specplan.ir.errors import UsageError
from specplan.ir.ops import OPS, Compute, Forward, Grow, Op, Repeat
from specplan.ir.plan import Assumptions, CacheState, Model, Plan, TrackState
from specplan.ir.text.lexer import tokenize
from specplan.ir.text.reader import Reader
from specplan.ir.values import (
    NOT_WORDS,
    Atom,
    Entry,
    Range,
    Span,
    State,
    Text,
    Value,
    print_atom,
)
from tests.ir.plans_on_disk import text_of

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,6}", fullmatch=True)
dotted = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,4}(\.[A-Za-z0-9_]{1,3}){0,2}", fullmatch=True)
words = dotted.filter(lambda word: word not in NOT_WORDS)
integers = st.integers(-(1 << 63), (1 << 63) - 1)
floats = st.floats(allow_nan=False, allow_infinity=False)
flat_atoms = st.one_of(
    st.booleans(),
    integers,
    floats,
    words,
    names.map(Value),
    names.map(State),
    st.text(max_size=20).map(Text),
    st.builds(Span, integers, integers),
    st.builds(Range, integers | floats, integers | floats),
)
entries = st.builds(
    lambda name, pairs: Entry(name, tuple(pairs.items())),
    words,
    st.dictionaries(words, flat_atoms, min_size=1, max_size=3),
)
atoms = st.recursive(flat_atoms | entries, lambda inner: st.lists(inner, max_size=4).map(tuple))


def read(text: str) -> Atom:
    """One atom, and nothing after it."""
    reader = Reader(text)
    atom = reader.atom()
    reader.take("newline")
    reader.take("end")
    return atom


def same(first: object, second: object) -> bool:
    """Equal and of the same type: 1, 1.0 and true are three different atoms."""
    if type(first) is not type(second):
        return False
    if isinstance(first, tuple) and isinstance(second, tuple):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, Range) and isinstance(second, Range):
        return same((first.low, first.high), (second.low, second.high))
    if isinstance(first, Entry) and isinstance(second, Entry):
        named = first.name == second.name and len(first.arguments) == len(second.arguments)
        pairs = zip(first.arguments, second.arguments, strict=True)
        return named and all(a[0] == b[0] and same(a[1], b[1]) for a, b in pairs)
    if isinstance(first, float) and isinstance(second, float):
        return first == second and math.copysign(1, first) == math.copysign(1, second)
    return first == second


@settings(max_examples=300)
@given(atoms)
def test_every_atom_reads_back_as_itself(atom: Atom) -> None:
    assert same(read(print_atom(atom)), atom)


@settings(max_examples=200)
@given(st.dictionaries(words, flat_atoms | entries, max_size=3), st.sampled_from(["number", "a.b"]))
def test_every_atom_goes_through_json(arguments: dict[str, Atom], name: str) -> None:
    entry = Entry(name, tuple(arguments.items()))
    text = f"plan p\nstate @s = value {print_atom(entry)}\n"
    if not arguments:
        text = f"plan p\nstate @s = value {name}\n"
    plan = parse_plan(text)
    again = plan_from_json(json.loads(json.dumps(plan_to_json(plan), allow_nan=False)))
    assert again == plan and print_plan(again) == print_plan(plan) == text


@pytest.mark.parametrize(
    ("text", "atom"),
    [
        ("-1", -1), ("007", 7), ("1e-5", 1e-5), ("1E5", 1e5), ("-2.50", -2.5), ("0.0", 0.0),
        ("1..4", Range(1, 4)), ("0.5..1.5", Range(0.5, 1.5)), ("-1..1e3", Range(-1, 1000.0)),
        ("0:8", Span(0, 8)), ("8:32", Span(8, 32)), ("true", True), ("false", False),
        ("best", "best"), ("head.1", "head.1"), ("_x9", "_x9"), ("trueish", "trueish"),
        ('"a b"', Text("a b")), (r'"\"\\ \n"', Text('"\\ \n')), ('"#no"', Text("#no")),
        ("%v", Value("v")), ("@kv", State("kv")), ("[]", ()), ("[2]", (2,)),
        ("[1, [2, 3], ]", (1, (2, 3))), ("f()", "f"),
        ("f(a=1, b=g(c=0:2))", Entry("f", (("a", 1), ("b", Entry("g", (("c", Span(0, 2)),)))))),
    ],
)  # fmt: skip
def test_atoms(text: str, atom: Atom) -> None:
    assert same(read(text), atom)
    assert same(read(f" \t{text}  # a comment"), atom)


@pytest.mark.parametrize(
    ("number", "text"), [(1.0, "1.0"), (1e-5, "1e-05"), (1e22, "1e+22"), (-0.5, "-0.5"), (3, "3")]
)
def test_floats_are_distinguished_from_integers(number: float, text: str) -> None:
    assert print_atom(number) == text


def test_tokens_know_their_line_and_column() -> None:
    tokens = tokenize("\n\nplan a # note\n\n  %t = root\r\n")
    places = [(token.kind, token.text, token.line, token.column) for token in tokens]
    assert places == [
        ("word", "plan", 3, 1), ("word", "a", 3, 6), ("newline", "\n", 3, 14),
        ("value", "%t", 5, 3), ("mark", "=", 5, 6), ("word", "root", 5, 8),
        ("newline", "\n", 5, 13), ("end", "", 6, 1),
    ]  # fmt: skip


def test_defaults_are_not_printed() -> None:
    noisy = (
        text_of("autoregressive")
        .replace("target=%l", "target=%l rule=greedy")
        .replace("pending=1", "write=exact pending=1 attend=ancestors shift=0")
    )
    assert print_plan(parse_plan(noisy)) == text_of("autoregressive")


def test_ops_read_into_their_fields() -> None:
    grow, forward, compute, repeat = parse_ops(
        "%n = grow %t at=%f logits=%q children=[2, 1] how=draw by=%u\n"
        "%a, %b = forward target %x %y cache=@kv pending=512 layers=[0:2, 18:32] gives=[]\n"
        '%s = compute "a < 1" a=%p\n'
        "%r = repeat 3 (%i = %j, %k = %l) {\n  yield %i, %k until=%s\n}\n"
    )
    assert isinstance(grow, Grow) and grow.children == (2, 1) and grow.how == "draw"
    assert isinstance(forward, Forward) and forward.nodes == ("x", "y")
    assert forward.pending == 512 and forward.gives == ()
    assert forward.layers == (Span(0, 2), Span(18, 32))
    assert isinstance(compute, Compute) and compute.operands == (("a", Value("p")),)
    assert isinstance(repeat, Repeat) and repeat.body.until == "s" and len(repeat.carried) == 2


def test_numbers_of_other_kinds_are_read_as_the_field_wants() -> None:
    plan = parse_plan("plan p\nassume temperature=0 batch=1..4 context=1..2048\n")
    temperature = plan.assumptions.temperature
    assert temperature == 0.0 and isinstance(temperature, float)
    assert 3 in (plan.assumptions.batch or ()) and 5 not in (plan.assumptions.batch or ())


def test_every_field_of_every_statement_and_op_is_documented() -> None:
    for cls in (*OPS.values(), Plan, Model, Assumptions, CacheState, TrackState):
        assert cls.__doc__ and not cls.__doc__.startswith(f"{cls.__name__}(")
        assert all(field.type for field in fields(cls))


def test_json_of_another_version_or_shape_is_refused() -> None:
    good = plan_to_json(parse_plan(text_of("staged")))
    assert good["schema_version"] == 2
    for bad in (None, [], {}, {**good, "schema_version": 3}, {"schema_version": "1"}):
        with pytest.raises(UsageError, match="schema_version must be 2"):
            plan_from_json(bad)
    for change in (
        {"size": 3}, {"name": "two words"}, {"name": 5}, {"models": [{"is": "Round"}]},
        {"models": [{"is": "Tree", "name": "a"}]}, {"models": {"is": "Model"}},
        {"rounds": [{"is": "Model", "name": "a"}]}, {"rounds": [{"op": "rot"}]},
        {"states": [{"declare": "box", "name": {"state": "a"}}]},
        {"states": [{"declare": "cache", "name": {"value": "a"}, "model": "b"}]},
        {"states": [{"declare": "source", "name": {"state": "a"}, "kind":
                     {"entry": "log", "arguments": [["capacity", {"op": "root"}]]}}]},
        {"assumptions": {"is": "Schedule", "otherwise": "a"}},
        {"assumptions": {"is": "Assumptions", "temperature": float("inf")}},
    ):  # fmt: skip
        with pytest.raises(UsageError, match="not a plan"):
            plan_from_json({**good, **change})


OLD = """plan old
model target
model draft
assume lossless=false
state @kv = cache target
state @dkv = cache draft
round decode {
  %t0 = root
  %q = forward draft %t0 cache=@dkv pending=2
  %t = grow %t0 at=%t0 rows=%q
  %l = forward target %t cache=@kv pending=1
  %a = accept %t target=%l
  %e = emit %a
  commit @kv %e
  commit @dkv %e
}
"""


def test_text_of_the_version_before_is_read() -> None:
    plan = parse_plan(OLD)
    now = OLD.replace("rows=", "logits=").replace("lossless=false", "law=free")
    assert verify_plan(plan) == () and print_plan(plan) == now
    assert parse_plan(
        OLD.replace("assume lossless=false\n", "assume lossless=true\n")
    ).assumptions == (parse_plan(OLD.replace("assume lossless=false\n", "")).assumptions)


def test_json_of_the_version_before_is_read() -> None:
    now = plan_to_json(parse_plan(OLD))
    text = json.dumps(now).replace('"logits":', '"rows":')
    old = json.loads(text) | {"schema_version": 1}
    old["assumptions"] = {"is": "Assumptions", "lossless": False}
    assert plan_from_json(old) == parse_plan(OLD)


def test_a_stored_tree_of_the_version_before_is_read() -> None:
    now = text_of("parallel_draft_verify")
    assert print_plan(parse_plan(now.replace("how=draw)", "law=drawn)"))) == now
    given = parse_plan(now.replace("how=draw)", "law=point)"))
    assert given == parse_plan(now.replace(", how=draw)", ")"))


def test_what_grows_below_a_whole_tree_need_not_say_so() -> None:
    for line in (
        "%n = grow %t at=%t logits=%q",
        "%n = lookup @text %t at=%t length=3",
        "%n = place %t at=%t tokens=[1]",
    ):
        (op,) = parse_ops(line.replace(" at=%t", ""))
        assert print_op(op) == line


GONE = {
    "root rows=a": "forward most=",
    "place %t at=%t tokens=[1] probe=true": "forward levels=",
    "pick %t of=placed": "forward levels=",
    "reroot %t %p take=placed": "forward levels=",
    "grow %t at=%t rows=%q law=request": "mix law=",
    "accept %t target=%l law=contrastive": "mix law=",
    "mix %l over=%c law=contrastive": "mix %logits %tree",
    "forward target %t %c pending=[1, 512]": "most=",
    "forward heads %t gives=[head.1, head.2]": "levels=",
    "commit @kv %e keep=text": "write=scratch",
    "commit @kv %e layers=[0:2]": "all layers",
}


@pytest.mark.parametrize("line", GONE)
def test_what_is_gone_is_refused_with_what_takes_its_place(line: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_ops(line)
    assert GONE[line] in f"{caught.value.what} {caught.value.remedy}"


def test_json_nested_too_deeply_is_refused() -> None:
    inner: dict[str, object] = {"is": "Region"}
    for _ in range(2000):
        inner = {"is": "Region", "ops": [{"op": "segment", "body": inner}]}
    data = {
        "schema_version": 1,
        "name": "p",
        "rounds": [{"is": "Round", "name": "r", "ops": [inner]}],
    }
    with pytest.raises(UsageError, match="nested too deeply"):
        plan_from_json(data)


def test_ops_are_hashable_and_compared_by_value() -> None:
    first, second = (parse_ops("%l = forward target %t cache=@kv pending=1")[0] for _ in range(2))
    assert first == second and len({first, second}) == 1
    changed: Op = parse_ops("%l = forward target %t cache=@kv pending=2")[0]
    assert changed != first
