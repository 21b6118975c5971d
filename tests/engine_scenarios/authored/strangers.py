"""Components of another author after `ingest`: those that end well, one of them with an artifact, one that
fails, and one that never ends.
"""

from kfp import dsl
from with_exit_step import with_exit_step

from shoestring.components.ingest import ingest
from shoestring.config.world import IMAGES
from shoestring.core.types import Need
from shoestring.pipelines.routed import RunParameters, routed
from shoestring.stages import ingest as ingest_stage

STAGE, READER = "theirs", "reader"
CHAIN = (ingest_stage.NEED, Need(stage=STAGE, setup_s=2.0))
READ_ON = (*CHAIN, Need(stage=READER, setup_s=2.0))


IMAGE = IMAGES["base"]
"""Any image with a shell and Python would do, for the Python component also with KFP: the components use
nothing else of it.
"""


@dsl.container_component
def announce(text: str, said: dsl.OutputPath(str)):
    return dsl.ContainerSpec(IMAGE, ["sh", "-c", 'printf %s "$0" | tee "$1"'], [text, said])


@dsl.container_component
def hear(word: str, key: str, times: int):
    return dsl.ContainerSpec(IMAGE, ["sh", "-c", 'test "$0" = "$1" && test "$2" = 2'], [word, key, times])


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def write_table(text: str, table: dsl.Output[dsl.Dataset]):
    from pathlib import Path

    Path(table.path).write_text(text)
    table.metadata["rows"] = 1


@dsl.container_component
def read_table(table: dsl.Input[dsl.Dataset], key: str):
    return dsl.ContainerSpec(IMAGE, ["sh", "-c", 'test "$(cat "$0")" = "$1"'], [table.path, key])


@dsl.container_component
def fail(text: str):
    return dsl.ContainerSpec(IMAGE, ["sh", "-c", 'echo "this component fails, given $0"; exit 3'], [text])


@dsl.container_component
def sleep(text: str):
    return dsl.ContainerSpec(IMAGE, ["sleep"], ["36000"])


def heard(run: RunParameters) -> None:
    """A second component reads the output of the first."""
    key = routed(ingest, READ_ON, run).outputs["Output"]
    said = routed(announce, READ_ON[1:], run, upstream=key, text=key).outputs["said"]
    routed(hear, READ_ON[2:], run, upstream=key, word=said, key=key, times=2)


def table_read(run: RunParameters) -> None:
    """A second component reads the artifact of the first."""
    key = routed(ingest, READ_ON, run).outputs["Output"]
    table = routed(write_table, READ_ON[1:], run, upstream=key, text=key).outputs["table"]
    routed(read_table, READ_ON[2:], run, upstream=key, table=table, key=key)


def after_ingest(name: str, component):
    """Return a pipeline of `ingest` and this component."""

    def route_stages(run: RunParameters) -> None:
        key = routed(ingest, CHAIN, run).outputs["Output"]
        routed(component, CHAIN[1:], run, upstream=key, text=key)

    return with_exit_step(name, route_stages)


good = with_exit_step("scenario-good", heard)
artifacts = with_exit_step("scenario-artifacts", table_read)
broken = after_ingest("scenario-broken", fail)
endless = after_ingest("scenario-endless", sleep)
