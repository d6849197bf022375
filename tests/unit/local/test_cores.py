"""The number of brokers of `--brokers auto`."""

import os
import socket

import pytest

from odradek.local.cores import one_per_core, usable_cores
from odradek.local.directory import BrokerRecord, ClusterDirectory, ClusterRecord
from odradek.local.options import BROKERS_MAX


@pytest.mark.parametrize(
    ("quota", "limit"),
    [("max 100000", None), ("50000 100000", 1), ("150000 100000", 2), ("10000000 100000", None)],
)
def test_a_cgroup_s_quota_limits_the_cores(tmp_path, quota, limit):
    (tmp_path / "cpu.max").write_text(quota + "\n")
    there = len(os.sched_getaffinity(0))
    assert usable_cores(tmp_path / "cpu.max") == min(there, limit or there)


def test_without_cgroups_all_cores_count(tmp_path):
    assert usable_cores(tmp_path / "none") == len(os.sched_getaffinity(0))


def test_a_new_cluster_has_a_broker_for_each_core_in_the_rack_of_the_host(tmp_path):
    directory = ClusterDirectory(tmp_path / "D")
    assert one_per_core(directory, 8) == (8, (socket.gethostname(),))
    assert one_per_core(directory, 1_000)[0] == BROKERS_MAX


@pytest.mark.parametrize(("cores", "brokers"), [(2, 3), (3, 3), (4, 4)])
def test_an_existing_cluster_never_shrinks_and_keeps_its_racks(tmp_path, cores, brokers):
    directory = ClusterDirectory(tmp_path)
    with directory.locked():
        directory.save(ClusterRecord(up=False, brokers={n: BrokerRecord() for n in range(3)}))
    assert one_per_core(directory, cores) == (brokers, ())
