"""`shoestring exec` runs any command inside a budget: its end, its books, and what it finds around it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from exec_runs import COUNT, IGNORE, MICRO_USD, PYTHON, READER, WAIT, Exec, is_alive

from shoestring.commands.progress_file import CommandProgress
from shoestring.core import store_layout
from shoestring.core.record import record_bytes
from shoestring.data.recipe_files import find_recipe
from shoestring.data.run_records import RunRecord, open_run
from shoestring.reporting import number_text
from shoestring.reporting.charges import read_charges
from shoestring.spending.budget_file import BudgetFile


@pytest.fixture
def on(tmp_path: Path, laptop: Path) -> Iterator[Exec]:
    made = Exec(tmp_path, laptop)
    yield made
    made.close()


@pytest.fixture
def little_usd(on: Exec) -> str:
    """A budget of seven seconds of all cores."""
    assert on.short("1", "true") == 0
    return f"{on.receipts()[-1].prices[0].usd_per_hour * 7 / 3600:.6f}"


def test_a_command_that_ends_by_itself_passes_its_output_and_its_exit_code(on: Exec) -> None:
    assert on.run("--budget", "0.05", "--", "bash", "-c", "echo to stdout; echo to stderr >&2; exit 7") == 7
    assert on.out == "to stdout\n"
    assert "to stderr" in on.err and "failed" in on.err and "exit code 7" in on.err
    (receipt,) = on.receipts()
    assert (receipt.status, receipt.exit_code) == ("failed", 7)
    run = open_run(on.store, on.run_id)
    assert run.record.recipe is None and run.record.command is not None
    assert run.record.command.argv[0] == "bash" and run.record.job.name == "bash"
    assert run.record.job.owner


def test_a_command_pays_for_its_seconds_and_the_rest_is_released(on: Exec) -> None:
    assert on.run("--budget", "0.05", "--name", "nap", "--", "sleep", "1") == 0
    (receipt,) = on.receipts()
    assert receipt.status == "done" and receipt.seconds > 1
    assert on.wall_usd() / Decimal(str(on.wall_s)) < receipt.spent_usd < on.wall_usd() + MICRO_USD
    assert on.run_id.startswith("nap-")


def test_a_command_that_keeps_its_files_elsewhere_learns_what_a_resumed_run_finds(
    on: Exec, little_usd: str
) -> None:
    script = on.script("plain.py", "open('model.pt', 'w').write('weights')\n" + WAIT)
    assert on.short(little_usd, PYTHON, script) == 1
    assert "lost" not in on.err and on.wait_for("model.pt") == "weights"
    assert (
        "it left no file in $SHOESTRING_CHECKPOINTS and did not read $SHOESTRING_BUDGET "
        "(docs/own-training.md shows both): a resumed run starts it from its beginning, with what it wrote "
        "elsewhere as it is"
    ) in on.err
    assert f"resume it with more money: shoestring exec --resume {on.run_id} --budget USD" in on.err
    receipt = on.receipts()[-1]
    assert (receipt.status, receipt.cause, receipt.exit_code) == ("stopped", "money", None)
    assert receipt.spent_usd <= Decimal(little_usd) and on.wall_usd() <= Decimal(little_usd)
    assert not is_alive(int(on.wait_for("pid")))


@pytest.mark.parametrize("argv", [(PYTHON, "ignore.py"), ("bash", "-c", f"{PYTHON} ignore.py; echo after")])
def test_a_command_that_ignores_term_is_killed_after_its_grace_and_inside_its_budget(
    on: Exec, little_usd: str, argv: tuple[str, ...]
) -> None:
    on.script("ignore.py", IGNORE)
    assert on.short(little_usd, *argv) == 1
    assert on.wall_usd() <= Decimal(little_usd)
    assert not is_alive(int(on.wait_for("pid")))


def test_term_reaches_what_a_shell_script_runs(on: Exec, little_usd: str) -> None:
    on.script(
        "save.py",
        "import signal, sys, time, pathlib\n"
        "def save(*_): pathlib.Path('saved').write_text('yes'); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\nwhile True: time.sleep(0.05)\n",
    )
    assert on.short(little_usd, "bash", "-c", f"{PYTHON} save.py") == 1
    assert on.wait_for("saved") == "yes"


def test_a_script_in_another_language_reads_its_budget_and_stops_by_itself(on: Exec, little_usd: str) -> None:
    assert on.short(little_usd, "bash", on.script("reader.sh", READER)) == 0, on.err
    last = BudgetFile.model_validate(on.saved("budget.json"))
    assert last.should_stop and last.seconds_left < 1 and last.share_gone > 0.8
    receipt = on.receipts()[-1]
    assert receipt.status == "done" and receipt.outcome is not None
    assert receipt.outcome.samples > 3 and receipt.outcome.metrics == {"loss": 0.25}
    assert receipt.spent_usd <= Decimal(little_usd)


def test_a_script_that_writes_its_results_when_sigterm_arrives_is_done(on: Exec, little_usd: str) -> None:
    slow = "trap '' TERM\n" + READER.replace("then exit 0", "then sleep 3; echo wrote > results; exit 0")
    usd = 2 * Decimal(little_usd)
    words = ("--budget", f"{usd:.6f}", "--grace", "4", "--", "bash")
    assert on.run(*words, on.script("slow.sh", slow)) == 0, on.err
    assert on.wait_for("results") == "wrote\n"
    receipt = on.receipts()[-1]
    assert (receipt.status, receipt.reason) == ("done", "") and receipt.outcome is not None
    assert receipt.outcome.stop_reason == "it stopped by itself when its budget was used up"
    assert receipt.spent_usd <= usd and on.wall_usd() <= usd


def test_a_resumed_command_finds_its_files_and_its_share_goes_on(on: Exec, little_usd: str) -> None:
    script = on.script("count.py", COUNT)
    assert on.short(little_usd, PYTHON, script) == 1
    assert "it resumes from its" in on.err and "from its beginning" not in on.err
    before = int((on.store.fetch(f"{store_layout.checkpoints(on.run_id)}/command-1-0")).read_text())
    more = f"{2 * Decimal(little_usd):.6f}"
    assert on.run("--resume", on.run_id, "--budget", more, "--", PYTHON, script) == 1
    assert int(on.wait_for("began")) >= before > 10
    first, second = on.receipts()[-2:]
    assert (first.attempt, second.attempt) == (1, 2) and first.run_id == second.run_id
    assert first.spent_usd + second.spent_usd <= Decimal(more)


def test_a_resumed_run_takes_another_command_and_keeps_it(on: Exec) -> None:
    on.script("say.sh", 'echo "$1 $PWD"; test "$1" = 3\n')
    assert on.run("--budget", "0.05", "--name", "say", "--", "sh", "say.sh", "1") == 1
    assert open_run(on.store, on.run_id).start.command is None
    assert on.run("--resume", on.run_id, "--grace", "2", "--cores", "1", "--", "sh", "say.sh", "2") == 1
    assert on.out == f"2 {on.folder}\n"
    assert on.run("--resume", on.run_id) == 1
    assert on.out == f"2 {on.folder}\n"
    run = open_run(on.store, on.run_id)
    command = run.record.command
    assert [start.command for start in run.starts] == [None, command, None]
    assert command is not None and (command.text, command.grace_s, command.cores) == ("sh say.sh 2", 2, 1)
    runs = [charge.run for charge in read_charges(on.store)[0]]
    texts = [run.command.text for run in runs if run and run.command]
    assert texts == ["sh say.sh 1"] * 2 + ["sh say.sh 2"] * 4
    assert "<code>sh say.sh 2</code>" in on.store.fetch(store_layout.report(on.run_id)).read_text()
    (listed,) = on.listed()
    assert (listed["command"], listed["starts"]) == ("sh say.sh 2", 3)
    assert on.run("--resume", on.run_id, "--", "sh", "say.sh", "3") == 0
    assert on.run("--resume", on.run_id) == 0 and "is done" in on.err and on.out == ""
    assert on.run("--resume", on.run_id, "--", "sh", "say.sh", "4") == 1 and on.out.startswith("4 ")
    assert on.run("--resume", on.run_id, "--campaign", "c") == 2 and "leave --name and --campaign" in on.err


def test_the_latest_run_is_the_newest_one_of_a_command(on: Exec) -> None:
    assert on.run("--resume", "no-such-run") == 2
    assert on.run("--resume", "latest") == 2
    assert "this store has no run of a command: begin one with `shoestring exec --budget USD" in on.err
    assert on.run("--budget", "0.05", "--name", "z", "--", "false") == 1
    assert on.run("--budget", "0.05", "--name", "a", "--", "false") == 1
    newest = RunRecord.model_validate_json(on.store.fetch(store_layout.run_record(on.run_id)).read_bytes())
    later = {"run_id": "later", "created_at": newest.created_at + timedelta(hours=1)}
    job = {"recipe": find_recipe("flights"), "recipe_sha256": "aa", "command": None}
    on.store.put(store_layout.run_record("later"), record_bytes(newest.model_copy(update=later | job)))
    assert on.run("--resume", "latest", "--", "true") == 0, on.err
    assert on.run_id.startswith("a-") and len(on.receipts()) == 3


def test_a_budget_below_the_grace_is_refused_and_the_smallest_that_is_named_is_enough(on: Exec) -> None:
    assert on.run("--budget", "0.000001", "--grace", "20", "--", "true") == 1
    assert "is too small" in on.err and "Traceback" not in on.err
    smallest = on.err.split("the smallest budget that is enough is $")[1].split()[0].rstrip(";\n")
    kept = on.err.split("\n  $")[-1].split()[0]
    assert Decimal(smallest) / 2 < Decimal(kept) < Decimal(smallest)
    assert f"${kept} of it is kept back for the grace of 20 s: a shorter --grace needs less" in on.err
    less_usd = f"{Decimal(smallest) - Decimal(kept) / 2:.6f}"
    assert on.run("--budget", less_usd, "--grace", "5", "--", "true") == 0
    assert on.run("--budget", smallest, "--grace", "20", "--", "true") == 0 and "used up" not in on.err
    assert Decimal(smallest) < on.receipts()[-1].prices[0].usd_per_hour * 30 / 3600
    less = f"{Decimal(smallest) - Decimal('0.000001')}"
    assert on.run("--budget", less, "--grace", "20", "--", "true") == 1
    assert "a shorter --grace needs less" in on.err
    assert [each.status for each in on.receipts()] == ["done", "done"]
    assert on.run("--budget", "0.000001", "--grace", "0.5", "--", "true") == 1
    assert "is too small" in on.err and "--grace" not in on.err


def test_a_deadline_ends_a_command_before_its_money_does(on: Exec) -> None:
    script = on.script("ignore.py", IGNORE)
    assert on.run("--budget", "0.05", "--deadline", "7", "--grace", "2", "--", PYTHON, script) == 1
    # It uses all of its grace.
    assert on.receipts()[-1].status == "stopped" and 5.5 < on.wall_s < 8
    again = f"resume it with a later deadline: shoestring exec --resume {on.run_id} --deadline SECONDS"
    assert again in on.err and "more money" not in on.err


def test_a_deadline_within_the_grace_is_refused_with_the_smallest_one(on: Exec) -> None:
    assert on.run("--budget", "0.05", "--deadline", "20", "--", "true") == 1
    assert "a deadline of 20 s is too short: 30 s of it are kept back for the grace" in on.err
    smallest = on.err.split("the smallest deadline is ")[1].split()[0]
    assert on.run("--budget", "0.05", "--deadline", smallest, "--", "true") == 0
    assert len(on.receipts()) == 1


def test_a_command_that_failed_is_resumed_without_more_money_once_it_is_fixed(on: Exec) -> None:
    script = on.script("train.sh", "test -e fixed || exit 3\n")
    assert on.run("--budget", "0.05", "--", "sh", script) == 3
    assert f"fix it, then resume it: shoestring exec --resume {on.run_id} --world" in on.err
    left = Decimal("0.05") - on.receipts()[-1].spent_usd
    assert f"${left} of its budget is left: add --budget USD only if that is too little" in on.err
    assert "more money" not in on.err
    on.script("fixed", "")
    assert on.run("--resume", on.run_id) == 0, on.err


def test_the_list_of_runs_shows_the_seconds_and_dollars_of_the_last_line_which_are_paid(on: Exec) -> None:
    assert on.run("--budget", "0.05", "--", "sh", on.script("once.sh", "mkdir ran && exit 3\n")) == 3
    for again in (False, True):
        assert not again or on.run("--resume", on.run_id) == 1
        (listed,) = on.listed()
        end = f"${listed['spent_usd']} of $0.050000 spent in {number_text.duration(listed['wall_s'])}\n"
        assert end in on.err
        paid = [(each.finished_at - each.started_at).total_seconds() for each in on.receipts()]
        assert len(paid) == 1 + again and listed["wall_s"] >= round(sum(paid), 3)
        assert Decimal(listed["spent_usd"]) == sum(each.spent_usd for each in on.receipts())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_was_interrupted_is_resumed_as_it_is(on: Exec, number: signal.Signals) -> None:
    process = on.start("--budget", "0.05", "--", PYTHON, on.script("wait.py", WAIT))
    os.kill(int(on.wait_for("pid")), number)
    _, err = process.communicate(timeout=40)
    assert process.returncode == 128 + number
    assert f"\nresume it: shoestring exec --resume {on.run_id} --world" in err
    assert "more money" not in err and "fix it" not in err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--budget", "0.05"), "name a command"),
        (("--", "true"), "--budget is missing"),
        (("--budget", "0", "--", "true"), "--budget"),
        (("--budget", "0.05", "--", "no-such-program"), "there is no such program"),
        (("--budget", "0.05", "--", "./plain.sh"), "sh ./plain.sh"),
        (("--budget", "0.05", "--name", "a b", "--", "true"), "name"),
    ],
)
def test_a_wrong_command_line_costs_nothing(on: Exec, words: tuple[str, ...], why: str) -> None:
    (on.folder / on.script("plain.sh", "exit 0\n")).chmod(0o755)
    assert on.run(*words) == 2
    assert why in on.err and list(on.store.list("")) == []


def test_more_cores_than_the_machine_has_are_refused_with_the_pools_there_are(on: Exec) -> None:
    assert on.run("--budget", "0.05", "--cores", "4096", "--", "true") == 1
    assert "no pool of this world has 4096 cores" in on.err and "cpu-1 (1 cores)" in on.err


def test_json_is_the_only_output_on_stdout(on: Exec) -> None:
    assert on.run("--budget", "0.05", "--json", "--cores", "1", "--", "echo", "hello") == 0
    found = json.loads(on.out)
    assert (found["status"], found["pool"], found["stage"]) == ("done", "cpu-1", "command")
    assert "hello" in on.err


@pytest.mark.parametrize("text", ["{{{", '{"samples": -1}', '{"samples": 1, "more": 2}', ""])
def test_garbage_in_the_progress_file_changes_nothing(on: Exec, text: str) -> None:
    assert on.run("--budget", "0.05", "--", "bash", "-c", f"echo '{text}' > $SHOESTRING_PROGRESS") == 0
    assert on.receipts()[-1].status == "done"
    assert CommandProgress.model_validate_json('{"samples": 3}').total is None
