"""Name the packages of the wheel; everything else is in pyproject.toml.

components/ and pipelines/ are installed as shoestring.components and shoestring.pipelines: a user's
repository has top-level folders of these names, and neither may hide the other.
"""

from setuptools import find_packages, setup

setup(packages=[*find_packages(include=["shoestring*"]), "shoestring.components", "shoestring.pipelines"])
