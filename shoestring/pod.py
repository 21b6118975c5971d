"""The entry point of pipelines that were compiled for schema version 2 or before: it refuses them with one
sentence.
"""

from shoestring.core.record import other_version

raise SystemExit(f"{other_version('2 or older')}: compile and upload this pipeline again")
