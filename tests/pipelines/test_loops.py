"""The items of a loop would share one reservation, so a stage in a loop is refused."""

from pathlib import Path
from typing import Any

import pytest
from kfp import compiler, dsl

from shoestring.cli.authoring.upload import read_pipeline
from shoestring.core.errors import UsageError
from shoestring.core.types import Need
from shoestring.pipelines.kubeflow import write
from shoestring.pipelines.routed import RunParameters, routed, settle_step

RUN = RunParameters(world="", run_id="", recipe="", budget_usd="", deadline_s=0.0, seed=0)
FIRST = (Need(stage="first"),)


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def echo(text: str) -> str:
    return text


@dsl.pipeline(name="nested")
def nested(text: str) -> None:
    routed(echo, FIRST, RUN, text=text)


def nested_in(*, loop: bool) -> Any:
    @dsl.pipeline(name="outer")
    def outer(text: str = "a") -> None:
        with dsl.ExitHandler(settle_step(RUN), name="spend"):
            if loop:
                with dsl.ParallelFor(["x", "y"]) as item:
                    nested(text=item)
            else:
                nested(text=text)

    return outer


@pytest.mark.parametrize("in_condition", [False, True])
def test_a_stage_in_a_loop_is_refused(in_condition: bool) -> None:
    with pytest.raises(UsageError, match=r"first is inside dsl.ParallelFor, .* share one reservation"):

        @dsl.pipeline(name="outer")
        def outer(text: str = "a") -> None:
            with dsl.ParallelFor(["x", "y"]) as item:
                if in_condition:
                    with dsl.If(text == "a"):
                        routed(echo, FIRST, RUN, text=item)
                routed(echo, FIRST, RUN, text=item)


def test_a_nested_pipeline_with_a_stage_is_neither_compiled_nor_uploaded_in_a_loop(tmp_path: Path) -> None:
    sentence = r"route is a router inside for-loop-\d, whose items would share"
    with pytest.raises(UsageError, match=sentence):
        write(nested_in(loop=True), tmp_path / "looped.yaml")
    # KFP's own compiler knows nothing of it.
    compiler.Compiler().compile(nested_in(loop=True), str(tmp_path / "looped.yaml"))
    with pytest.raises(UsageError, match=sentence):
        read_pipeline(tmp_path / "looped.yaml")
    assert read_pipeline(write(nested_in(loop=False), tmp_path / "once.yaml")) == ("outer", False)
