"""The only importer of torch."""

import os

# Threads that spin while they wait for each other keep the core that the others need: with another process on one of two cores, training
# fell from 50,000 rows a second to 1,500. Read when torch loads its OpenMP runtime, hence here.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
