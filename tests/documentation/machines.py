"""Stands for the three machines of docs/guides/production.md, in the directory of the page's run.

    python machines.py zookeeper     starts a ZooKeeper server on each
    python machines.py brokers       starts a broker on each
    python machines.py restart 1     SIGTERM, and a start
    python machines.py lose 3        SIGKILL, and its log directory is removed
    python machines.py start 3

The page's files zoo.cfg and 1.properties are the templates: a machine has its own address of the
loopback interface in place of 127.0.0.1, and a folder in place of /etc/odradek and /var/lib.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

HERE = pathlib.Path.cwd()
NAMES = {1: "alpha", 2: "beta", 3: "gamma"}


def folder(number: int) -> pathlib.Path:
    return HERE / NAMES[number]


def spawn(number: int, kind: str, command: list[str]) -> None:
    log = (folder(number) / f"{kind}.log").open("ab")
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    (folder(number) / f"{kind}.pid").write_text(str(process.pid))


def start_zookeeper(number: int) -> None:
    data = folder(number) / "zookeeper"
    data.mkdir(parents=True)
    (data / "myid").write_text(str(number))
    text = (HERE / "zoo.cfg").read_text().replace("/var/lib/zookeeper", str(data))
    file = folder(number) / "zoo.cfg"
    file.write_text(f"{text}clientPortAddress=127.0.0.{number}\n")
    spawn(number, "zookeeper", [str(HERE / "kafka/bin/zookeeper-server-start.sh"), str(file)])


def start_broker(number: int) -> None:
    etc = folder(number) / "etc"
    etc.mkdir(exist_ok=True)
    shutil.copy(HERE / "ca.pem", etc / "ca.pem")
    shutil.copy(HERE / f"{NAMES[number]}.pem", etc / "broker.pem")
    lines = (HERE / "1.properties").read_text().splitlines(keepends=True)
    own = ("listeners=", "advertised.listeners=", "odradek.http.host=")
    text = "".join(
        line.replace("127.0.0.1", f"127.0.0.{number}") if line.startswith(own) else line
        for line in lines
    )
    text = text.replace("broker.id=1", f"broker.id={number}")
    text = text.replace("broker.rack=alpha", f"broker.rack={NAMES[number]}")
    text = text.replace("/etc/odradek", str(etc)).replace("/var/lib", str(folder(number)))
    file = etc / f"{number}.properties"
    file.write_text(text)
    spawn(number, "broker", [sys.executable, "-m", "odradek", "server-start", str(file)])


def end_broker(number: int, how: signal.Signals) -> None:
    pid = int((folder(number) / "broker.pid").read_text())
    os.kill(pid, how)
    while pathlib.Path(f"/proc/{pid}").is_dir():
        time.sleep(0.05)


def main(verb: str, number: str = "") -> None:
    match verb:
        case "zookeeper":
            for each in NAMES:
                start_zookeeper(each)
        case "brokers":
            for each in NAMES:
                start_broker(each)
        case "restart":
            end_broker(int(number), signal.SIGTERM)
            start_broker(int(number))
        case "lose":
            end_broker(int(number), signal.SIGKILL)
            shutil.rmtree(folder(int(number)) / "odradek")
        case "start":
            start_broker(int(number))
        case _:
            raise SystemExit(f"machines.py {verb}: what is that?")


if __name__ == "__main__":
    main(*sys.argv[1:])
