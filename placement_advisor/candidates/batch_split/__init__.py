"""Splits of the batch: one step computed by replicas, each on a share of the samples."""
