"""The only importer of kubernetes, minio and pynvml: the interfaces on a cluster, and the GPUs of this
machine.
"""
