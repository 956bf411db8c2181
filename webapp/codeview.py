"""Source with highlighted lines, a permalink for each, and notes beside the lines that they are about."""

from collections.abc import Mapping
from dataclasses import dataclass

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

HIGHLIGHT_LIMIT = 200_000
"""Longer sources are shown plain: highlighting takes about 1 s for each megabyte."""
LINES_LIMIT = 5_000
"""More lines are for the download: a browser takes seconds for each ten thousand."""


@dataclass(frozen=True)
class Mark:
    """What is said about one line, and where on the page it is explained."""

    text: str
    href: str
    bad: bool = False


@dataclass(frozen=True)
class Line:
    """One line of source as HTML."""

    number: int
    html: SafeString
    mark: Mark | None


def lines_of(source: str, marks: Mapping[int, Mark] | None = None) -> list[Line]:
    """The lines of a Python source, highlighted unless it is very long."""
    marks = marks or {}
    if len(source) > HIGHLIGHT_LIMIT:
        rendered: str = escape(source)
    else:
        lexer = PythonLexer(stripnl=False, ensurenl=False)
        rendered = highlight(source, lexer, HtmlFormatter(nowrap=True))
    # Pygments escapes the source and closes every span at the end of its line.
    html = [mark_safe(line) for line in rendered.rstrip("\n").split("\n")]  # noqa: S308
    return [Line(number, line, marks.get(number)) for number, line in enumerate(html[:LINES_LIMIT], 1)]
