"""Text as it is generated; on a colour terminal with the accepted draft tokens of each step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specplan.cli.screen.show import new_console

if TYPE_CHECKING:
    from rich.console import Console

SHADES = ("green", "bright_green")
"""Of the accepted draft tokens; steps take turns, so that one ends where the shade changes."""
_LEGEND = (
    ("the prompt", "dim"),
    ("draft tokens accepted in one step", SHADES[0]),
    ("in the next", SHADES[1]),
    ("plain: the token that ends a step", ""),
)


class Stream:
    """Prints one request's text step by step.

    Without colour (a pipe, `NO_COLOR`, a dumb terminal) it prints the new text and nothing else.

    Args:
        console: to print on; default the terminal, or the pipe, on stdout.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or new_console()
        self.colour = self.console.color_system is not None and not self.console.no_color
        self.steps = 0

    def begin(self, prompt: str) -> None:
        """Show what is continued, where colour tells it from the new text."""
        if self.colour:
            self._write(prompt, "dim")

    def step(self, row: int, tokens: tuple[int, ...], texts: tuple[str, ...]) -> None:
        """Print what a step emitted; an `OnTokens`.

        The target's own token ends a step, unless the request's last step is cut off before it.
        """
        shade = SHADES[self.steps % len(SHADES)]
        *drafted, last = texts
        self._write("".join(drafted), shade)
        self._write(last)
        self.console.file.flush()
        self.steps += bool(tokens)

    def end(self) -> None:
        """End the line, and say what the colours mean."""
        self._write("\n")
        if self.colour:
            for place, (words, style) in enumerate(_LEGEND):
                self._write(", " if place else "")
                self._write(words, style)
            self._write("\n")
        self.console.file.flush()

    def _write(self, text: str, style: str = "") -> None:
        """As it is: a console's own printing wraps lines, and expands tabs, from column 0."""
        from rich.style import Style

        if self.colour and style and text:
            text = Style.parse(style).render(text)
        self.console.file.write(text)
