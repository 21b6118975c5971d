"""An author's package, as the authoring page describes it, and the pipelines of the scenarios.

python tests/engine_scenarios/own_package.py FOLDER [REGISTRY] writes the package for the image that the
scenarios of an author's own stage need.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from authoring_page import write_block
from commands import shoestring
from documented import blocks
from engine_scenarios.engine import Pipeline

from shoestring.config.world import REGISTRY

# As the NEED and the component of the authoring page name it.
OWN_IMAGE = "dedupe_rows:0.1.0"
AUTHORED = Path(__file__).parent / "authored"


def own_image(registry: str) -> str:
    """Return the full name of the package's image; `registry`: empty for an image that nodes have."""
    return f"{registry.rstrip('/')}/{OWN_IMAGE}" if registry else OWN_IMAGE


def write_package(folder: Path, registry: str = "") -> Path:
    """Write the package below a folder, and return its own folder, which has a Dockerfile."""
    package = folder / "dedupe-rows"
    ran = shoestring("new", "dedupe", "--into", package)
    assert ran.code == 0, ran.err
    for block in blocks():
        if block.text.startswith("# dedupe_rows/stage.py"):
            write_block(package, block.text)
    pipeline = package / "dedupe_rows" / "pipeline.py"
    pipeline.write_text(pipeline.read_text().replace("own_stage(stage)", 'own_stage(stage, by=["origin"])'))
    for name in ("dedupe_rows/stage.py", "dedupe_rows/component.py"):
        file = package / name
        file.write_text(file.read_text().replace(f'"{OWN_IMAGE}"', f'"{own_image(registry)}"'))
    if registry:
        dockerfile = package / "Dockerfile"
        dockerfile.write_text(dockerfile.read_text().replace(f"FROM {REGISTRY}/", f"FROM {registry}/"))
    return package


def own_stage_pipeline(package: Path) -> Pipeline:
    return Pipeline("dedupe_rows.pipeline:pipeline", package, "dedupe-rows")


def forked_pipeline(package: Path) -> Pipeline:
    return Pipeline("forked:pipeline", package, "scenario-forked")


def strangers_pipeline(name: str) -> Pipeline:
    """Return the pipeline `good`, `artifacts`, `broken` or `endless`."""
    return Pipeline(f"strangers:{name}", AUTHORED, f"scenario-{name}")


def main() -> None:
    folder, *registry = sys.argv[1:]
    Path(folder).mkdir(parents=True, exist_ok=True)
    print(write_package(Path(folder).resolve(), *registry))


if __name__ == "__main__":
    main()
