"""`python -m specplan.cli` is the `specplan` program."""

from specplan.cli.main import run

run()
