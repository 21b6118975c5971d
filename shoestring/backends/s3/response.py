"""The responses of an S3 server: of a request, and of a listing."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import urllib3
from minio.datatypes import Object

from shoestring.core.interfaces import ListedObject
from shoestring.core.types import STANDARD_CLASS

# A server that tells no times: none of its objects is older than another.
UNKNOWN_TIME = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class S3Response:
    """A server's response. `reply_lost`: an earlier try may have succeeded, but its response was lost.

    `objects` holds the listed objects by key.
    """

    status: int
    code: str = ""
    message: str = ""
    reply_lost: bool = False
    objects: Mapping[str, ListedObject] = field(default_factory=dict)


def parse_response(response: urllib3.BaseHTTPResponse) -> S3Response:
    """Return the status of a response, and the code and message of an error."""
    if response.status < 300:
        return S3Response(response.status)
    text = response.data.decode(errors="replace")
    found = {tag: html.unescape(content) for tag, content in re.findall(r"<(Code|Message)>([^<]*)</", text)}
    return S3Response(response.status, found.get("Code", ""), found.get("Message", ""))


def listed_object(item: Object) -> ListedObject:
    """Return an object of a listing."""
    # A server names its standard class, or no class.
    storage_class = item.storage_class if item.storage_class not in (None, "STANDARD") else STANDARD_CLASS
    return ListedObject(item.size or 0, item.last_modified or UNKNOWN_TIME, str(storage_class))


def describe(response: S3Response) -> str:
    """Return a response in one line, for a message."""
    # SeaweedFS answers with a bare 500 when its volumes are full.
    hint = "(is it full?)" if response.status == 500 else ""
    return " ".join(f"{response.status} {response.code} {response.message} {hint}".split())
