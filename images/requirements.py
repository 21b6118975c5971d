"""Print the project's requirements with those of the extras that are named, one a line: `requirements.py kfp cluster`.

An image installs them in a layer of their own, which a change of the code leaves as it is.
"""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
for extra in [None, *sys.argv[1:]]:
    print(*(project["optional-dependencies"][extra] if extra else project["dependencies"]), sep="\n")
