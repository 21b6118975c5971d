"""Output for a terminal, on which names and data have no effect.

Control characters in the name of a column, a class or a file would change the colours, the title or the
content of a terminal. `TerminalStream` escapes all text that `print` and `typer.echo` write.
`TerminalConsole` escapes its text, and adds rich's own styles and movements of the cursor.
"""

from __future__ import annotations

import codecs
import io
import sys
from collections.abc import Iterable
from typing import Any, TextIO, cast

from rich.console import Console, ConsoleOptions, RenderableType  # noqa: TID251
from rich.segment import Segment
from rich.text import Text

from shoestring.core.text import shown_text


class TerminalStream:
    """A text stream that escapes control characters. A rich console writes to the stream below it."""

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        self.rich_proxied_file.write(shown_text(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


class TerminalConsole(Console):
    """A rich console that escapes control characters of all text, and interprets no markup in it."""

    def __init__(self, out: TextIO | None, **options: Any) -> None:
        """Write to `out`; None: nowhere, since the caller has closed it."""
        # Where rich looks for sys.stderr by itself, it finds its own stand-in while it shows progress.
        file = io.StringIO() if out is None else out
        super().__init__(file=file, markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Escape a string before its width is measured."""
        return super().render_str(shown_text(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Escape text that was no string, such as `Text`."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=shown_text(segment.text))


def escape_streams() -> None:
    """Let this process write no control character of others to stdout and stderr from now on."""
    sys.stdout, sys.stderr = _escaped(sys.stdout), _escaped(sys.stderr)


def _escaped(stream: TextIO | None) -> TextIO:
    # A stream that the caller has closed is None. For one of ASCII, typer.echo would open another as UTF-8.
    if isinstance(stream, io.TextIOWrapper):
        is_ascii = codecs.lookup(stream.encoding).name == "ascii"
        stream.reconfigure(encoding="utf-8" if is_ascii else None, errors="backslashreplace")
    return cast(TextIO, stream and TerminalStream(stream))
