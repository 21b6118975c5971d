"""A cluster's world, opened from a person's machine.

Its files are in ConfigMaps, the credentials of its store in a Secret, and the store may be a service of the
cluster.
"""

from __future__ import annotations

import base64
import socket
from pathlib import Path

from shoestring.backends.kubernetes.api import Item, KubeApi, connect
from shoestring.backends.kubernetes.cluster import open_cluster_world
from shoestring.backends.kubernetes.port_forward import Service, forward_port
from shoestring.backends.kubernetes.rights import READER, STORE_READER, Right
from shoestring.backends.kubernetes.world_files import read_world
from shoestring.backends.s3.location import (
    CREDENTIAL_VARIABLES,
    CREDENTIALS_SECRET,
    Credentials,
    S3Location,
)
from shoestring.backends.s3.store import SESSION_VARIABLE, S3Access, environment_credentials
from shoestring.config.world import WORLD_FILES, World
from shoestring.core.errors import ClusterError, NotAllowed, UsageError
from shoestring.data.scratch.temporary_folders import folder_until_exit


def open_remote_world(context: str, namespace: str, *, reads_only: bool) -> World:
    """Open the World that the ConfigMaps in a namespace of a kubeconfig's context describe.

    `reads_only`: nothing is written to the cluster or to the store.

    Raises:
        UsageError: the kubeconfig lacks the context, the namespace has no world, or credentials are missing.
        WorldError: a file is malformed, and the store has no last good copy of it.
        ClusterError: the cluster cannot be reached, or allows too little.
    """
    api = connect(context)
    folder = fetch_world_files(api, context, namespace)
    location = read_world(folder).store
    access = S3Access(
        credentials=environment_credentials() or secret_credentials(api, context, namespace),
        address=store_address(api, context, namespace, location),
        reads_only=reads_only,
    )
    return open_cluster_world(folder, context=context, access=access)


def fetch_world_files(api: KubeApi, context: str, namespace: str) -> Path:
    """Write the world's ConfigMaps to a folder, as they are mounted into pods; it is removed at exit.

    Raises UsageError, ClusterError.
    """
    folder = folder_until_exit()
    for name in WORLD_FILES:
        found = read_object(api, Right("get", "configmaps", namespace, READER), f"shoestring-{name}")
        if found is None:
            raise UsageError(
                f"there is no ConfigMap shoestring-{name} in namespace {namespace} of {context}: name the "
                "namespace in which Shoestring is installed with --namespace"
            )
        (folder / name).mkdir()
        for file, text in (found.get("data") or {}).items():
            (folder / name / file).write_text(text, encoding="utf-8")
        for file, coded in (found.get("binaryData") or {}).items():
            (folder / name / file).write_bytes(base64.b64decode(coded))
    return folder


def read_object(api: KubeApi, right: Right, name: str) -> Item | None:
    """Return an object; None if there is none. Raises NotAllowed, ClusterError."""
    return api.get(f"/api/v1/namespaces/{right.namespace}/{right.resource}/{name}", right)


def secret_credentials(api: KubeApi, context: str, namespace: str) -> Credentials:
    """Return the store's credentials of the pods. Raises UsageError, which names the alternative."""
    alternative = f"set {' and '.join(CREDENTIAL_VARIABLES)} to credentials that may read the store"
    try:
        found = read_object(api, Right("get", "secrets", namespace, STORE_READER), CREDENTIALS_SECRET)
    except NotAllowed as error:
        raise UsageError(f"{error}; or {alternative}") from None
    coded = (found or {}).get("data") or {}
    values = {name: base64.b64decode(text).decode() for name, text in coded.items()}
    access_key, secret_key = (values.get(name, "") for name in CREDENTIAL_VARIABLES)
    if not access_key or not secret_key:
        raise UsageError(
            f"namespace {namespace} of {context} has no Secret {CREDENTIALS_SECRET} with "
            f"{' and '.join(CREDENTIAL_VARIABLES)}: {alternative}"
        )
    return Credentials(access_key, secret_key, values.get(SESSION_VARIABLE) or None)


def store_address(api: KubeApi, context: str, namespace: str, location: S3Location) -> str:
    """Return where the store is reached from here: a forwarded port if its endpoint is a service of the
    cluster, else empty. Raises ClusterError.
    """
    match location.host.split("."):
        case ["localhost"]:
            return ""
        case [name] | [name, _, "svc", *_] as parts:
            where = parts[1] if len(parts) > 1 else namespace
        case [name, where] if is_service(api, where, name):
            pass
        case _:
            return ""
    return forward_port(context, Service(where, name, location.port))


def is_service(api: KubeApi, namespace: str, name: str) -> bool:
    """Return whether NAME.NAMESPACE is a service; False where that may not be asked, and it is a host.

    Raises ClusterError: it is not a host either.
    """
    try:
        return read_object(api, Right("get", "services", namespace, STORE_READER), name) is not None
    except NotAllowed as error:
        host = f"{name}.{namespace}"
        if is_host(host):
            return False
        raise ClusterError(
            f"the store's host {host} is not known on this machine, and may be a service: {error}"
        ) from None


def is_host(name: str) -> bool:
    """Return whether this machine knows the address of a host."""
    try:
        return bool(socket.getaddrinfo(name, None))
    except OSError:
        return False
