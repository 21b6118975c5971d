"""The only importer of kubernetes, minio, obstore and pynvml: the interfaces on a cluster, source files on
servers, and the GPUs of this machine.
"""
