"""`odradek testkit`: a cluster for tests in another language, with the kit's verbs over HTTP.

The first line on stdout is {"url": "http://127.0.0.1:PORT", "bootstrap": "127.0.0.1:..."}.
"""

import json
import signal
import sys
import threading
from collections.abc import Sequence

import click

from odradek.cli.odradek.local import say
from odradek.config.properties import parse_overrides


@click.command
@click.option("--brokers", default=1, show_default=True, metavar="N", help="The number of brokers.")
@click.option("--port", default=0, metavar="P", help="The port for HTTP.  [default: a free one]")
@click.option("--processes", is_flag=True, help="Each broker is a process.")
@click.option("--until-eof", is_flag=True, help="End when the standard input is closed.")
@click.argument("properties", nargs=-1, metavar="[-- KEY=VALUE ...]")
def testkit(
    *, brokers: int, port: int, processes: bool, until_eof: bool, properties: Sequence[str]
) -> None:
    """Run a cluster for tests until Ctrl-C or SIGTERM; then nothing of it is left.

    Arguments after -- are broker options. docs/testing.md describes the requests.
    """
    from odradek.testkit.cluster import KafkaCluster  # noqa: PLC0415 - brokers, only for this
    from odradek.testkit.http import KitServer  # noqa: PLC0415

    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: ended.set())
    cluster = KafkaCluster(brokers, processes=processes, properties=parse_overrides(properties))
    with cluster, KitServer(cluster, port) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        serving.start()
        if until_eof:
            threading.Thread(target=_wait_for_end, args=(ended,), daemon=True).start()
        print(json.dumps({"url": server.url, "bootstrap": cluster.bootstrap}), flush=True)
        say(f"{brokers} brokers at {cluster.bootstrap}; verbs at {server.url}; Ctrl-C ends it")
        while not ended.wait(1.0):  # in steps, so that signals are handled
            pass
        server.shutdown()
        serving.join()


def _wait_for_end(ended: threading.Event) -> None:
    """Until all ends of the pipe are closed that is the standard input."""
    while sys.stdin.buffer.read(4096):
        pass
    ended.set()
