"""The `specplan` program: its commands, and the exit code of every way to fail."""

from __future__ import annotations

import gc
import os
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from typing import Annotated, Any, cast

import typer

from specplan.cli.extras import explain_import_error
from specplan.cli.output import print_json_error, printed
from specplan.ir.errors import SpecplanError

USAGE = 2
INTERNAL = 70
INTERRUPTED = 130
JSON = "--json"

_COMMANDS = {
    "init": "init.init",
    "optimize": "optimize.optimize",
    "tune": "tune.tune",
    "calibrate": "calibrate.calibrate",
    "train": "train.train",
    "compile": "compiling.compile_",
    "lower": "compiling.lower",
    "lint": "lint.lint",
    "run": "run.run",
    "bench": "bench.bench",
    "check": "check.check",
    "explain": "explain.explain",
    "parallel": "parallel.parallel",
    "whatif": "whatif.whatif",
    "compare": "compare.compare",
    "report": "report.report",
    "emit": "emit.emit",
    "profile": "profile.profile",
    "import": "importing.importing",
    "datastore": "datastore.datastore",
    "kernels": "kernels.kernels",
    "methods": "methods.methods",
    "engines": "engines.engines",
    "laws": "laws.laws",
    "devices": "devices.devices",
    "schema": "schema.schema",
}
"""Where each command is: a module here, and its function or its group of commands."""


def _print_version(wanted: bool) -> None:
    if wanted:
        import specplan

        print(f"specplan {specplan.__version__}")
        raise typer.Exit


def _global_options(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show a traceback on errors (or set SPECPLAN_DEBUG=1).")
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    if debug:
        os.environ["SPECPLAN_DEBUG"] = "1"


def program(asked: str | None = None) -> typer.Typer:
    """The program with one command, which needs not load the others; with all of them by default.

    Args:
        asked: the command's name; all commands are there where none has it.
    """
    app = typer.Typer(
        name="specplan",
        help="Find, run and measure the fastest decoding plan for a model, a device and a "
        "workload.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        epilog="Exit codes: 0 ok, 1 regression or limit missed, 2 usage or bad config, "
        "3 infeasible, 4 missing capability, 5 nothing to compare, 6 undecided, 70 internal error.",
    )
    app.callback()(_global_options)
    for name in (asked,) if asked in _COMMANDS else _COMMANDS:
        module, _, attribute = _COMMANDS[name].partition(".")
        command = getattr(import_module(f"specplan.cli.{module}"), attribute)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)
    return app


def run() -> None:
    """Run the program on `sys.argv` and exit; the entry point of the `specplan` script."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is fetched at run time
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # the bars are our own
    gc.set_threshold(100_000, 50, 50)  # importing and planning build much that stays
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")  # not to look for any
    printed.clear()
    try:
        app = program(_asked())
        if JSON not in sys.argv:
            app()
        else:
            _run_for_json(app)
    except KeyboardInterrupt:
        _fail(SpecplanError("interrupted"), INTERRUPTED)
    except SpecplanError as error:
        _fail(error, error.exit_code)
    except ImportError as error:
        missing = explain_import_error(error, purpose=_command())
        if missing is None:
            _fail_internally(error)
        else:
            _fail(missing, missing.exit_code)
    except OSError as error:
        if error.filename is None:
            _fail_internally(error)
        else:
            remedy = "Check the path, its permissions and the space left."
            where = str(error.filename)
            _fail(SpecplanError(f"{error.strerror}", where=where, remedy=remedy), USAGE)
    except Exception as error:
        _fail_internally(error)


def _asked() -> str | None:
    """The command of the command line, or of the one that a shell wants completed."""
    words = os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS")
    typed = sys.argv[1:] if words is None else words.split()[1:]
    return next((word for word in typed if not word.startswith("-")), None)


def _run_for_json(app: typer.Typer) -> None:
    """Run the program; errors of usage are a JSON document as well."""
    try:
        sys.exit(app(standalone_mode=False))
    except Exception as error:
        words: Callable[[], str] | None = getattr(error, "format_message", None)
        if words is None:
            raise
        # An error of usage; its class is click's, or typer's own, by the version of typer.
        from typer.rich_utils import rich_format_error

        rich_format_error(cast("Any", error))
        print_json_error(words(), USAGE, where=_command())
        sys.exit(USAGE)


def _command() -> str:
    return " ".join(["specplan", *(word for word in sys.argv[1:2] if not word.startswith("-"))])


def _fail_internally(error: Exception) -> None:
    what = f"internal error: {type(error).__name__}: {error}"
    remedy = "This is a bug; run again with `specplan --debug ...` and report the traceback."
    _fail(SpecplanError(what, remedy=remedy), INTERNAL)


def _fail(error: SpecplanError, exit_code: int) -> None:
    if os.environ.get("SPECPLAN_DEBUG"):
        traceback.print_exc()
    print(f"specplan: {error}", file=sys.stderr)
    if JSON in sys.argv:
        print_json_error(
            error.what, exit_code, where=error.where, remedy=error.remedy, errors=error.errors
        )
    sys.exit(exit_code)
