"""What a broker reports of itself and of the cluster: by HTTP, and to our tools by DescribeState.

    journal       ?topic=T [&partition=P] | ?broker=N  [&limit=1000]   what was decided, and why
    controller    ?topic=T [&partition=P] | ?broker=N                  how things stand
    broker                                                             how this broker is

All of it is read-only, has a bound, and names no secret: options are named without their values.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from odradek.broker.controller_view import control_routes
from odradek.broker.http import Response, Route, json_response

if TYPE_CHECKING:
    from odradek.broker.server import Broker


def report_routes(broker: "Broker") -> Mapping[str, Route]:
    """Each report by its name."""
    return {
        **control_routes(broker.controller, broker.journal, broker_id=broker.config.broker_id),
        "broker": lambda _query: _broker(broker),
    }


def _broker(broker: "Broker") -> Response:
    config = broker.config
    return json_response(
        {
            **asdict(broker.health()),
            "bound": [
                f"{point.listener}://{point.host}:{port}"
                for point, port in zip(config.listeners, broker.server.ports, strict=False)
            ],
        }
    )
