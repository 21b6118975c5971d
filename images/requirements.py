"""Print the project's requirements and those of the named extras, one per line.

`requirements.py kfp cluster` prints those of the extras kfp and cluster, too.

An image installs them in a separate layer, which a change of the code does not rebuild.
"""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
for extra in [None, *sys.argv[1:]]:
    print(*(project["optional-dependencies"][extra] if extra else project["dependencies"]), sep="\n")
