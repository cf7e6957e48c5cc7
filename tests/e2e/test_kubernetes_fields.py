"""The table of field names that misspelt manifests are found with."""

from tests.e2e.controlplane import ControlPlane
from tests.e2e.kubernetes_fields import PATH, as_text, kubernetes_fields


def test_table_equals_the_schema_of_the_api_server(controlplane: ControlPlane) -> None:
    """If not: ``python -m tests.e2e.kubernetes_fields``."""
    assert PATH.read_bytes() == as_text(kubernetes_fields(controlplane))
