"""Fixtures: a server of the S3 protocol, and a new folder of its bucket for each test."""

from __future__ import annotations

import uuid

import pytest

from tests.support.s3_server import BUCKET, s3_server


@pytest.fixture(scope="session")
def s3_environment():
    with s3_server() as environment:
        yield environment


@pytest.fixture
def location(s3_environment, monkeypatch, tmp_path):
    for name, value in s3_environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return f"s3://{BUCKET}/{uuid.uuid4().hex}/state"
