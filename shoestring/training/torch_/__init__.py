"""The only importer of torch."""
