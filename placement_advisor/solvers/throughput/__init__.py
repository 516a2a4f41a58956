"""Searches for the placement whose fullest device is least loaded: throughput of a pipeline."""
