"""Remote sources for callers that read local files only, and for a world that reads no data."""

from __future__ import annotations

from shoestring.core.errors import RecipeError
from shoestring.core.interfaces import RemoteObject


class NoRemoteSources:
    """Refuses every URL."""

    def list(self, url: str) -> tuple[RemoteObject, ...]:
        raise RecipeError(f"{url} cannot be read here: name a `path`")

    def read(self, found: RemoteObject, start: int, end: int) -> bytes:
        raise RecipeError(f"{found.url} cannot be read here: name a `path`")


NO_REMOTE_SOURCES = NoRemoteSources()
