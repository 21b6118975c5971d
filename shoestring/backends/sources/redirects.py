"""Where a web address leads, before it is read.

Obstore follows redirects, and refuses those from https to http. It does not refuse an address of another
network: a public server could have files read that only this machine reaches, such as its cloud's metadata.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
from http.client import HTTPException, HTTPMessage
from typing import IO
from urllib.error import HTTPError
from urllib.parse import urljoin, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from shoestring.core.errors import RecipeError

MAX_REDIRECTS = 10
TIMEOUT_S = 10.0
FIRST_BYTE = {"Range": "bytes=0-0"}


class NoRedirects(HTTPRedirectHandler):
    """Leaves redirects to the caller."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        return None


def check_redirects(url: str, authorities: str) -> None:
    """Raise RecipeError if an address leads to another kind of network or scheme. Other errors are left to
    those that read it. `authorities`: certificates, PEM, that are trusted besides the machine's; empty: none.
    """
    context = ssl.create_default_context()
    if authorities:
        context.load_verify_locations(cadata=authorities)
    opener, here = build_opener(NoRedirects, HTTPSHandler(context=context)), url
    for _ in range(MAX_REDIRECTS):
        try:
            with opener.open(Request(here, headers=FIRST_BYTE), timeout=TIMEOUT_S) as answer:
                answer.read(1)
            return
        except HTTPError as error:
            location = error.headers.get("Location")
            if error.code not in (301, 302, 303, 307, 308) or not location:
                return
            target = urljoin(here, location)
        except (OSError, HTTPException):
            return
        if urlsplit(target).scheme not in ("https", urlsplit(here).scheme):
            raise RecipeError(
                f"{_place(url)} redirects to {_place(target)}, which is not encrypted or not a web address: "
                "name a `url` that does not"
            )
        if _network(target) not in ("public", _network(url)):
            raise RecipeError(
                f"{_place(url)} redirects to {_place(target)}, an address of the {_network(target)} network: "
                "name that address as `url` if it is meant"
            )
        here = target


def _place(url: str) -> str:
    # Its query may hold a signature.
    return url.partition("?")[0]


def _network(url: str) -> str:
    """Return the kind of network of an address; public where its name does not resolve here."""
    try:
        found = socket.getaddrinfo(urlsplit(url).hostname, None)
    except OSError:
        return "public"
    addresses = [ipaddress.ip_address(str(each[4][0]).partition("%")[0]) for each in found]
    if any(each.is_link_local for each in addresses):
        return "link-local"
    if any(each.is_loopback for each in addresses):
        return "loopback"
    return "private" if any(each.is_private for each in addresses) else "public"
