"""The wheel and the source archive hold what they must, and say what is true.

`./run build` does more: it also makes the compiled kernel's, and uses what it has made.
"""

import email
import email.policy
import pathlib
import platform
import re
import runpy
import tarfile
import tomllib
import zipfile

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from odradek import __version__

ROOT = pathlib.Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
KERNEL = tomllib.loads((ROOT / "fast" / "pyproject.toml").read_text())["project"]
PACKAGES = {"odradek": "src", "pyspark_odradek": "src", "odradek_demo": "examples"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    made = WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("dist")))
    with zipfile.ZipFile(next(iter(made))) as archive:
        yield archive


@pytest.fixture(scope="module")
def metadata(wheel):
    return email.message_from_bytes(
        wheel.read(f"odradek-{__version__}.dist-info/METADATA"),
        policy=email.policy.default,
    )


def test_the_wheel_has_every_file_of_its_packages_and_no_other(wheel):
    there = {name for name in wheel.namelist() if ".dist-info/" not in name}

    assert there == {
        str(path.relative_to(ROOT / folder))
        for package, folder in PACKAGES.items()
        for path in (ROOT / folder / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_has_the_licence_and_the_notice(wheel):
    folder = f"odradek-{__version__}.dist-info/licenses"

    assert wheel.read(f"{folder}/LICENSE") == (ROOT / "LICENSE").read_bytes()
    assert wheel.read(f"{folder}/NOTICE") == (ROOT / "NOTICE").read_bytes()


def test_every_command_of_the_wheel_leads_to_a_function(wheel):
    text = wheel.read(f"odradek-{__version__}.dist-info/entry_points.txt").decode()
    files = set(wheel.namelist())

    targets = set(re.findall(r" = ([\w.]+):\w+$", text, re.MULTILINE))
    assert targets
    assert {f"{target.replace('.', '/')}.py" for target in targets} <= files


def test_the_metadata_is_that_of_a_package_index(metadata):
    assert metadata["Name"] == "odradek"
    assert metadata["Version"] == __version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload() == (ROOT / "README.md").read_text()
    assert {line.split(",")[0] for line in metadata.get_all("Project-URL")} == {
        "Changelog", "Documentation", "Issues", "Source",
    }  # fmt: skip


def test_a_clean_environment_installs_only_small_packages(metadata):
    needed = [line for line in metadata.get_all("Requires-Dist") if "extra ==" not in line]

    assert {re.split(r"[<>=]", line)[0] for line in needed} == {
        "click", "cramjam", "crc32c", "h11", "lz4", "prometheus-client", "rich", "zstandard",
    }  # fmt: skip


def test_the_source_archive_has_what_its_wheel_is_made_of(tmp_path):
    made = SdistBuilder(str(ROOT)).build(directory=str(tmp_path))
    with tarfile.open(next(iter(made))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    assert {
        "pyproject.toml", "README.md", "LICENSE", "NOTICE", "CHANGELOG.md", "run",
        "src/odradek/__init__.py", "examples/odradek_demo/command.py", "fast/odradek_fast.c",
        "tests/test_release.py",
    } <= names  # fmt: skip
    assert [name for name in names if name.startswith((".venv", ".git/", "dist"))] == []


def test_both_packages_name_the_same_addresses_and_versions_of_python():
    def versions(project):
        return {each for each in project["classifiers"] if "Python :: 3" in each}

    assert KERNEL["urls"].items() <= PROJECT["urls"].items()
    assert versions(KERNEL) == versions(PROJECT)
    assert KERNEL["requires-python"] == PROJECT["requires-python"]


def test_the_changes_of_this_version_are_listed():
    changes = (ROOT / "CHANGELOG.md").read_text()

    assert re.search(rf"^## {re.escape(__version__)}, (not yet released|20\d\d-\d\d-\d\d)$",
                     changes, re.MULTILINE)  # fmt: skip


@pytest.fixture(scope="module")
def build():
    return runpy.run_path(str(ROOT / "release" / "build.py"))


def test_the_kernel_is_compiled_for_two_processors_and_two_libraries(build):
    assert build["TARGETS"] == {
        "manylinux_2_17_x86_64": "x86_64-linux-gnu.2.17",
        "musllinux_1_2_x86_64": "x86_64-linux-musl",
        "manylinux_2_17_aarch64": "aarch64-linux-gnu.2.17",
        "musllinux_1_2_aarch64": "aarch64-linux-musl",
    }


def test_only_wheels_for_this_machine_are_installed(build):
    machine = platform.machine()
    names = [
        "odradek-0.1.0-py3-none-any.whl",
        "odradek-0.1.0.tar.gz",
        *(f"odradek_fast-0.2.0-cp311-abi3-{tag}.whl" for tag in build["TARGETS"]),
    ]

    assert [name for name in names if build["is_for_this_machine"](name)] == [
        "odradek-0.1.0-py3-none-any.whl",
        f"odradek_fast-0.2.0-cp311-abi3-manylinux_2_17_{machine}.whl",
    ]
