"""What tests and benchmarks share to start servers and to wait for them."""

import socket
import sys
import time

import pytest
from bench.kit import apache, raw


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not keep the port")
def test_a_free_port_is_kept_for_a_server_and_given_to_no_one_else():
    port = apache.free_port()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((apache.HOST, port))
    for _restart in range(2):
        with socket.create_server((apache.HOST, port)), raw.connect(f"{apache.HOST}:{port}"):
            pass


def test_the_time_to_wait_for_a_broker_may_end_between_two_looks_at_the_clock(monkeypatch):
    address = f"{apache.HOST}:{apache.free_port()}"
    clock_s = iter([0.0, 0.6, 1.2])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock_s))
    with pytest.raises(TimeoutError, match="did not answer"):
        raw.wait_for_metadata(address, timeout_s=1.0)
