"""Use an installed Odradek as a newcomer does; run by the Python of its environment.

    odradek-env/bin/python -I release/smoke.py        starts in an empty directory

It needs nothing but that environment. The brokers are stopped at the end, also after a failure.
"""

import json
import pathlib
import subprocess
import sys
import time

RECORDS = [f"record {number}" for number in range(1000)]
BIN = pathlib.Path(sys.executable).parent


def call(name: str, *arguments: str, text: str | None = None) -> str:
    """What a command of this environment prints to stdout; it has to succeed."""
    done = subprocess.run(
        [BIN / name, *arguments], input=text, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{name} {' '.join(arguments)}: {done.returncode}\n{done.stderr}")
    return done.stdout


def main() -> None:
    begun_s = time.monotonic()
    call("odradek", "up", "--detach", "--brokers", "3")
    try:
        started_s = time.monotonic() - begun_s
        servers = json.loads(call("odradek", "status", "--json"))["bootstrap"]
        at = ("--bootstrap-server", servers, "--topic", "greetings")
        call("kafka-topics", *at, "--create", "--partitions", "1", "--replication-factor", "3")
        call("kafka-console-producer", *at, text="\n".join(RECORDS))
        read = call(
            "kafka-console-consumer", *at, "--from-beginning", "--max-messages", str(len(RECORDS))
        )
        if read.splitlines() != RECORDS:
            raise SystemExit(f"{len(RECORDS)} records were written, and these are read:\n{read}")
        call("odradek", "doctor")
    finally:
        call("odradek", "down")
    check = call("python", "-c", "from odradek.record.check import *; print(fastest_check())")
    kernel = "the compiled kernel" if "built-in" in check else "no compiled kernel"
    print(
        f"Python {sys.version.split()[0]}, {kernel}: three brokers started in {started_s:.1f} s, "
        f"{len(RECORDS)} records written and read"
    )


if __name__ == "__main__":
    main()
