"""The limit of open files."""

import resource

from koordinator.process.termination import allow_all_descriptors


def test_a_low_limit_is_raised_as_far_as_is_allowed() -> None:
    """To the hard limit, which stays."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard - 1, hard))
        assert allow_all_descriptors() == hard
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
