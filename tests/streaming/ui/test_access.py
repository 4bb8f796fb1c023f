"""Access to the page: tokens in files, sessions, failed attempts."""

from __future__ import annotations

import os
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming import PageError
from streaming.ui import access as access_module
from streaming.ui.access import (
    ATTEMPTS_WINDOW_S,
    MAX_ATTEMPTS,
    MAX_ATTEMPTS_PER_ADDRESS,
    MAX_SESSIONS,
    SESSION_LIFETIME_S,
    TOKEN_VARIABLE,
    Access,
    FailedAttempts,
    Token,
    check_token,
    find_token,
    read_token_file,
)


class ManualClock:
    """A clock that only the test advances."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def test_a_missing_token_file_is_created_for_its_owner_only(tmp_path):
    path = tmp_path / "new" / "token"
    before = os.umask(0)
    try:
        token = read_token_file(path)
    finally:
        os.umask(before)
    assert len(token) >= 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_token_file(path) == token
    check_token(token)
    assert read_token_file(tmp_path / "other") != token


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_token_file_that_others_may_read_or_change_is_refused(tmp_path, mode):
    path = tmp_path / "token"
    read_token_file(path)
    path.chmod(mode)
    with pytest.raises(PageError, match=f"has mode {mode:04o}.*run chmod 600"):
        read_token_file(path)


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe", b"two\nlines", b"x" * 2000])
def test_a_token_file_without_a_token_is_refused(tmp_path, content):
    path = tmp_path / "token"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(PageError, match="does not contain a token"):
        read_token_file(path)


def test_a_token_file_that_cannot_be_read_or_created_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for path in (tmp_path, tmp_path / "file" / "token", tmp_path / "link"):
        with pytest.raises(PageError, match="cannot be read or created"):
            read_token_file(path)
    with pytest.raises(PageError, match="is not a regular file"):
        os.mkfifo(tmp_path / "pipe", 0o600)
        descriptor = os.open(tmp_path / "pipe", os.O_RDWR)  # so that reading does not wait
        try:
            read_token_file(tmp_path / "pipe")
        finally:
            os.close(descriptor)


def test_finding_the_token_removes_it_from_the_environment(tmp_path):
    environment = {TOKEN_VARIABLE: "from-the-variable"}
    result = find_token(None, environment)
    assert result == Token("from-the-variable", f"the variable {TOKEN_VARIABLE}")
    assert "from-the-variable" not in repr(result)
    assert environment == {}
    assert find_token(None, environment) is None
    environment = {TOKEN_VARIABLE: "from-the-variable"}
    result = find_token(tmp_path / "token", environment)
    assert result.value == read_token_file(tmp_path / "token")
    assert str(tmp_path / "token") in result.origin
    assert environment == {}


def test_sessions_expire_and_their_number_is_bounded():
    clock = ManualClock()
    access = Access("a-long-token", clock)
    first = access.begin_session()
    assert access.is_session(first)
    assert not access.is_session("") and not access.is_session(first + "x")
    sessions = [access.begin_session() for _ in range(MAX_SESSIONS)]
    assert not access.is_session(first)
    assert all(map(access.is_session, sessions))
    clock.now += SESSION_LIFETIME_S
    assert not any(map(access.is_session, sessions))


@given(st.text(), st.text(min_size=8))
def test_only_an_equal_text_is_accepted_as_the_token(given_text, token):
    assert Access(token).is_token(given_text, "a") == (given_text == token)
    assert Access(token).is_token(token, "a")


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from([0.0, 1.0, ATTEMPTS_WINDOW_S / 2])),
        max_size=60,
    )
)
def test_an_address_is_blocked_while_it_failed_too_often_in_the_last_minute(failures):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(access_module, "MAX_ATTEMPTS_PER_ADDRESS", 3)
        clock, recorded = ManualClock(), []
        attempts = FailedAttempts(clock)
        for failing_address, wait in failures:
            clock.now += wait
            attempts.fail(failing_address)
            recorded.append((clock.now, failing_address))
            window_start = clock.now - ATTEMPTS_WINDOW_S
            for address in "abc":
                recent = [
                    failed_at
                    for failed_at, failed_address in recorded
                    if failed_address == address and failed_at > window_start
                ]
                assert attempts.is_blocked(address) == (len(recent) >= 3)


def test_failures_of_many_addresses_block_all_and_use_bounded_memory():
    clock = ManualClock()
    attempts = FailedAttempts(clock)
    for number in range(10 * MAX_ATTEMPTS):
        attempts.fail(f"address {number}")
    assert attempts.is_blocked("another")
    assert (
        len(attempts._failures) <= MAX_ATTEMPTS
        and len(attempts._failures_of_address) <= MAX_ATTEMPTS
    )
    clock.now += ATTEMPTS_WINDOW_S
    assert not attempts.is_blocked("another")
    assert not attempts._failures_of_address
    assert MAX_ATTEMPTS_PER_ADDRESS < MAX_ATTEMPTS
