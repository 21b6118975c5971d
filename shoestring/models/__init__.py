"""Models as folders that one can use: written from a run, and read to predict raw rows."""
