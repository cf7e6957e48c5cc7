"""Errors of the control plane itself, as opposed to failures of a test."""


class ControlPlaneError(Exception):
    """A program is missing, can't be built, doesn't come up or refuses what it was asked."""


class ApiError(ControlPlaneError):
    """The API server answered with an HTTP status of 400 or above."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"HTTP {status}: {text}")
        self.status = status
