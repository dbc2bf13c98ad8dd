"""The editor's grammar sees a plan text as the lexer does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from specplan.ir.ops import OPS
from specplan.ir.text.lexer import tokenize
from tests.ir.plans_on_disk import FOLDER

EDITOR = Path(__file__).parents[2] / "examples/editor"
GRAMMAR = json.loads((EDITOR / "specplan.tmLanguage.json").read_text(encoding="utf-8"))
RULES = [(rule["name"].split(".specplan")[0], rule["match"]) for rule in GRAMMAR["patterns"]]
KINDS = {
    "variable.other.value": "value",
    "variable.language.state": "state",
    "string.quoted.double": "text",
    "constant.numeric.float": "float",
    "constant.numeric.integer": "integer",
    "punctuation": "mark",
}
"""The lexer's kind by scope; all other scopes are words."""
TEXTS = [path.read_text(encoding="utf-8") for path in sorted(FOLDER.rglob("*.plan"))]
MORE = 'plan x  # said = "5"\nround decode {\n  %a = op x=-1.5e3 y=1e-3 z=1..4 w=a.b  # %b\n}\n'


def scopes(line: str) -> Iterator[tuple[str, str, int]]:
    """(scope, text, column) as an editor sees a line: of the rules the first to begin."""
    at = 0
    while at < len(line):
        matches = [(m.start(), i, m) for i, (_, p) in enumerate(RULES) if (m := _next(p, line, at))]
        if not matches:
            return
        _, index, match = min(matches, key=lambda one: one[:2])
        yield RULES[index][0], match[0], match.start() + 1
        at = match.end()


def _next(pattern: str, line: str, at: int) -> re.Match[str] | None:
    return re.compile(pattern).search(line, at)


def first(line: str) -> tuple[str, str, int]:
    return next(scopes(line))


def test_an_editor_splits_texts_as_the_lexer_does() -> None:
    assert len(TEXTS) > 100
    for text in (*TEXTS, MORE):
        lexed = [
            (token.kind, token.text, token.line, token.column)
            for token in tokenize(text)
            if token.kind not in ("newline", "end")
        ]
        coloured = [
            (KINDS.get(scope, "word"), word, number, column)
            for number, line in enumerate(text.split("\n"), start=1)
            for scope, word, column in scopes(line)
            if not scope.startswith("comment")
        ]
        assert coloured == lexed


def test_every_op_and_statement_has_its_colour() -> None:
    for keyword in OPS:
        assert first(f"{keyword} %a")[:2] == ("support.function.op", keyword)
    for word in ("plan", "model", "assume", "threads", "state", "round", "schedule"):
        assert first(f"{word} x")[:2] == ("keyword.other.statement", word)
    assert first("model=target")[0] == "variable.parameter"  # an attribute of that name
    assert first("uniforms")[0] == "entity.name" == first("trued")[0]


def test_the_extension_names_the_grammar() -> None:
    package = json.loads((EDITOR / "package.json").read_text(encoding="utf-8"))
    (grammar,), (language,) = (package["contributes"][key] for key in ("grammars", "languages"))
    assert (EDITOR / grammar["path"]).is_file() and (EDITOR / language["configuration"]).is_file()
    assert grammar["scopeName"] == GRAMMAR["scopeName"]
    assert re.match(GRAMMAR["firstLineMatch"], TEXTS[0].splitlines()[0])
