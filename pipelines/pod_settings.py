"""What an author gives the pod of a stage by KFP's extension for Kubernetes, for an engine without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from shoestring.core.errors import UsageError
from shoestring.pipelines.external_containers import Yaml
from shoestring.routing.placement import STAGE_LABEL

DECIDED = {"nodeSelector", "tolerations", "nodeAffinity"}
"""What the route step decides: Argo gets it by the route step's patch."""


@dataclass(frozen=True)
class PodSettings:
    """What the pod of a stage has of its author, in Kubernetes' form.

    `env`, `volumes`, `mounts`: of its container. `pull_policy`: empty for the default.
    """

    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    env: list[Yaml] = field(default_factory=list)
    volumes: list[Yaml] = field(default_factory=list)
    mounts: list[Yaml] = field(default_factory=list)
    pull_secrets: tuple[str, ...] = ()
    pull_policy: str = ""

    def apply(self, template: Yaml, defaults: Yaml) -> Yaml:
        """Return an Argo template of one container with these settings. `defaults`: what the container has
        before its template is looked at, whose lists its own would replace.
        """
        container, metadata = dict(template["container"]), template["metadata"]
        for key, own in (("env", self.env), ("volumeMounts", self.mounts)):
            if own:
                container[key] = [*container.get(key, defaults.get(key, [])), *own]
        if self.pull_policy:
            container["imagePullPolicy"] = self.pull_policy
        labels, annotations = metadata["labels"] | self.labels, self.annotations
        metadata = {"labels": labels} | ({"annotations": annotations} if annotations else {})
        volumes = {"volumes": self.volumes} if self.volumes else {}
        return template | {"metadata": metadata, "container": container} | volumes


def pod_settings(
    task: str, config: Mapping[str, Any], of_step: Mapping[str, Any], env: list[Yaml]
) -> PodSettings:
    """Return the settings of a task's pod.

    Args:
        config: what KFP's extension for Kubernetes has set for it. of_step: for a step of Shoestring, which
            has what Shoestring gives its own pods, and which is left out.
        env: the variables of its container.

    Raises:
        UsageError: it has a setting that Argo gets in no way, or the name of a secret, config map or claim
            is no constant.
    """
    own = {key: _without(value, of_step.get(key)) for key, value in config.items() if key not in DECIDED}
    own = {key: value for key, value in own.items() if value}
    if other := sorted(own.keys() - {*READERS, "podMetadata", "imagePullSecret", "imagePullPolicy"}):
        raise UsageError(
            f"{task} sets {other[0]}, which only Kubeflow gives its pod: compile it for Kubeflow"
        )
    found: dict[str, list[Yaml]] = {"env": [*env], "volumes": [], "mounts": []}
    for key, (name_key, read) in READERS.items():
        for each in own.get(key, []):
            name = constant_name(task, each, name_key) if name_key else ""
            for kind, value in read(each, name, f"own-{len(found['volumes']) + 1}"):
                found[kind].append(value)
    metadata = own.get("podMetadata", {})
    secrets = [constant_name(task, each, "secretName") for each in own.get("imagePullSecret", [])]
    return PodSettings(
        labels={key: value for key, value in metadata.get("labels", {}).items() if key != STAGE_LABEL},
        annotations=metadata.get("annotations", {}),
        env=found["env"],
        volumes=found["volumes"],
        mounts=found["mounts"],
        pull_secrets=tuple(secrets),
        pull_policy=own.get("imagePullPolicy", ""),
    )


def _without(value: Any, common: Any) -> Any:
    """Return a setting without what a step of Shoestring has, too."""
    if isinstance(value, list):
        return [each for each in value if each not in (common or [])]
    return None if value == common else value


def constant_name(task: str, config: Yaml, key: str) -> str:
    """Return the constant name of a secret, config map or claim. Raises UsageError: it is none."""
    name = config.get(f"{key}Parameter", {}).get("runtimeValue", {}).get("constant") or config.get(key)
    if not name:
        raise UsageError(
            f"{task} takes a {key} from an input, which only Kubeflow gives its pod: write the name itself, "
            "or compile it for Kubeflow"
        )
    return str(name)


Read = Callable[[Yaml, str, str], Iterator[tuple[str, Yaml]]]
"""Yields entries of `env`, `volumes` and `mounts` for a setting, the name of what it refers to, and the name
of a volume.
"""


def _variables(kind: str, key: str) -> Read:
    def read(config: Yaml, name: str, _: str) -> Iterator[tuple[str, Yaml]]:
        for each in config.get("keyToEnv", []):
            source = {"name": name, "key": each[key], "optional": bool(config.get("optional"))}
            yield "env", {"name": each["envVar"], "valueFrom": {kind: source}}

    return read


def _volume(source: Callable[[Yaml, str], Yaml]) -> Read:
    def read(config: Yaml, name: str, volume: str) -> Iterator[tuple[str, Yaml]]:
        yield "volumes", {"name": volume} | source(config, name)
        path = {"subPath": config["subPath"]} if "subPath" in config else {}
        yield "mounts", {"name": volume, "mountPath": config["mountPath"]} | path

    return read


def _secret(config: Yaml, name: str) -> Yaml:
    return {"secret": {"secretName": name, "optional": bool(config.get("optional"))}}


def _config_map(config: Yaml, name: str) -> Yaml:
    return {"configMap": {"name": name, "optional": bool(config.get("optional"))}}


def _claim(config: Yaml, name: str) -> Yaml:
    return {"persistentVolumeClaim": {"claimName": name}}


def _empty_dir(config: Yaml, _: str) -> Yaml:
    return {"emptyDir": {key: config[key] for key in ("medium", "sizeLimit") if config.get(key)}}


def _field_path(config: Yaml, _: str, __: str) -> Iterator[tuple[str, Yaml]]:
    yield "env", {"name": config["name"], "valueFrom": {"fieldRef": {"fieldPath": config["fieldPath"]}}}


READERS: dict[str, tuple[str, Read]] = {
    "secretAsEnv": ("secretName", _variables("secretKeyRef", "secretKey")),
    "configMapAsEnv": ("configMapName", _variables("configMapKeyRef", "configMapKey")),
    "fieldPathAsEnv": ("", _field_path),
    "secretAsVolume": ("secretName", _volume(_secret)),
    "configMapAsVolume": ("configMapName", _volume(_config_map)),
    "pvcMount": ("pvcName", _volume(_claim)),
    "emptyDirMounts": ("", _volume(_empty_dir)),
}
"""By the key of KFP's extension for Kubernetes: the key of the name that it refers to, and its reader."""
