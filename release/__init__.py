"""Packages of a release: wheel, source distribution, OCI image and OCI chart, each reproducible."""
