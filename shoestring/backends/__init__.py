"""The only importer of kubernetes, minio and pynvml: the seams on a cluster, and the GPUs of this machine."""
