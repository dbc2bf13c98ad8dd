"""A broken rule of the plan language, named."""

from __future__ import annotations


class RuleError(Exception):
    """A plan breaks the rule `rule`; the verifier adds where."""

    def __init__(self, rule: str, what: str) -> None:
        self.rule = rule
        self.what = what
        super().__init__(f"[{rule}] {what}")
