"""The shell blocks of the documentation that are tagged `kind`, which the tests of this folder run as they
are written.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import yaml
from cluster_setup import CLUSTER
from documented import tagged
from kind_cluster import Kind, run


def kind_commands() -> list[str]:
    """Return every line of every block that is tagged `kind`."""
    return [line for block in tagged("kind") for line in block.text.splitlines() if line]


class Documentation:
    """The documented commands, and those that ran. Commands reach the cluster by a kubeconfig with one
    context, as its administrator, or as the account of `token`.
    """

    def __init__(self, kubeconfig: Path, token: str = "") -> None:
        self._kubeconfig, self._token = kubeconfig, token
        self.executed: set[str] = set()

    def command(self, beginning: str) -> str:
        """Return the one documented command that begins like this, and count it as executed."""
        (found,) = {line for line in kind_commands() if line.startswith(beginning)}
        self.executed.add(found)
        return found

    def run(self, cluster: Kind | None, folder: Path, beginning: str) -> str:
        """Run the one documented command that begins like this in `folder`; return its output. Raises
        CommandFailed.
        """
        if cluster and not self._kubeconfig.exists():
            text = run("kind", "get", "kubeconfig", "--name", cluster.name)
            # The documented commands name the context of `make cluster`.
            config = yaml.safe_load(text.replace(cluster.context, CLUSTER.context))
            if self._token:
                config["users"][0]["user"] = {"token": self._token}
            self._kubeconfig.write_text(yaml.safe_dump(config))
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        variables = (f"PATH={path}", f"KUBECONFIG={self._kubeconfig}")
        command = ("bash", "-euo", "pipefail", "-c", self.command(beginning))
        return run("env", "--chdir", str(folder), *variables, *command, timeout_s=600)

    def run_arguments(self, beginning: str) -> list[str]:
        """Return the arguments of a documented `shoestring run` on a cluster, without `--on CONTEXT`."""
        shoestring, command, *arguments = shlex.split(self.command(beginning))
        assert (shoestring, command) == ("shoestring", "run")
        on = arguments.index("--on")
        assert arguments[on + 1] == CLUSTER.context
        return arguments[:on] + arguments[on + 2 :]
