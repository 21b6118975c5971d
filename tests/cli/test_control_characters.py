"""Names and data of others have no effect on the terminal: their control characters are printed escaped."""

from __future__ import annotations

import os
import pty
import random
import re
import subprocess
import termios
from dataclasses import dataclass
from pathlib import Path

import pytest
from commands import BuildOnce, Ran, command, shoestring

COLUMNS = ("a\x1b[31m\x07", "[red]b[/red]", "c\u202e\x7f", "n\nl")
LABEL = "label\x1b[5m\x07"
CLASSES = ("yes\x1b[2J", "no\x9b31m\u2028")
FOLDER, FILE, RECIPE = "in\x1b]0;own\x07", "rows\x1b[31m\x07.csv", "recipe\x1b[35m\r.yaml"
TEXT = r"""
name: odd
source: {rows: {path: "rows\x1b[31m\x07.csv"}}
target: {column: "label\x1b[5m\x07"}
budget_usd: "0.0025"
deadline_s: 300
train: {max_epochs: 1}
"""
ESCAPED = re.compile(r"\\(u00|x)1b")
RAW = re.compile("[^\n\t -~\u00a0-\u2027\u202f-\u2065\u206a-\U0010ffff]")
STYLES = re.compile("\x1b\\[([0-9;]*[mAK]|\\?25[lh])|\r(?=\n|\x1b)")


@dataclass(frozen=True)
class Odd:
    """A data file, its recipe, and the options of a world. `{data}` of a command line is the file's path."""

    folder: Path
    world: Path
    run_id: str = ""

    def words(self, line: str) -> list[str]:
        inside = self.folder / FOLDER
        found = {"data": inside / FILE, "recipe": inside / RECIPE, "in": inside, "run": self.run_id}
        found |= {"label": LABEL, "world": f"--world {self.world} --store {self.folder / 'store'}"}
        return [piece for word in line.split() for piece in self._pieces(word, found)]

    @staticmethod
    def _pieces(word: str, found: dict[str, object]) -> list[str]:
        text = word.format_map(found)
        return text.split() if word == "{world}" else [text]

    def run(self, line: str) -> Ran:
        return shoestring(*self.words(line))


def write_data(folder: Path) -> None:
    chance = random.Random(7)
    lines = [",".join(f'"{name}"' for name in (*COLUMNS, LABEL))]
    for _ in range(600):
        amount = chance.random()
        words = (chance.choice(["[bold]u", "v"]), chance.choice(["p\x1b[2J", "q"]), chance.randint(1, 9))
        label = CLASSES[amount + 0.3 * chance.random() > 0.6]
        lines.append(",".join(f'"{each}"' for each in (f"{amount:.4f}", *words, label)))
    lines[9] = f'"zz\x1b[1m","v","q",5,"{CLASSES[0]}"'
    (folder / FOLDER).mkdir()
    (folder / FOLDER / FILE).write_text("\n".join(lines) + "\n")
    (folder / FOLDER / RECIPE).write_text(TEXT)


@pytest.fixture(scope="module")
def odd(build_once: BuildOnce, laptop: Path) -> Odd:
    return Odd(build_once("odd", write_data), laptop)


@pytest.fixture(scope="module")
def odd_run(build_once: BuildOnce, laptop: Path) -> Odd:
    def fill(folder: Path) -> None:
        write_data(folder)
        ran = Odd(folder, laptop).run("run {recipe} {world} --seed 7 --out {in}/run")
        assert ran.code == 0, ran.err
        (folder / "out.txt").write_text(ran.out)
        (folder / "err.txt").write_text(ran.err)

    folder = build_once("odd_run", fill)
    return Odd(folder, laptop, (folder / "out.txt").read_text().split(":")[0])


def check_escaped(ran: Ran) -> None:
    for text in (ran.out, ran.err):
        assert not RAW.search(text), ascii(text)
        assert "Traceback" not in text, ascii(text)
    assert ESCAPED.search(ran.out + ran.err), ascii(ran)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("init {data} --target {label} --out {in}/made.yaml", 0),
        ("init {data} --target {label} --out {recipe}", 1),
        ("init {data} --target none", 2),
        ("init {in}/none.csv", 2),
        ("data {recipe}", 0),
        ("data show {in}/none.yaml", 2),
        ("data why {recipe}\x1b[31m {world}", 2),
        ("data verify {in}/none.yaml {world}", 2),
        ("plan {recipe} {world}", 0),
        ("plan {recipe} --world {in}/none.yaml", 2),
        ("run {in}/none.yaml {world}", 2),
        ("exec --budget 0.01 {world} -- none\x1b[31m", 2),
        ("world init --out {in}/world.yaml --store {in}/store --force", 0),
        ("prices show --world {in}/none", 2),
        ("simulate {in}/none.yaml", 2),
        ("new odd --into {data}", 2),
        ("{label}", 2),
        ("plan --{label}", 2),
    ],
)
def test_a_command_prints_names_escaped(odd: Odd, line: str, code: int) -> None:
    ran = odd.run(line)
    assert ran.code == code, ran
    check_escaped(ran)


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "data lineage {run} {world}",
        "predict {run} {data} --out {in}/predicted.csv {world}",
        "report {run} --out {in}/report {world}",
        "export onnx {run} --out {in}/model.onnx {world}",
    ],
)
def test_a_command_about_a_run_prints_names_escaped(odd_run: Odd, line: str) -> None:
    ran = odd_run.run(line)
    assert ran.code == 0, ran
    check_escaped(ran)


@pytest.mark.slow
def test_a_run_prints_names_escaped_and_its_columns_on_one_line(odd_run: Odd) -> None:
    out, err = ((odd_run.folder / name).read_text() for name in ("out.txt", "err.txt"))
    check_escaped(Ran(0, out, err))
    assert r"target label\u001b[5m\u0007: binary" in err


def test_a_table_of_names_has_one_line_for_each(odd: Odd) -> None:
    lines = odd.run("data {recipe}").out.splitlines()
    table = lines[lines.index("Columns") + 1 :][:6]
    assert [line[:22].rstrip() for line in table] == [
        "  column",
        r"  a\u001b[31m\u0007",
        "  [red]b[/red]",
        r"  c\u202e\u007f",
        r"  n\nl",
        r"  label\u001b[5m\u0007",
    ]


def test_json_is_escaped_and_holds_the_names_as_they_are(odd: Odd) -> None:
    ran = odd.run("data {recipe} --json")
    assert not RAW.search(ran.out)
    assert [each["name"] for each in ran.json["columns"]] == [*COLUMNS, LABEL]
    assert {each["name"] for each in ran.json["target"]["classes"]} == set(CLASSES)


def on_terminal(words: list[str]) -> str:
    """Return what a command writes to a terminal."""
    master, slave = pty.openpty()
    settings = termios.tcgetattr(slave)
    settings[1] &= ~termios.OPOST
    termios.tcsetattr(slave, termios.TCSANOW, settings)
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "200"}
    streams = {"stdin": slave, "stdout": slave, "stderr": slave}
    with subprocess.Popen(command(*words), env=environment, **streams) as process:
        os.close(slave)
        shown = b""
        try:
            while found := os.read(master, 1 << 16):
                shown += found
        except OSError:
            # Linux ends the output of a terminal that nobody has open like this.
            pass
        process.wait(60)
    os.close(master)
    return shown.decode()


def test_a_terminal_shows_names_escaped_and_the_styles_of_the_program(odd: Odd) -> None:
    shown = on_terminal(odd.words("data {recipe}"))
    assert "\x1b[1mcolumn" in shown and "\x1b[33m" in shown
    check_escaped(Ran(0, STYLES.sub("", shown), ""))
    assert r"\u001b[0m" not in shown and "[red]b[/red]" in shown


def test_a_terminal_shows_an_error_escaped(odd: Odd) -> None:
    check_escaped(Ran(2, on_terminal(odd.words("init {data} --target none")), ""))


def test_the_output_of_a_users_command_is_not_changed(odd: Odd) -> None:
    code = r"printf '\033[31mred\a\n'; exit 3"
    words = odd.words("exec --budget 0.01 {world} -- sh -c CODE \x1b[32m")
    ran = shoestring(*[code if word == "CODE" else word for word in words])
    assert (ran.code, ran.out) == (3, "\x1b[31mred\x07\n")
    assert not RAW.search(ran.err)


def test_a_name_that_is_no_text_can_be_printed_to_ascii(odd: Odd, tmp_path: Path) -> None:
    variables = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONUTF8": "0"}
    name = b"\xff\x1b[31m\xc3\xa9.yaml".decode(errors="surrogateescape")
    words = command(*odd.words("init {data} --target {label} --out"), str(tmp_path / name))
    ran = subprocess.run(words, env=os.environ | variables, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    check_escaped(Ran(0, ran.stdout, ran.stderr))
    assert r"\udcff\u001b[31m" in ran.stdout
