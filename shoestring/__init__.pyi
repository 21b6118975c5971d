from shoestring.api import Model as Model
from shoestring.api import RunView as RunView
from shoestring.api import compare as compare
from shoestring.api import explain as explain
from shoestring.api import load as load
from shoestring.api import open_run as open_run
from shoestring.api import plan as plan
from shoestring.api import resume as resume
from shoestring.api import run as run
from shoestring.api import runs as runs

API_NAMES: tuple[str, ...]
__version__: str
