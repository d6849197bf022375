"""Network namespaces that stand for hosts, on one bridge: root on Linux, and `ip`."""

import os
import shutil
import subprocess


def ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"


def may_make_namespaces() -> bool:
    if shutil.which("ip") is None or os.geteuid() != 0:
        return False
    name = f"odk-probe-{os.getpid()}"
    done = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
    if done.returncode == 0:
        ip("netns", "del", name)
    return done.returncode == 0


def add_switch(namespace: str) -> None:
    """A namespace with a bridge."""
    ip("netns", "add", namespace)
    ip("-n", namespace, "link", "add", "bridge", "type", "bridge")
    ip("-n", namespace, "link", "set", "bridge", "up")


def add_host(namespace: str, switch: str, port: str, address: str) -> None:
    """A namespace whose card `eth0` has this address, at a port of the switch's bridge."""
    ip("netns", "add", namespace)
    ip("-n", switch, "link", "add", port, "type", "veth", "peer", "name", "eth0",
       "netns", namespace)  # fmt: skip
    ip("-n", switch, "link", "set", port, "master", "bridge", "up")
    ip("-n", namespace, "address", "add", f"{address}/24", "dev", "eth0")
    ip("-n", namespace, "link", "set", "eth0", "up")
    ip("-n", namespace, "link", "set", "lo", "up")


def remove(namespace: str) -> None:
    subprocess.run(["ip", "netns", "del", namespace], check=False)
