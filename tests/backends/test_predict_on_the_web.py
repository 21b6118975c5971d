"""New rows on a web server are predicted as those in a file are, and are found in the cache afterwards."""

from __future__ import annotations

from pathlib import Path

import pyarrow.csv
import pyarrow.parquet as pq
from commands import Finished
from web_files import web_files

from shoestring.backends.folder_store import FolderStore
from shoestring.backends.sources.obstore_sources import ObstoreSources
from shoestring.data.recipe_files import find_recipe
from shoestring.data.sources.fingerprint import list_contents
from shoestring.models.model import model_at
from shoestring.models.predict_file import predict_file, predict_source
from shoestring.reporting.publish import write_run_model


def test_new_rows_on_a_web_server_are_predicted(finished: Finished, tmp_path: Path) -> None:
    recipe, store, remote = find_recipe(str(finished.recipe)), FolderStore(finished.store), ObstoreSources()
    write_run_model(store, finished.ran.json["run_id"], tmp_path / "model")
    model = model_at(tmp_path / "model")
    rows = pyarrow.csv.read_csv(finished.recipe.parent / "flights.csv").slice(0, 100)
    pyarrow.csv.write_csv(rows.drop_columns(["arr_delay"]), tmp_path / "new.csv")
    predict_file(model, tmp_path / "new.csv", tmp_path / "local.parquet")
    with web_files() as web:
        web.files["/new.csv"], web.headers = (tmp_path / "new.csv").read_bytes(), {"ETag": '"first"'}
        # The second table is not joined: it is not fetched.
        source = {"flights": {"url": f"{web.url}/new.csv"}, "other": {"url": f"{web.url}/no-such.csv"}}
        new = recipe.model_validate(recipe.model_dump(mode="json") | {"source": source})
        alone = new.model_copy(update={"source": {"flights": new.source["flights"]}})
        assert list_contents(alone, store, remote) is None
        found = predict_source(model, new, store, remote, tmp_path / "web.parquet", lambda rows: None)
        assert list_contents(alone, store, remote) is not None
    assert found.rows == 100
    assert pq.read_table(tmp_path / "web.parquet") == pq.read_table(tmp_path / "local.parquet")
