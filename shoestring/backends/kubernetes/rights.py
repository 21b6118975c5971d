"""Rights at a cluster's API, and the sentence on one that is missing."""

from __future__ import annotations

from dataclasses import dataclass

from shoestring.core.errors import NotAllowed

READER = "Role shoestring-reader of manifests/base/readers.yaml"
STORE_READER = "Role shoestring-store-reader of manifests/base/readers.yaml"
POD_READER = "Role shoestring-pod-reader of manifests/base/accounts.yaml"
ROUTER = "ClusterRole shoestring-router of manifests/base/accounts.yaml"
SETTLE = "Role shoestring-settle of manifests/base/accounts.yaml"
REAPER = "Role shoestring-reaper of manifests/base/accounts.yaml"


@dataclass(frozen=True, slots=True)
class Right:
    """A right that a request needs.

    `namespace` is empty for the whole cluster. `role` grants the right; empty: no manifest grants it.
    """

    verb: str
    resource: str
    namespace: str = ""
    role: str = ""

    def __str__(self) -> str:
        scope = f"in namespace {self.namespace}" if self.namespace else "of the whole cluster"
        return f"{self.verb} {self.resource} {scope}"


def missing_right(right: Right, answer: str, account: str = "you") -> NotAllowed:
    """Return the error of a request that was forbidden. `answer`: the cluster's; `account`: who asked."""
    return NotAllowed(
        f"the cluster does not allow {account} to {right} ({answer}): ask its administrator for the "
        f"{right.role or 'right'}"
    )
