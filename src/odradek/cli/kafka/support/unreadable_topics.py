"""Topics whose znode cannot be read: no broker has them in its metadata, only the controller."""

from collections.abc import Mapping

from odradek.client.admin.state import describe_state
from odradek.client.cluster import Cluster
from odradek.model.errors import ApiError
from odradek.model.printable import printable
from odradek.wire.api_keys import ApiKey


async def unreadable_topics(cluster: Cluster) -> Mapping[str, str]:
    """What is wrong with each, by name, sorted; empty for other brokers than Odradek's.

    It is empty also for a client that may not see the controller's state (Cluster Describe).
    """
    try:
        if ApiKey.DESCRIBE_STATE not in (await cluster.any_broker()).versions:
            return {}
        connection = await cluster.controller()
        report = await describe_state(connection, "controller", {"only": "unreadable_topics"})
    except (ApiError, ConnectionError):
        return {}
    found: Mapping[str, str] = (report or {}).get("unreadable_topics", {})
    return {name: printable(found[name]) for name in sorted(found)}
