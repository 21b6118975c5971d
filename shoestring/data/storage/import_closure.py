"""The import closure of a stage: every module that its code can import, and the libraries of these modules.

It is read from the syntax trees, so nothing is imported: a router needs the closure, but not a stage's
libraries. Imports inside functions count; those for type checkers alone do not.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec
from pathlib import Path

from shoestring.core.errors import UsageError
from shoestring.data.storage.module_imports import SERVER, FileImports, ImportReader, ModuleImport

NO_LIBRARIES = sys.stdlib_module_names | {"__main__"}
"""Modules that no key holds: the standard library, and the program itself."""

DISTRIBUTIONS = {"sklearn": "scikit-learn", "yaml": "PyYAML"}
"""Distributions with another name than their module, which spares the stages of Shoestring a long search."""


@dataclass(frozen=True, slots=True)
class ImportClosure:
    """The code of a stage: its modules in order, each with the SHA-256 of its source; the SHA-256 of all
    sources; and the libraries that they import.
    """

    sources: Mapping[str, str]
    digest: str
    libraries: tuple[str, ...]

    @property
    def modules(self) -> tuple[str, ...]:
        return tuple(self.sources)


_READ: ContextVar[dict[tuple[str, ...], ImportClosure] | None] = ContextVar("_READ", default=None)
"""The import closures that were read, where `sources_read_once` keeps them."""


def import_closure(module: str, *more: str, reader: ImportReader | None = None) -> ImportClosure:
    """Return the import closure of a module, and of `more` of its package that it imports late.

    A module that is imported by a name that is computed at run time cannot be known: then all modules of the
    importing package count.

    Raises:
        UsageError: the package of the module is not installed.
    """
    known = _READ.get()
    if reader or known is None:
        return _read_closure(module, more, reader or _kept_imports())
    if (module, *more) not in known:
        known[module, *more] = _read_closure(module, more, _kept_imports())
    return known[module, *more]


@contextmanager
def sources_read_once() -> Iterator[None]:
    """Let each import closure be read once while the outermost such block runs: a route step asks for those
    of its stage several times, and a walk over many stages for those of all later ones.
    """
    token = _READ.set({} if (known := _READ.get()) is None else known)
    try:
        yield
    finally:
        _READ.reset(token)


def _read_closure(module: str, more: tuple[str, ...], reader: ImportReader) -> ImportClosure:
    root = module.partition(".")[0]
    sources = _Sources(root)
    if sources.file(module) is None:
        raise UsageError(
            f"the package {root} of {module} is not installed: install it where the pipeline is compiled, "
            "and in the image of its stages"
        )
    found, libraries, seen = dict[str, Path](), set[str](), set[str]()
    waiting = [name for each in (module, *more) for name in _with_packages(each)]
    while waiting:
        if (name := waiting.pop()) in seen:
            continue
        seen.add(name)
        package, _, last = name.rpartition(".")
        if last == SERVER:
            waiting += sources.served_modules(package, reader)
        elif (file := sources.file(name)) is None:
            libraries.add(name.partition(".")[0])
        elif file.suffix == ".py":
            found[name] = file
            waiting += sources.imported_modules(name, file, reader.read(file))
    reader.keep()
    content, digests = hashlib.sha256(), dict[str, str]()
    for name, file in sorted(found.items()):
        source = file.read_bytes()
        content.update(name.encode() + b"\0" + source + b"\0")
        digests[name] = hashlib.sha256(source).hexdigest()
    return ImportClosure(digests, content.hexdigest(), tuple(sorted(libraries)))


def library_versions(libraries: Iterable[str]) -> dict[str, str]:
    """Return the installed version of each library; "" for one that is not installed."""
    return {library: _version(library) for library in libraries}


class _Sources:
    """Finds the sources of modules. It remembers what it found, so it serves one closure."""

    def __init__(self, root: str) -> None:
        """`root` is the package of the stage. It counts by its sources even where it is installed."""
        self._own = {root, __name__.partition(".")[0]}
        self._folders: dict[str, tuple[Path, ...]] = {}
        self._files: dict[str, Path | None] = {}

    def file(self, name: str) -> Path | None:
        """Return the source of a module of Shoestring or of an author; None if it belongs to a library.

        A package without code of its own is its folder.
        """
        if name not in self._files:
            self._files[name] = self._find(name)
        return self._files[name]

    def imported_modules(self, name: str, file: Path, imports: FileImports) -> Iterator[str]:
        """Yield the modules and libraries that a file imports, with the packages that they are in."""
        yield from self._targets(name, file, imports.imports)
        if imports.is_open:
            for folder in self._source_folders(name.partition(".")[0]):
                for path in folder.rglob("*.py"):
                    parts = path.relative_to(folder.parent).with_suffix("").parts
                    yield ".".join(part for part in parts if part != "__init__")

    def served_modules(self, package: str, reader: ImportReader) -> Iterator[str]:
        """Yield the modules that a package imports only to serve names that it does not hold."""
        if (file := self.file(package)) is not None and file.suffix == ".py":
            yield from self._targets(package, file, reader.read(file).served)

    def _targets(self, name: str, file: Path, imports: Iterable[ModuleImport]) -> Iterator[str]:
        """Yield the modules of imports, with their packages, and the modules that they take by name.

        The module's own `__getattr__` may serve any other name.
        """
        package = name if file.name == "__init__.py" else name.rpartition(".")[0]
        for each in imports:
            base = _absolute_name(each, package)
            if base.partition(".")[0] in NO_LIBRARIES:
                continue
            yield from _with_packages(base)
            if (found := self.file(base)) is None:
                continue
            # A module that is no package holds no others.
            names = each.names if found.suffix != ".py" or found.name == "__init__.py" else ()
            modules = [f"{base}.{taken}" for taken in names if self.file(f"{base}.{taken}")]
            yield from modules
            if len(modules) < len(each.names) or not each.names:
                yield f"{base}.{SERVER}"

    def _find(self, name: str) -> Path | None:
        root, *rest = name.split(".")
        for folder in self._source_folders(root):
            path = folder.joinpath(*rest)
            if (file := path / "__init__.py").is_file():
                return file
            if (file := path.with_name(f"{path.name}.py")).is_file():
                return file
            if path.is_dir():
                return path
        return None

    def _source_folders(self, root: str) -> tuple[Path, ...]:
        """Return the folders of a top-level module's sources; none for an installed library or the standard
        library. A module that is one file has its path without the suffix.
        """
        if root not in self._folders:
            is_own = root in self._own
            self._folders[root] = tuple(
                folder for folder in _module_folders(root) if is_own or not _is_installation(folder.parent)
            )
        return self._folders[root]


@cache
def _kept_imports() -> ImportReader:
    return ImportReader()


@cache
def _is_installation(folder: Path) -> bool:
    """Return whether libraries are installed in a folder. Their versions count, not their sources."""
    return next(folder.glob("*.dist-info"), None) is not None


def _module_folders(root: str) -> list[Path]:
    if root in NO_LIBRARIES or (spec := find_spec(root)) is None:
        return []
    if not spec.submodule_search_locations and spec.origin and spec.origin.endswith(".py"):
        return [Path(spec.origin).with_suffix("")]
    return [Path(folder) for folder in spec.submodule_search_locations or ()]


def _absolute_name(imported: ModuleImport, package: str) -> str:
    """Return the full name of an imported module. `package` is the one that the importing module is in."""
    if not imported.level:
        return imported.module
    parents = package.split(".")
    parents = parents[: len(parents) - imported.level + 1]
    return ".".join([*parents, *([imported.module] if imported.module else [])])


def _with_packages(name: str) -> Iterator[str]:
    """Yield a module and the packages that it is in, which an import runs as well."""
    while name:
        yield name
        name = name.rpartition(".")[0]


@cache
def _version(library: str) -> str:
    try:
        return version(DISTRIBUTIONS.get(library, library))
    except PackageNotFoundError:
        # A library that is missing here needs no search, which reads the files of all distributions.
        names = packages_distributions().get(library, ()) if find_spec(library) else ()
        return " ".join(version(name) for name in sorted(names))


if __name__ == "__main__":
    from shoestring.data.families import FAMILIES

    for family, place in FAMILIES.items():
        print(family, import_closure(place.partition(":")[0]).digest)
    for name in sys.argv[1:]:
        module = name if "." in name else f"shoestring.stages.{name}"
        print(name, import_closure(module).digest)
