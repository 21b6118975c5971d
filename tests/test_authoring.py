"""Follow the authoring page: write its files and run its commands, in its order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from authoring_page import PAGE, followed


@pytest.mark.slow
def test_the_authoring_page_leads_from_shoestring_new_to_a_pipeline_that_routes_the_stage(
    tmp_path: Path,
) -> None:
    package = followed(tmp_path)
    drawn = re.search(r"^dedupe-rows/\n((?:  .*\n)+)", PAGE, re.M)
    assert drawn
    assert all((package / line.split()[0]).exists() for line in drawn.group(1).splitlines())
    pipeline, platform = yaml.safe_load_all((package / "compiled" / "announced.yaml").read_text())
    theirs = pipeline["deploymentSpec"]["executors"]["exec-announce"]["container"]
    assert theirs["image"] == "python:3.11"
    assert "pipelinechannel--route-2-cpu" in theirs["resources"]["resourceCpuLimit"]
    assert set(platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]["exec-announce"]) == {
        "nodeAffinity",
        "nodeSelector",
        "podMetadata",
        "tolerations",
    }
