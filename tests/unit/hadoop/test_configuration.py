"""ResourceManagers in Hadoop's configuration files."""

from pathlib import Path

import pytest

from koordinator.foundation.errors import InputError
from koordinator.hadoop.configuration import read_clusters


def write(folder: Path, name: str, **properties: str) -> None:
    """Write a file; double underscores of the names are dashes, single ones dots."""
    entries = "".join(
        f"<property><name>{key.replace('__', '-').replace('_', '.')}</name>"
        f"<value>{value}</value></property>"
        for key, value in properties.items()
    )
    (folder / name).write_text(f"<?xml version='1.0'?><configuration>{entries}</configuration>")


def test_address_of_one_resource_manager_has_default_ports(tmp_path: Path) -> None:
    """Ports that are not named are Hadoop's; later files win."""
    write(tmp_path, "yarn-default.xml", yarn_resourcemanager_address="default:1")
    write(tmp_path, "yarn-site.xml", yarn_resourcemanager_address="rm.example:9032")

    (cluster,) = read_clusters(tmp_path)
    (manager,) = cluster.resource_managers
    assert cluster.cluster_id == "__default_yarn_cluster__"
    assert manager.client == ("rm.example", 9032)
    assert manager.admin == ("rm.example", 8033)
    assert manager.web == ("rm.example", 8088)
    assert not manager.uses_tls


def test_several_clusters_with_high_availability_and_tls(tmp_path: Path) -> None:
    """A cluster's files have its id in front; each ResourceManager has addresses of its own."""
    write(tmp_path, "yarn-site.xml", yarn_resourcemanager_hostname="one")
    write(
        tmp_path,
        "etl.yarn-site.xml",
        yarn_resourcemanager_ha_enabled="true",
        yarn_resourcemanager_ha_rm__ids="a, b",
        yarn_resourcemanager_hostname_a="ra",
        yarn_resourcemanager_address_b="rb:1",
        yarn_resourcemanager_webapp_https_address_b="web:2",
        yarn_http_policy="HTTPS_ONLY",
    )

    _, etl = read_clusters(tmp_path)
    assert etl.cluster_id == "etl"
    assert [each.rm_id for each in etl.resource_managers] == ["a", "b"]
    assert [each.web for each in etl.resource_managers] == [("ra", 8090), ("web", 2)]
    assert [each.admin for each in etl.resource_managers] == [("ra", 8033), ("rb", 8033)]
    assert all(each.uses_tls for each in etl.resource_managers)


def test_kerberos_is_rejected_with_a_message(tmp_path: Path) -> None:
    """The message names the property; no connection is attempted."""
    write(tmp_path, "core-site.xml", hadoop_security_authentication="kerberos")
    write(tmp_path, "yarn-site.xml", yarn_resourcemanager_hostname="one")

    with pytest.raises(InputError, match=r"must be simple, got 'kerberos': Kerberos is not"):
        read_clusters(tmp_path)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({}, "yarn.resourcemanager.address: is required"),
        ({"yarn_resourcemanager_address": "rm:x"}, "must be an address such as rm.example"),
        ({"yarn_resourcemanager_address": "rm:99999"}, "got 'rm:99999'"),
        ({"yarn_resourcemanager_address": "${where}:1"}, "without variables"),
        ({"yarn_resourcemanager_ha_enabled": "true"}, "ha.rm-ids: is required"),
    ],
)
def test_what_names_no_resource_manager(
    tmp_path: Path, properties: dict[str, str], message: str
) -> None:
    """The file, the property and what is accepted."""
    write(tmp_path, "yarn-site.xml", **properties)

    with pytest.raises(InputError) as caught:
        read_clusters(tmp_path)
    assert message in str(caught.value)
    assert "yarn-site.xml" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<configuration>", "is not XML"),
        ("<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>", "must not declare entities"),
        ("x" * (1 << 20 | 1), "larger than"),
    ],
)
def test_files_that_are_none(tmp_path: Path, text: str, message: str) -> None:
    """Hostile ones too."""
    (tmp_path / "yarn-site.xml").write_text(text)
    with pytest.raises(InputError, match=message):
        read_clusters(tmp_path)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize(
    "declared", ["<!ENTITY b 'c'>", "<!ENTITY % b 'c'>", "<!ENTITY b SYSTEM 'x'>"]
)
def test_entities_are_refused_in_every_encoding(
    tmp_path: Path, encoding: str, declared: str
) -> None:
    """A declaration is recognized although its bytes differ between encodings."""
    name = encoding.removesuffix("-sig").removesuffix("-le").removesuffix("-be")
    text = f"<?xml version='1.0' encoding='{name}'?><!DOCTYPE a [{declared}]><a/>"
    (tmp_path / "yarn-site.xml").write_bytes(text.encode(encoding))
    with pytest.raises(InputError, match=r"must not declare entities|is not XML"):
        read_clusters(tmp_path)
    if encoding in ("utf-8", "utf-16"):
        with pytest.raises(InputError, match="must not declare entities"):
            read_clusters(tmp_path)


def test_a_folder_without_yarn_site(tmp_path: Path) -> None:
    """Nothing else is guessed."""
    with pytest.raises(InputError, match=r"yarn-site.xml is missing"):
        read_clusters(tmp_path)
