"""A cluster as a person sees it from outside: its API, and its store on S3 with a finished run."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path

import yaml
from commands import Finished, Ran, shoestring
from kube_server import CONTEXT, KubeServer
from s3_server import READER, S3Server, environment
from world_folder import FILE_TEXTS

from shoestring.backends.s3.location import S3Location

NAMESPACE = "shoestring"
NO_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "SHOESTRING_STORE": ""}


@dataclass(frozen=True)
class RemoteLab:
    """`location` is that of the store; the person has the credentials of an account that may only read it."""

    kube: KubeServer
    s3: S3Server
    location: S3Location
    finished: Finished
    folder: Path

    @property
    def run_id(self) -> str:
        return str(self.finished.ran.json["run_id"])

    def on(self, *arguments: object, **variables: str) -> Ran:
        kubeconfig = str(self.kube.kubeconfig(self.folder / "kubeconfig"))
        home = {"HOME": str(self.folder), "KUBECONFIG": kubeconfig}
        return shoestring(*arguments, "--on", CONTEXT, env=NO_CREDENTIALS | home | variables)

    def install(self, namespace: str = NAMESPACE, endpoint: str = "") -> None:
        """Create the ConfigMaps and the Secret. `endpoint`: another name of the store's."""
        store = self.location.model_dump(mode="json")
        store |= {"endpoint": endpoint} if endpoint else {}
        texts = FILE_TEXTS | {"world": yaml.safe_dump({"name": "lab", "store": store})}
        for name, text in texts.items():
            self.kube.put(namespace, "configmaps", f"shoestring-{name}", data={f"{name}.yaml": text})
        self.set_secret(READER, namespace)

    def set_secret(self, identity: tuple[str, str], namespace: str = NAMESPACE) -> None:
        coded = {
            name: base64.b64encode(value.encode()).decode() for name, value in environment(identity).items()
        }
        self.kube.put(namespace, "secrets", "shoestring-s3", data=coded)

    def objects(self) -> dict[str, str]:
        """Return the version of every object of the store."""
        found = self.s3.minio().list_objects(self.location.bucket, self.location.root, recursive=True)
        return {item.object_name or "": f"{item.etag} {item.last_modified}" for item in found}
