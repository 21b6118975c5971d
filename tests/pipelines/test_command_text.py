"""The words of a command with a meter and the text of its output, as Argo and Kubeflow pass them."""

import re
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Optional

import pytest
import yaml
from argo_by_hand import ArgoByHand
from commands import command
from kfp import dsl
from kfp.local.placeholder_utils import replace_placeholders

from shoestring.data.job import Job
from shoestring.pipelines.argo import workflow_template
from shoestring.pipelines.kubeflow import write
from shoestring.pipelines.routed import RunParameters, routed, settle_step
from shoestring.runtime import route
from shoestring.stages.command import command_need

JOB = Job(name="quoting", budget_usd=Decimal("0.05"))
WRITE = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text(''.join(sys.argv[2:]))"
QUOTED = ("{{workflow.name}}", "{{=1+1}}", "{{{x")
WRITTEN = "".join(QUOTED) + "{{0.91}}}<0.91{{>[]-\n"


@dsl.container_component
def quote(  # type: ignore[no-untyped-def]
    data: str,
    text: dsl.OutputPath(str),  # type: ignore[valid-type]
    unused: Optional[str] = None,  # noqa: UP045
):
    words = [*QUOTED, f"{{{{{data}}}}}}}", dsl.ConcatPlaceholder(["<", data, "{{>"])]
    words += [dsl.IfPresentPlaceholder("data", then=["[", "]"], else_=["!"])]
    words += [dsl.IfPresentPlaceholder("unused", then=["!", unused], else_=["-"]), "\n\n"]
    return dsl.ContainerSpec("me/quote:1", [sys.executable, "-c", WRITE], [text, *words])


IDS = ("pipeline", "task", "root", "id")
"""What KFP's other placeholders are replaced by."""
QUOTE = command_need("quote", memory_gb=0.2, grace_s=2.5)


@dsl.pipeline(name="quoting")
def quoting() -> None:
    run = RunParameters("", "", JOB, "", 0.0, -1)
    with dsl.ExitHandler(settle_step(run), name="spend"):
        routed(quote, (QUOTE,), run, metered=True, data="0.91")


@pytest.mark.slow
def test_a_command_with_a_meter_gets_its_braces_and_leaves_one_newline_to_argo(
    laptop: Path, tmp_path: Path
) -> None:
    hand = ArgoByHand(workflow_template(quoting), laptop, tmp_path.name, tmp_path)
    assert (ran := hand.route("quote")).code == 0, ran.err
    assert (ran := hand.run(hand.stage_line("quote"))).code == 0, ran.err
    hand.finish("quote")
    assert hand.outputs["quote"] == {"text": WRITTEN}


@pytest.mark.slow
def test_a_command_with_a_meter_gets_its_braces_and_loses_one_newline_on_kubeflow(
    laptop: Path, tmp_path: Path
) -> None:
    """Kubeflow passes the text of the file on as it is."""
    spec = next(yaml.safe_load_all(write(quoting, tmp_path / "quoting.yaml").read_text()))
    (group,) = (each["dag"]["tasks"] for each in spec["components"].values() if "dag" in each)
    needs = group["route"]["inputs"]["parameters"]["needs"]["runtimeValue"]["constant"]
    at, out = (str(tmp_path / "decision"), str(tmp_path / "page")), tmp_path / "text"
    decided = route(needs, str(laptop), tmp_path.name, "", "", 0.0, -1, "", "", *at)
    given = {"world": str(laptop), "run_id": tmp_path.name, "job_id": "", "data": "0.91"}
    given |= {"decision_key": decided["decision_key"]}
    args = spec["deploymentSpec"]["executors"]["exec-quote"]["container"]["args"]
    kfp = re.compile(r"\{\{\$\.\w+\.parameters\['(\w+)'\](?:\.output_file)?\}\}")
    assert not [word for word in (needs, *args) if "{{" in kfp.sub("", word)]
    outputs = {"parameters": {"text": {"outputFile": str(out)}}, "outputFile": ""}
    values = {"inputs": {"parameterValues": given}, "outputs": outputs}
    subprocess.run([*command(), *replace_placeholders(args, values, *IDS)], cwd=tmp_path, check=True)
    assert out.read_text() == WRITTEN
