"""Hadoop YARN on batch resources: units, the account of a node, which containers are ended."""
