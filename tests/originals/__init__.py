"""The originals' own suites, run against this scheduler and this manager.

``python -m tests.originals kubernetes`` and ``… koordinator --checkout FOLDER`` build the suite as
its authors wrote it, start a real control plane without kube-scheduler, run the suite and compare
what came of every spec with what is known of it (``verdicts``).
"""
