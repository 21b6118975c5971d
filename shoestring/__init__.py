"""Machine-learning pipelines that stay inside their budget.

The names of `__init__.pyi` are the Python API. `shoestring.api` is imported when one of them is first used,
so that `import shoestring` stays light for the processes of a pipeline, which need little of it.
"""

from importlib import import_module

API_NAMES = ("Model", "RunView", "compare", "explain", "load", "open_run", "plan", "resume", "run", "runs")


def __getattr__(name: str) -> object:
    if name == "__version__":
        return import_module("importlib.metadata").version("shoestring")
    if name not in API_NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("shoestring.api"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *API_NAMES, "__version__"})
