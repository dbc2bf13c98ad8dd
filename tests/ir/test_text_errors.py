"""Whatever is no plan text is refused with its line, its column and what would do."""

from __future__ import annotations

import pytest

from specplan.ir import parse_plan
from specplan.ir.errors import UsageError
from specplan.ir.ops import OPS

HEAD = "plan p\nmodel target\nstate @kv = cache target\nround r {\n"
ERRORS = {
    "nothing": ("", "1, column 1", "expected 'plan', found the end of the text"),
    "no_plan": ("model target\n", "1, column 1", "expected 'plan', found 'model'"),
    "no_name": ("plan\n", "1, column 5", "expected a word, found the end of"),
    "name_is_a_flag": ("plan true\n", "1, column 6", "a plan cannot be called 'true'"),
    "strange_character": ("plan p\nmodel ?\n", "2, column 7", "unexpected character '?'"),
    "percent_alone": (HEAD + "  % = root\n}\n", "5, column 3", "unexpected character '%'"),
    "open_text": ('plan p\nmodel a digest="x\n', "2, column 16", "unexpected character '\"'"),
    "no_statement": ("plan p\nmodle target\n", "2, column 1", "'modle' starts no statement"),
    "second_assume": (
        "plan p\nassume lossless=false\nassume batch=1..2\n", "3, column 1",
        "a second statement of the plan's assumptions"),
    "two_on_a_line": ("plan p\nmodel a model b\n", "2, column 9", "expected the end of the line"),
    "rows_of_a_word": ("plan p\nrows a many\n", "2, column 1", "row groups are gone"),
    "no_kind_of_state": ("plan p\nstate @a = box b\n", "2, column 12", "'box' is no kind of state"),
    "state_without_at": ("plan p\nstate a = cache b\n", "2, column 7", 
     "expected a state (@name), found 'a'"),
    "track_without_layer": (
        "plan p\nmodel t\nstate @x = track t\nround r {\n}\n", "3, column 12",
        "track lacks 'layer='"),
    "attribute_unknown": (
        "plan p\nstate @kv = cache target size=3\n", "2, column 26",
        "cache has no attribute 'size'"),
    "attribute_twice": (
        "plan p\nassume lossless=false lossless=true\n", "2, column 23",
        "'lossless' is given twice"),
    "attribute_of_another_kind": (
        "plan p\nassume reproducible=no\n", "2, column 8",
        "assume reproducible: no is not true or false"),
    "old_promise_of_another_kind": (
        "plan p\nassume lossless=no\n", "2, column 8", "lossless= is true or false"),
    "old_promise_beside_the_new": (
        "plan p\nassume law=free lossless=true\n", "2, column 17", "in place of law="),
    "word_outside_the_list": (
        HEAD + "  %t = root\n  %f = pick %t of=nearest\n}\n", "6, column 16",
        "pick of: nearest is not one of newest, leaves, all, from"),
    "no_op": (HEAD + "  %t = rooot\n}\n", "5, column 8", "'rooot' is no op"),
    "no_equals": (HEAD + "  %t root\n}\n", "5, column 6", "expected '=', found 'root'"),
    "op_lacks_an_attribute": (HEAD + "  %t = root\n  %f = pick %t\n}\n", "6, column 8",
        "pick lacks 'of='"),
    "blocks_from_a_source": (
        HEAD + "  %t = root\n  %l = forward target %t cache=@kv skip=@s\n}\n", "6, column 36",
        "forward skip: @s is not a list"),
    "blocks_on_trial": (
        HEAD + "  %t = root\n  %l = forward target %t cache=@kv trial=true\n}\n", "6, column 36",
        "forward has no attribute 'trial'"),
    "positional_of_another_kind": (
        HEAD + "  %u = uniform many stream=s\n}\n", "5, column 16",
        "uniform count: many is not an integer"),
    "positional_missing": (HEAD + "  %e = emit\n}\n", "5, column 12", "expected a value"),
    "list_of_another_kind": (
        HEAD + "  %t = root\n  %g = place %t at=%t tokens=[1, x]\n}\n", "6, column 23",
        "place tokens: x is not an integer"),
    "bool_for_an_integer": (
        HEAD + "  %t = root\n  %g = place %t at=%t tokens=[] upto=true\n}\n", "6, column 33",
        "place upto: true is not an integer"),
    "list_not_closed": (HEAD + "  %g = place %t tokens=[1, 2\n}\n", "5, column 29", "expected ','"),
    "argument_twice": (
        "plan p\nstate @s = value tree(nodes=1, nodes=2)\n", "2, column 32",
        "'nodes' is given twice"),
    "span_of_words": (HEAD + "  %l = forward t %a layers=[0:end]\n}\n", "5, column 31",
        "expected an integer, found 'end'"),
    "compute_of_a_number": (HEAD + '  %n = compute "a" a=3\n}\n', "5, column 20",
        "compute a: an operand is a value"),
    "formula_not_quoted": (HEAD + "  %n = compute a a=%b\n}\n", "5, column 16",
        "compute formula: a is not a quoted string"),
    "round_not_closed": (HEAD + "  %t = root\n", "6, column 1", "expected a word, found the end"),
    "round_yields": (
        HEAD + "  %t = root\n  yield %t\n}\n", "4, column 1", "a round does not yield"),
    "op_after_yield": (
        HEAD + "  repeat 2 {\n    yield\n    %t = root\n  }\n}\n", "7, column 5", "expected '}'"),
    "yield_of_something_else": (
        HEAD + "  repeat 2 {\n    yield when=%x\n  }\n}\n", "6, column 11",
        "yield has no attribute 'when'"),
    "deep_regions": (
        HEAD + "repeat 1 {\n" * 40 + "}\n" * 41, "37, column 10",
        "regions are nested deeper than 32"),
    "guard_not_quoted": (
        HEAD + "}\nschedule {\n  when batch r\n  otherwise r\n}\n", "7, column 8",
        "a guard is a quoted formula"),
    "schedule_without_otherwise": (
        HEAD + '}\nschedule {\n  when "batch < 2" r\n}\n', "8, column 1", "expected 'otherwise'"),
    "large_integer": (HEAD + "  %u = uniform 9223372036854775808 stream=s\n}\n", "5, column 16",
        "the number is too large"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "place", "what"), ERRORS.values(), ids=ERRORS)
def test_errors_name_line_and_column(text: str, place: str, what: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_plan(text)
    assert caught.value.where in (f"plan text, line {place}", f"line {place}")
    assert what in caught.value.what


def test_errors_say_what_would_do() -> None:
    with pytest.raises(UsageError) as caught:
        parse_plan("plan p\nmodle x\n")
    assert (
        caught.value.remedy == "Statements are model, assume, threads, state, round and schedule."
    )
    with pytest.raises(UsageError) as caught:
        parse_plan(HEAD + "  %t = rot\n}\n")
    assert all(keyword in caught.value.remedy for keyword in OPS)
    with pytest.raises(UsageError) as caught:
        parse_plan(HEAD + "  %e = emit %a cut=2\n}\n")
    assert caught.value.remedy == "It takes: none."
    with pytest.raises(UsageError) as caught:
        parse_plan("plan p\nstate @a = cache t vew=@b\n")
    assert "It takes: view, policy, budget, dtype, reads, rollback." in caught.value.remedy
