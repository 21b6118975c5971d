"""Write docs/attempt-ends.md, docs/cli.md and docs/components.md from the code: `make reference`.
tests/test_reference.py keeps them true.
"""

from __future__ import annotations

import inspect
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
import yaml

from shoestring.cli import app
from shoestring.pipelines.kubeflow import compile_all
from shoestring.spending.ends import FINAL_CAUSES, RULES, EndRule

DOCS = Path(__file__).parent
MADE = "<!-- Made by `make reference`; do not edit. -->"
ORDER = ("route", "ingest", "preprocess", "train", "evaluate", "predict", "settle")


def cell(text: str) -> str:
    """Return text for one cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")


def commands(node: Any, words: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Yield every command below `node` with its words, in the order of the help page."""
    children = getattr(node, "commands", None)
    if children:
        if words and node.invoke_without_command:
            yield " ".join(words), node
        for name, child in children.items():
            yield from commands(child, (*words, name))
    else:
        yield " ".join(words), node


def option_row(command: Any, parameter: Any) -> str:
    """Return the table row of one argument or option."""
    if parameter.param_type_name == "argument":
        name = (parameter.metavar or parameter.name or "").strip("[]").upper()
    else:
        named = ", ".join(f"`{each}`" for each in (*parameter.opts, *parameter.secondary_opts))
        value = parameter.display_type(typer.Context(command)).strip("<>")
        name = named if value in ("", "bool") else f"{named} {value.upper()}"
    return f"| {name} | {cell(getattr(parameter, 'help', None) or '')} |"


def cli_page() -> str:
    """Return the reference of the command line as Markdown."""
    tree = typer.main.get_command(app)
    parts = [
        "# Command line",
        MADE,
        "`--json` prints JSON alone on standard output. Exit codes: 0 done, 1 refused or failed for a "
        "stated\n"
        "reason, 2 bad usage. Without a command, `--version` prints the version, and `--install-completion`\n"
        "installs the shell's completion.",
        "Control characters of names and data, such as ANSI codes, are printed escaped, as in `\\u001b`.\n"
        "The output of the command of `exec` is not changed.",
    ]
    groups: dict[str, list[tuple[str, Any]]] = {}
    panels = {name: getattr(each, "rich_help_panel", None) for name, each in tree.commands.items()}
    for name, command in commands(tree, ()):
        panel = getattr(command, "rich_help_panel", None) or panels.get(name.split()[0])
        groups.setdefault(str(panel) if isinstance(panel, str) else "Commands", []).append((name, command))
    for panel, members in groups.items():
        parts.append(f"## {panel}")
        for name, command in members:
            parts.append(f"### `shoestring {name}`")
            parts.append(
                re.sub(r"[ \t]*\n[ \t]*", "\n", inspect.cleandoc(command.help or "")).replace("\b\n", "")
            )
            rows = [option_row(command, each) for each in command.params if each.name != "help"]
            if rows:
                parts.append("\n".join(["| argument or option | |", "|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def kind_of(definition: dict[str, Any]) -> str:
    """Return the type of a component's input or output, as the compiled file names it."""
    if "artifactType" in definition:
        return f"artifact, {definition['artifactType']['schemaTitle']}"
    return str(definition["parameterType"]).lower().replace("number_", "")


def component_part(text: str, name: str) -> str:
    """Return the section of one component."""
    spec = next(iter(yaml.safe_load_all(text)))
    component = spec["components"][f"comp-{name}"]
    description = re.search(r"^# Description: (.*(?:\n#  +.*)*)", text, re.M)
    lines = [f"## `{name}`"]
    if description:
        lines.append(cell(description[1].replace("#", "")))
    image = spec["deploymentSpec"]["executors"][f"exec-{name}"]["container"]["image"]
    replaced = "" if name in ("route", "settle") else " `routed()` replaces it by the image of the decision."
    lines.append(f"Image: `{image}`.{replaced}")
    for title, side in (("input", "inputDefinitions"), ("output", "outputDefinitions")):
        found = component.get(side, {})
        defined = found.get("parameters", {}) | found.get("artifacts", {})
        described = [
            f" {cell(about['description'])} |" if title == "input" else "" for about in defined.values()
        ]
        rows = [
            f"| `{each}` | {kind_of(about)} |{text}"
            for (each, about), text in zip(defined.items(), described, strict=True)
        ]
        head = (
            ["| input | type | |", "|---|---|---|"]
            if title == "input"
            else ["| output | type |", "|---|---|"]
        )
        lines.append("\n".join([*head, *rows]))
    return "\n\n".join(lines)


def pod_rows(executor: dict[str, Any]) -> list[str]:
    """Return what the compiled pipeline gives the pod of one task, a table row each."""
    rows = [
        f"| ConfigMap `{each['configMapName']}` | mounted at `{each['mountPath']}` |"
        for each in executor.get("configMapAsVolume", [])
    ]
    for each in executor.get("secretAsEnv", []):
        rows += [
            f"| Secret `{each['secretName']}`, key `{pair['secretKey']}` | `{pair['envVar']}` |"
            for pair in each["keyToEnv"]
        ]
    rows += [
        f"| `{each['fieldPath']}` of the pod | `{each['name']}` |"
        for each in executor.get("fieldPathAsEnv", [])
    ]
    rows += [f"| an empty folder | `{each['mountPath']}` |" for each in executor.get("emptyDirMounts", [])]
    context = executor.get("securityContext", {})
    if context:
        rows.append(f"| user | {context.get('runAsUser', '')} |")
    labels = executor.get("podMetadata", {}).get("labels", {})
    rows += [f"| label `{name}` | `{value}` |" for name, value in labels.items()]
    return rows


def components_page() -> str:
    """Return the reference of the components as Markdown."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        compile_all(folder)
        texts = {path.stem: path.read_text() for path in (folder / "components").glob("*.yaml")}
        platform = list(yaml.safe_load_all((folder / "train.yaml").read_text()))[1]
    executors = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    names = [*ORDER, *sorted(set(texts) - set(ORDER))]
    parts = [
        "# Components",
        MADE,
        "`shoestring compile --out compiled` writes each component to `compiled/components/NAME.yaml`, and "
        "the\n"
        "pipelines to `compiled/train.yaml` and `compiled/predict.yaml`.",
        *(component_part(texts[name], name) for name in names),
        "## What each pod is given",
        "Kubeflow gives the pods of the compiled pipeline these values; here those of `train`. All are "
        "optional\n"
        "for Kubernetes: a pod that lacks one starts and names it. Argo's template gives its pods the same.",
        "\n".join(["| source | in the pod |", "|---|---|", *pod_rows(executors["exec-train"])]),
    ]
    return "\n\n".join(parts) + "\n"


NEXT_ATTEMPT = {"": "", "memory": "with `memory_growth` times the memory", "silent": "once"}


def next_attempt(rule: EndRule) -> str:
    """Return whether a stage that ended so is tried again."""
    if rule.cause is None:
        return "unless the cause is " + ", ".join(f"`{each}`" for each in FINAL_CAUSES if each)
    return NEXT_ATTEMPT.get(rule.cause, "no" if rule.cause in FINAL_CAUSES else "yes")


def ends_page() -> str:
    """Return the rules of how an attempt ends as Markdown."""
    rows = [
        f"| {cell(rule.when)} | {rule.status} | {'as stated' if rule.cause is None else rule.cause} "
        f"| {rule.pays.text} | {next_attempt(rule)} |"
        for rule in RULES
    ]
    head = ["| what is known | status | cause | it pays | tried again |", "|---|---|---|---|---|"]
    parts = [
        "# How an attempt ends",
        MADE,
        "The first row that holds decides the `status` and `cause` of the attempt's receipt. Everything that "
        "ends or\nsettles an attempt asks these rules, in `spending/ends.py`: its supervisor, the "
        "launcher on a laptop,\nthe reaper, the next route step and the exit step.",
        "\n".join([*head, *rows]),
        "The last sign of life is the end that reaper or launcher recorded. Without one, it is one interval "
        "after\nthe last heartbeat, and then the attempt pays at most its reservation.",
        "Where a node's times of a pod are known, the exit step corrects the dollars by them.\n"
        "[operations.md](operations.md#retries) tells what the next attempt is given.",
    ]
    return "\n\n".join(parts) + "\n"


PAGES = {"attempt-ends.md": ends_page, "cli.md": cli_page, "components.md": components_page}


if __name__ == "__main__":
    for name, page in PAGES.items():
        (DOCS / name).write_text(page())
