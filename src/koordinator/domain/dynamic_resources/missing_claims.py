"""What is said of claims of a pod that have not been made from their templates."""

from typing import Final

NOT_MADE: Final = "waiting for the resourceclaim of {!r} to be created"


def template_to_create(namespace: str, name: str) -> str:
    """Return what makes the claim, where it is not known whether the template exists."""
    return (
        f"create the ResourceClaimTemplate {namespace}/{name} if it is not there: "
        "kube-controller-manager makes the claim from it"
    )
