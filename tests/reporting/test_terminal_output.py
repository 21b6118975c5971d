"""The console and the stream through which all text for a terminal passes."""

import io

from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from shoestring.reporting.terminal.output import TerminalConsole, TerminalStream

NAME = "[red]n[/x]\x1b[31m\x07"


def test_a_console_escapes_names_and_keeps_its_own_codes() -> None:
    out = io.StringIO()
    console = TerminalConsole(out, force_terminal=True, width=60, color_system="standard")
    table = Table(NAME, box=None, pad_edge=False)
    table.add_row(NAME, style="yellow")
    for shown in (NAME, Text(NAME, "bold"), table):
        console.print(shown)
    lines = out.getvalue().splitlines()
    assert lines[0] == r"[red]n[/x]\u001b[31m\u0007"
    assert lines[1].startswith("\x1b[1m[red]n[/x]\\u001b[31m") and lines[1].endswith("\x1b[0m")
    assert lines[3].startswith("\x1b[33m[red]n[/x]\\u001b[31m\\u0007")


def test_a_console_on_an_escaping_stream_moves_the_cursor() -> None:
    below = io.StringIO()
    stream = TerminalStream(below)
    with Progress(console=TerminalConsole(stream, force_terminal=True), transient=True) as progress:
        progress.add_task("reading")
        print("a\x1b[31m", file=stream)
    assert "\x1b[2K" in below.getvalue() and "\\u001b[31m\n" in below.getvalue()
    assert stream.writelines(["\x07", "\n"]) is None and below.getvalue().endswith("\\u0007\n")
    assert not stream.isatty()
