"""Limit of open files of a process."""

import resource


def allow_all_descriptors() -> int:
    """Raise the soft limit to the hard one, and return it.

    The soft one is kept low for programs that use select(2), as container runtimes and systemd do;
    a node agent has thousands of files of cgroups open.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
