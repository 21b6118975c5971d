"""The import closure of a stage: which changed line makes a cached result useless, and which does not."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import shoestring
from shoestring.core.errors import UsageError
from shoestring.data.storage.import_closure import (
    ImportClosure,
    import_closure,
    library_versions,
    sources_read_once,
)
from shoestring.data.storage.module_imports import ImportReader

STAGES = ("ingest", "preprocess", "train", "evaluate", "predict")
# What each stage imports when it runs, its imports inside functions included.
FAMILY, LEARNER, PREDICTOR = (
    f"shoestring.training.families.table_net.{name}" for name in ("family", "learner", "predictor")
)
LAZY = {
    "train": ["shoestring.training.frameworks.torch_.net_learner", LEARNER],
    "evaluate": ["shoestring.training.families.predict", PREDICTOR],
    "predict": [
        "shoestring.models.predict_file",
        "shoestring.models.folder.write_folder",
        PREDICTOR,
    ],
}
"""The modules that a stage imports when it runs."""

CHANGE_EACH = """
import json, sys
from pathlib import Path
from shoestring.data.storage.import_closure import import_closure

root = Path(sys.argv[1])
files = {".".join(file.relative_to(root).with_suffix("").parts): file for file in root.rglob("*.py")}

def is_changed(stage, names):
    before = import_closure(stage).digest
    sources = {files[name]: files[name].read_bytes() for name in names}
    for file, source in sources.items():
        file.write_bytes(source + b"\\n# another line\\n")
    after = import_closure(stage).digest
    for file, source in sources.items():
        file.write_bytes(source)
    return after != before

found = {}
for stage in (f"shoestring.stages.{name}" for name in sys.argv[2:]):
    closure = import_closure(stage).modules
    inside = {name for name in files if name.removesuffix(".__init__") in closure}
    found[stage] = [len(inside) - len(closure), [name for name in inside if not is_changed(stage, [name])],
                    is_changed(stage, files.keys() - inside)]
print(json.dumps(found))
"""
IMPORT_EACH = """
import importlib, json, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
print(json.dumps(sorted(name for name in sys.modules if name.split(".")[0] == "shoestring")))
"""


def printed(code: str, *arguments: object, path: Path | None = None) -> object:
    """Run code in a process of its own, and return the JSON that it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=True,
        cwd=path,
    )
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copy")
    source = Path(shoestring.__path__[0])
    shutil.copytree(source, folder / "shoestring", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.mark.slow
def test_a_line_in_any_reachable_module_changes_a_stages_digest_and_no_other_line_does(copy: Path) -> None:
    # For each stage: modules without a file, those whose change nobody saw, and whether any other was seen.
    found = printed(CHANGE_EACH, copy, *STAGES, path=copy)
    assert found == {f"shoestring.stages.{stage}": [0, [], False] for stage in STAGES}


def closure_of(stage: str) -> ImportClosure:
    return import_closure(f"shoestring.stages.{stage}", *([FAMILY] if stage in LAZY else []))


@pytest.mark.parametrize("stage", STAGES)
def test_the_closure_holds_all_that_a_stage_imports_and_no_router_or_ledger(stage: str) -> None:
    modules = set(closure_of(stage).modules)
    imported = printed(IMPORT_EACH, f"shoestring.stages.{stage}", *LAZY.get(stage, ()))
    assert isinstance(imported, list)
    assert set(imported) <= modules
    for package in ("routing", "spending.ledger", "runtime", "reporting", "cli", "backends", "simulation"):
        assert not [name for name in modules if f"{name}.".startswith(f"shoestring.{package}.")], package


def test_the_libraries_of_a_stage_are_those_that_its_modules_import() -> None:
    libraries = {stage: set(closure_of(stage).libraries) for stage in STAGES}
    assert libraries["ingest"] == {
        "charset_normalizer",
        "google_crc32c",
        "numpy",
        "pyarrow",
        "pydantic",
        "pydantic_core",
    }
    assert libraries["train"] - libraries["ingest"] == {"safetensors", "scipy", "torch"}
    assert libraries["evaluate"] - libraries["train"] == {"lightgbm", "tokenizers"}
    versions = library_versions([*libraries["evaluate"], "not_installed"])
    assert versions.pop("not_installed") == "" and all(versions.values())


def test_the_closure_of_a_stage_imports_no_library() -> None:
    code = (
        "import json, sys; from shoestring.data.storage.import_closure import *; "
        "found = import_closure('shoestring.stages.evaluate'); library_versions(found.libraries); "
        "print(json.dumps(sorted({'torch', 'sklearn', 'scipy'} & set(sys.modules))))"
    )
    assert printed(code) == []


def test_a_process_imports_only_what_its_call_needs() -> None:
    """A pod is paid for while it imports."""
    code = "import json, sys, {0}; print(json.dumps(sorted(sys.modules)))"
    stage, supervisor = (
        printed(code.format(f"shoestring.runtime.supervisor.{name}")) for name in ("child", "run_stage")
    )
    assert not {"numpy", "shoestring.routing.decision", "shoestring.spending.ledger.ledger"} & set(stage)
    deciding = (
        "shoestring.routing.planner",
        "shoestring.routing.offers",
        "shoestring.pricing.learned.learning",
    )
    assert not [name for name in supervisor if name.startswith(deciding)]
    on_a_cluster = "shoestring.backends.kubernetes.cluster, shoestring.backends.s3.store"
    router = printed(code.format(f"shoestring.runtime.route_step.route, {on_a_cluster}"))
    heavy = {
        "pyarrow",
        "pandas",
        "sklearn",
        "torch",
        "kubernetes",
        "duckdb",
        "shoestring.training.checkpoints",
    }
    assert "numpy" in router and not heavy & set(router)


class Author:
    """An author's package on Python's path, whose files a test writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "of_an_author"
        self.folder.mkdir()
        self.write(__init__="raise SystemExit('imported')", stage="")

    def write(self, **files: str) -> None:
        for name, text in files.items():
            path = self.folder / f"{name.replace('__in__', '/')}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)

    def closure(self) -> ImportClosure:
        return import_closure(
            "of_an_author.stage", reader=ImportReader(self.folder / "imports.json", self.folder)
        )

    def depends_on(self, name: str) -> bool:
        """Return whether another line in a module changes the digest."""
        path = self.folder / f"{name}.py"
        before, source = self.closure().digest, path.read_text()
        path.write_text(f"{source}\n# another line\n")
        after = self.closure().digest
        path.write_text(source)
        assert self.closure().digest == before
        return after != before


@pytest.fixture
def author(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Author:
    monkeypatch.syspath_prepend(tmp_path)
    return Author(tmp_path)


SERVER = "def __getattr__(name):\n    from .helper import y\n    return y\n"
"""An `__init__` that imports the helper only for what it serves by itself."""


@pytest.mark.parametrize(
    "source",
    [
        "import of_an_author.helper",
        "import of_an_author.helper as other",
        "from of_an_author.helper import y",
        "from of_an_author import helper",
        "from . import helper",
        "from .helper import y",
        "def run(work):\n    from of_an_author import helper",
        "try:\n    import fast\nexcept ImportError:\n    from . import helper",
        "match 1:\n    case 1:\n        from . import helper",
        "from importlib import import_module\nimport_module('of_an_author.helper')",
        "import importlib\nimportlib.import_module('.helper', 'of_an_author')",
        "import importlib\nimportlib.import_module('of_an_author.' + name)",
        "from . import between",
        "from of_an_author import served",
    ],
)
def test_every_way_to_import_a_module_is_seen(author: Author, source: str) -> None:
    author.write(__init__=SERVER, stage=source, helper="y = 1", between="from .helper import y")
    assert author.depends_on("helper")


@pytest.mark.parametrize(
    "source",
    [
        "",
        "helper = 'of_an_author.helper'",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import helper",
        "import typing\nif typing.TYPE_CHECKING:\n    from . import helper",
        "from . import other",
    ],
)
def test_a_module_that_no_code_imports_does_not_count(author: Author, source: str) -> None:
    author.write(__init__=SERVER, stage=source, helper="y = 1", other="")
    assert not author.depends_on("helper")
    assert author.depends_on("stage") and author.depends_on("__init__")


def test_an_authors_stage_depends_on_the_modules_of_shoestring_that_it_imports(author: Author) -> None:
    author.write(stage="from shoestring.data.storage.rewrite import rewrite\nimport sklearn, nobodys_library")
    found = author.closure()
    assert {"of_an_author", "of_an_author.stage", "shoestring.data.storage.rewrite"} <= set(found.modules)
    assert "shoestring.routing.decide" not in found.modules
    assert {"pyarrow", "sklearn", "nobodys_library"} <= set(found.libraries)


def test_kept_imports_are_read_again_after_a_change(author: Author) -> None:
    author.write(stage="from . import helper", helper="", other="")
    assert (
        author.closure().modules
        == author.closure().modules
        == (
            "of_an_author",
            "of_an_author.helper",
            "of_an_author.stage",
        )
    )
    author.write(stage="from . import helper, other")
    assert "of_an_author.other" in author.closure().modules
    (author.folder / "imports.json").write_text("no JSON")
    assert "of_an_author.other" in author.closure().modules


def test_a_walk_reads_each_closure_once_and_the_next_one_reads_again(author: Author) -> None:
    def modules() -> tuple[str, ...]:
        return import_closure("of_an_author.stage").modules

    for added in ("helper", "other"):
        with sources_read_once():
            before = modules()
            author.write(stage=f"from . import {added}", **{added: ""})
            assert modules() == before
        assert set(modules()) - set(before) == {f"of_an_author.{added}"}


def test_a_package_that_is_not_installed_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r"the package nobodys of nobodys\.stage is not installed"):
        import_closure("nobodys.stage")
