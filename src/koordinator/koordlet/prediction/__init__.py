"""Prediction of requested but unused resources: decaying histograms of usage, and their peaks."""
