"""The clients of Hadoop on a real YARN: read, resize, refuse, end, shrink below what is used."""

import getpass
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from tests.e2e.waiting import eventually
from tests.e2e.yarn.real_yarn import REGISTERED, Amounts, RealYarn

from koordinator.hadoop.amounts import YarnResource
from koordinator.hadoop.configuration import read_clusters
from koordinator.hadoop.connection import YarnApi, YarnClientOptions, connector
from koordinator.hadoop.port import (
    ResourceManager,
    UnknownYarnNodeError,
    YarnLimit,
    YarnRefusedError,
)
from koordinator.hadoop.rest import NodeManager, WebService

BOTH = pytest.mark.parametrize("api", [YarnApi.REST, YarnApi.RPC])
WIDE = YarnResource(8, 8192)
NARROW = YarnResource(2, 600)


Connect = Callable[..., ResourceManager]


@pytest.fixture
def connected(yarn: RealYarn) -> Iterator[Connect]:
    """Return a connection like the operator's, by REST or RPC, as a user."""
    with ExitStack() as cleanup:

        def connect(api: YarnApi, user: str = "") -> ResourceManager:
            (config,) = read_clusters(yarn.conf_dir)
            options = YarnClientOptions(user=user or getpass.getuser(), api=api)
            client = connector(config, options)()
            cleanup.callback(client.close)
            return client

        yield connect


@pytest.fixture
def node_manager(yarn: RealYarn) -> Iterator[NodeManager]:
    """Return the client of a NodeManager that has just registered."""
    yarn.kill("nm")
    yarn.start_node_manager()
    eventually(lambda: yarn.own_limit() == yarn.limit() == REGISTERED, 60)
    client = NodeManager(WebService(("localhost", yarn.node_web), timeout_s=5.0))
    yield client
    client.close()


def resize(client: ResourceManager, yarn: RealYarn, to: YarnResource, timeout_ms: int = -1) -> None:
    """Change what the NodeManager has, and wait until it knows."""
    client.set_limit(YarnLimit(yarn.node_id, to, timeout_ms))
    eventually(lambda: yarn.own_limit() == Amounts(to.vcores, to.memory_mb))


@pytest.mark.usefixtures("node_manager")
def test_both_ways_see_and_change_the_same(yarn: RealYarn, connected: Connect) -> None:
    """A limit set by one client is read by the other; the NodeManager follows it."""
    rest, rpc = connected(YarnApi.REST), connected(YarnApi.RPC)
    for client, amounts in ((rest, YarnResource(6, 4096)), (rpc, YarnResource(3, 2048))):
        resize(client, yarn, amounts)
        assert list(rest.nodes()) == list(rpc.nodes())
        (node,) = rest.nodes()
        assert (node.node_id, node.state, node.limit) == (yarn.node_id, "RUNNING", amounts)
        assert rest.node(yarn.node_id) == node


@BOTH
def test_rejected_call_changes_nothing(api: YarnApi, yarn: RealYarn, connected: Connect) -> None:
    """A node that isn't there, a container that isn't one."""
    before, client = yarn.limit(), connected(api)
    with pytest.raises(UnknownYarnNodeError, match="localhost:1"):
        client.set_limit(YarnLimit("localhost:1", WIDE, -1))
    with pytest.raises(YarnRefusedError):
        client.signal_container("container_1_0001_01_000002; true")
    assert yarn.limit() == before


@pytest.mark.usefixtures("node_manager")
def test_rest_is_detected_from_hadoop_3_3_on(yarn: RealYarn, connected: Connect) -> None:
    """No user may change a node by RPC; by REST the HTTP filter sets the user to an admin."""
    auto = connected(YarnApi.AUTO, "nobody")
    resize(auto, yarn, WIDE)

    assert list(auto.nodes()) == list(connected(YarnApi.REST).nodes())
    node = auto.node(yarn.node_id)
    assert node is not None, "RPC has no such call"
    assert node.limit == WIDE
    auto.close()  # as after a failure: the client detects the API again
    resize(auto, yarn, NARROW)


def test_rpc_requires_an_admin(yarn: RealYarn, connected: Connect) -> None:
    """By REST the ResourceManager's HTTP filter sets the user for all clients."""
    before = yarn.limit()
    with pytest.raises(YarnRefusedError, match="nobody"):
        connected(YarnApi.RPC, "nobody").set_limit(YarnLimit(yarn.node_id, WIDE, -1))
    assert yarn.limit() == before


@BOTH
def test_a_container_ends_by_signal(
    api: YarnApi, yarn: RealYarn, node_manager: NodeManager, connected: Connect
) -> None:
    """The application requests another container; the NodeManager reports both."""
    client = connected(api)
    resize(client, yarn, WIDE)
    app = yarn.run_tasks(2, memory_mb=512)
    try:
        eventually(lambda: len(yarn.tasks()) == 2, 60)
        newest = max(yarn.tasks())
        by_id = {each.container_id: each for each in node_manager.containers()}
        assert by_id[newest].resource == YarnResource(1, 512)
        assert by_id[newest].application_id in {"", app}  # older versions don't say

        client.signal_container(newest)

        eventually(lambda: newest not in {c.container_id for c in node_manager.containers()})
        eventually(lambda: len(yarn.tasks()) == 2, 60)
    finally:
        yarn.end(app)


@BOTH
def test_limit_below_the_usage_follows_the_shrink_policy(
    api: YarnApi, yarn: RealYarn, node_manager: NodeManager, connected: Connect
) -> None:
    """The policies of docs/how-to/run-yarn.md: never, after a time, immediately, then never."""
    assert node_manager.containers() == []
    client = connected(api)
    resize(client, yarn, WIDE)
    app = yarn.run_tasks(3, memory_mb=512)
    try:
        for timeout_ms, least_s, most_s in ((-1, 4.0, None), (2000, 1.9, 10.0), (0, 0.0, 5.0)):
            eventually(lambda: len(yarn.tasks()) == 3, 60)
            tasks, began_s = sorted(yarn.tasks()), time.monotonic()
            resize(client, yarn, NARROW, timeout_ms)
            if most_s is None:
                time.sleep(least_s)
                assert sorted(yarn.tasks()) == tasks
            else:
                eventually(lambda newest=tasks[-1]: newest not in yarn.tasks(), most_s)  # type: ignore[misc]
                assert time.monotonic() - began_s >= least_s
            resize(client, yarn, WIDE, timeout_ms)
        # -1 does not clear the timeout of before.
        eventually(lambda: len(yarn.tasks()) == 3, 60)
        newest = max(yarn.tasks())
        resize(client, yarn, NARROW, -1)
        eventually(lambda: newest not in yarn.tasks(), 10)
    finally:
        yarn.end(app)
        eventually(lambda: yarn.used() == Amounts(0, 0), 60)
