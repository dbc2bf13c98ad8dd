"""`python -m specplan` is the `specplan` program."""

from specplan.cli.main import run

run()
