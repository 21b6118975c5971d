"""The option group with which a command opens the world that it reads: `--world`, `--store`, `--on` and
`--namespace`.
"""

from __future__ import annotations

import inspect
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from shoestring.backends.local import default_world_path
from shoestring.cli.options import DEFAULT_NAMESPACE, StoreOption, WorldOption
from shoestring.config.world import World
from shoestring.core.errors import UsageError
from shoestring.runtime.launch.local_world import ensure_default_world
from shoestring.runtime.open_world import open_world, open_world_on
from shoestring.runtime.settlement.keep_reaping import exit_on_term

SourceOnOption = Annotated[
    str | None,
    typer.Option(
        "--on",
        help="read the world of the cluster of this kubeconfig context, instead of --world and --store",
    ),
]
SourceNamespaceOption = Annotated[
    str, typer.Option("--namespace", help="with --on: the namespace in which Shoestring is installed")
]


@dataclass(frozen=True, slots=True)
class WorldSource:
    """Where a command finds its world: a file or folder of this machine, or a cluster."""

    world: Path | None = None
    store: Path | None = None
    on: str | None = None
    namespace: str = DEFAULT_NAMESPACE

    @property
    def is_given(self) -> bool:
        """True if an option names a world; else it is the default one."""
        return self.world is not None or self.store is not None or self.on is not None

    @property
    def is_cluster(self) -> bool:
        return self.on is not None or (self.world or default_world_path()).is_dir()

    def open(self, *, writes: bool = False) -> World:
        """Open the world. Unless `writes`, nothing is written to its store, and it needs no right to.

        Raises:
            UsageError: the options do not go together, or name no world.
            ClusterError: the cluster cannot be reached, or allows too little.
        """
        self.check()
        if self.on is not None:
            # A forwarded port is closed at exit, which the default handler skips.
            signal.signal(signal.SIGTERM, exit_on_term)
            return open_world_on(self.on, self.namespace, reads_only=not writes)
        return open_world(str(self.world or ""), absolute(self.store), reads_only=not writes)

    def open_to_run(self) -> World:
        """Open the world for a plan or a run: write the default file if it is missing, and name the rejected
        prices.
        """
        if self.on is None and self.world is None and (made := ensure_default_world()):
            typer.echo(made, err=True)
        # What was measured of this machine serves the next plan; a cluster is measured by its own pods.
        opened = self.open(writes=not self.is_cluster)
        for rejected in opened.prices.book().rejected:
            typer.echo(f"a price was rejected: {rejected.row}: {rejected.reason}", err=True)
        return opened

    def check(self) -> None:
        """Raises UsageError for options that do not go together."""
        if self.on is not None and (self.world is not None or self.store is not None):
            raise UsageError(
                "--on reads the world and the store of the cluster: leave out --world and --store"
            )
        if self.on is None and self.namespace != DEFAULT_NAMESPACE:
            raise UsageError(
                f"--namespace {self.namespace} is a namespace of a cluster: name the kubeconfig context with "
                "--on"
            )

    @property
    def arguments(self) -> list[str]:
        """The options as the user gave them, for another command."""
        named = self.namespace if self.namespace != DEFAULT_NAMESPACE else None
        given = (("--world", self.world), ("--store", self.store), ("--on", self.on), ("--namespace", named))
        return [part for name, value in given if value is not None for part in (name, str(value))]


DEFAULT_WORLD = WorldSource()

WORLD_OPTIONS = [
    inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
    for name, default, annotation in (
        ("world", None, WorldOption),
        ("store", None, StoreOption),
        ("on", None, SourceOnOption),
        ("namespace", DEFAULT_NAMESPACE, SourceNamespaceOption),
    )
]


def takes_world(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with the option group in place of its parameter `source`, a WorldSource."""

    def with_source(**values: Any) -> None:
        given = {option.name: values.pop(option.name) for option in WORLD_OPTIONS}
        command(**values, source=WorldSource(**given))

    hints = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        own = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints.get(name))
        parameters += WORLD_OPTIONS if name == "source" else [own]
    with_source.__name__, with_source.__doc__ = command.__name__, command.__doc__
    with_source.__annotations__ = {each.name: each.annotation for each in parameters} | {"return": None}
    with_source.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return with_source


def absolute(folder: Path | None) -> Path | None:
    return folder.expanduser().absolute() if folder else None
