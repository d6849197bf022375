"""Writes a folder like that of Apache Kafka's distribution, whose scripts run the fetched jars.

    python apache_home.py FOLDER      makes FOLDER/bin/kafka-server-start.sh and others

The pages of docs/ call these scripts as their readers do.
"""

import pathlib
import shlex
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "clients" / "support"))

import fetch

SCRIPTS = {
    "zookeeper-server-start.sh": ("3.9", "org.apache.zookeeper.server.quorum.QuorumPeerMain"),
    "kafka-server-start.sh": ("3.9", "kafka.Kafka"),
    "kafka-topics.sh": ("3.9", "org.apache.kafka.tools.TopicCommand"),
    "kafka-consumer-groups.sh": (
        "3.9",
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    ),
    "connect-mirror-maker.sh": ("mirror", "org.apache.kafka.connect.mirror.MirrorMaker"),
}


def main(folder: pathlib.Path) -> None:
    (folder / "bin").mkdir(parents=True)
    for name, (line, main_class) in SCRIPTS.items():
        command = shlex.join(fetch.java(line, main_class, heap="512M"))
        script = folder / "bin" / name
        script.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        script.chmod(0o755)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
