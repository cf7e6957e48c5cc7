"""Selection of requests that go through a proxy."""

import pytest

from koordinator.cluster.kubernetes.proxies import proxy_for

PROXY = "http://proxy:3128"


@pytest.mark.parametrize(
    ("url", "environ", "expected"),
    [
        ("https://api:6443", {"HTTPS_PROXY": PROXY}, PROXY),
        ("https://api:6443", {"https_proxy": "proxy:3128"}, PROXY),
        ("http://api", {"HTTPS_PROXY": PROXY}, None),
        ("http://api", {"http_proxy": PROXY}, PROXY),
        ("https://api", {}, None),
        ("https://localhost:6443", {"HTTPS_PROXY": PROXY}, None),
        ("https://127.0.0.2", {"HTTPS_PROXY": PROXY}, None),
    ],
)
def test_the_scheme_chooses_the_variable(
    url: str, environ: dict[str, str], expected: str | None
) -> None:
    """Capital letters win; this machine is never behind a proxy."""
    assert proxy_for(url, environ) == expected


@pytest.mark.parametrize(
    ("host", "exempt", "expected"),
    [
        ("10.96.0.1", "192.168.0.0/16, 10.0.0.0/8", None),
        ("11.0.0.1", "10.0.0.0/8", PROXY),
        ("10.96.0.1", "10.96.0.1", None),
        ("10.96.0.1", "10.96.0.1:443", None),
        ("10.96.0.1", "10.96.0.1:80", PROXY),
        ("[fd00::1]", "fd00::/8", None),
        ("api.example.com", "example.com", None),
        ("api.example.com", ".example.com", None),
        ("example.com", ".example.com", PROXY),
        ("example.com", "*.example.com", PROXY),
        ("badexample.com", "example.com", PROXY),
        ("example.com", "EXAMPLE.com:443", None),
        ("anything", "*", None),
        ("anything", "", PROXY),
    ],
)
def test_no_proxy_exempts_networks_addresses_and_domains(
    host: str, exempt: str, expected: str | None
) -> None:
    """Networks, addresses, domains with their subdomains, and each with a port."""
    environ = {"HTTPS_PROXY": PROXY, "NO_PROXY": exempt}
    assert proxy_for(f"https://{host}", environ) == expected
