"""The key folder: secrets that nobody else reads, and a record that a crash does not break."""

import copy
import errno
import json
import os
import pickle
from pathlib import Path

import pytest

from fednode.errors import ConfigError, DataError, StoreError
from fednode_clients.keyfolder.enrolment_key import PUBLIC_KIND, SECRET_KIND
from fednode_clients.keyfolder.folder import KeyFolder
from fednode_crypto.identity import SigningKey, open_box, seal_box

ROOT = SigningKey.generate().public


@pytest.fixture
def folder(tmp_path):
    return KeyFolder.create(tmp_path / "keys", "client-1", ROOT)


def test_nobody_else_can_read_it(folder):
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert (folder.path / "state").stat().st_mode & 0o777 == 0o700
    folder.state.put("share/task", b"secret")
    folder.audit_log.append({"joined": "task"})
    secret = [folder.path / "identity.json", folder.path / "record.jsonl", *(folder.path / "state").iterdir()]
    assert len(secret) == 4 and {path.stat().st_mode & 0o777 for path in secret} == {0o600}


def test_it_opens_as_the_same_member(folder):
    again = KeyFolder.open(folder.path)
    assert again.member("client") == folder.member("client") and again.name == "client-1"
    assert again.enrolment_key == ROOT
    box = seal_box(folder.member("client").box_key, b"for you", b"")
    assert open_box(again.box_key, box, b"") == b"for you"


def test_it_shows_prints_and_pickles_no_key(folder):
    identity = json.loads((folder.path / "identity.json").read_bytes())
    for text in (repr(folder), str(folder), repr(folder.signer), repr(folder.member("client"))):
        assert identity["signing_key"] not in text and identity["box_key"] not in text
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            attempt(folder)


def test_keys_are_never_overwritten(folder):
    before = (folder.path / "identity.json").read_bytes()
    with pytest.raises(ConfigError, match="never overwritten"):
        KeyFolder.create(folder.path, "client-2", ROOT)
    assert (folder.path / "identity.json").read_bytes() == before


def test_keys_that_others_can_read_are_refused(folder):
    (folder.path / "identity.json").chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        KeyFolder.open(folder.path)


def test_no_keys(tmp_path):
    with pytest.raises(DataError, match="fednode keys init"):
        KeyFolder.open(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b"\xff", b'{"name":"a","signing_key":"zz","box_key":"00"}', b"SECRET"]
)
def test_damaged_keys_are_refused_without_showing_them(folder, content):
    (folder.path / "identity.json").write_bytes(content)
    with pytest.raises(
        ConfigError, match=r"put identity\.json and enrolment\.pub back from a copy, never record"
    ) as refused:
        KeyFolder.open(folder.path)
    assert "SECRET" not in str(refused.value) and "zz" not in str(refused.value)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EACCES])
def test_keys_that_cannot_be_read_now_are_not_said_to_be_damaged(folder, monkeypatch, number):
    def refused(_path):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "read_bytes", refused)
    with pytest.raises(ConfigError, match=os.strerror(number)) as told:
        KeyFolder.open(folder.path)
    assert "retire" not in str(told.value) and "copy" not in str(told.value)


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match="could not make"):
        KeyFolder.create(tmp_path / "file" / "keys", "client-1", ROOT)


def test_state_is_kept_by_name_and_stays_inside(folder):
    for name in ("share/a", "share/b", "../../etc/passwd", "x" * 500):
        folder.state.put(name, name.encode())
    again = KeyFolder.open(folder.path)
    assert [again.state.get(name) for name in ("share/a", "share/b")] == [b"share/a", b"share/b"]
    assert again.state.get("../../etc/passwd") == b"../../etc/passwd" and again.state.get("never") is None
    assert len(list((folder.path / "state").iterdir())) == 4
    folder.state.drop("share/a")
    folder.state.drop("share/a")
    assert folder.state.get("share/a") is None and folder.state.get("share/b") == b"share/b"


def test_state_is_shortened_on_the_disk_before_anything_rests_on_it(folder, monkeypatch):
    folder.state.put("key", b"round and key")
    (file,) = (folder.path / "state").iterdir()
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append((os.fstat(descriptor).st_ino, file.read_bytes())))
    folder.state.shorten("key", 5)
    assert synced == [(file.stat().st_ino, b"round")] and folder.state.get("key") == b"round"


@pytest.mark.parametrize("torn", [b"{", b'{"opened":"task","round":2}', b"\x00\x00"])
def test_a_line_that_a_crash_left_without_its_end_does_not_count_and_does_not_spread(folder, torn):
    folder.audit_log.append({"round": 1})
    with (folder.path / "record.jsonl").open("ab") as file:
        file.write(torn)
    assert folder.audit_log.entries() == [{"round": 1}]
    folder.audit_log.append({"round": 3})
    assert folder.audit_log.entries() == [{"round": 1}, {"round": 3}]


@pytest.mark.parametrize("line", [b"{\n", b"\xff\n", b"\n"])
def test_a_whole_line_that_is_damaged_is_not_passed_over(folder, line):
    folder.audit_log.append({"round": 1})
    with (folder.path / "record.jsonl").open("ab") as file:
        file.write(line)
    with pytest.raises(StoreError, match="must not answer"):
        folder.audit_log.entries()


def test_what_cannot_be_read_or_written_is_a_store_error(folder):
    (folder.path / "record.jsonl").mkdir()
    for attempt in (folder.audit_log.entries, lambda: folder.audit_log.append({})):
        with pytest.raises(StoreError):
            attempt()
    folder.state.put("a", b"a")
    (stored,) = (folder.path / "state").iterdir()
    stored.unlink()
    stored.mkdir()
    for attempt in (lambda: folder.state.get("a"), lambda: folder.state.put("a", b"b")):
        with pytest.raises(StoreError):
            attempt()


def test_a_folder_that_trusts_anything_but_a_public_half_is_refused_without_showing_it(folder):
    file, digits = folder.path / "enrolment.pub", ROOT.raw.hex()
    assert file.read_text() == f"{PUBLIC_KIND} {digits}\n"
    for content, words in (
        (f"{SECRET_KIND} {digits}", "secret enrolment key.*name enrolment.pub"),
        (digits, "does not hold the public half"),
        (f"{PUBLIC_KIND} {digits[:-2]}", "does not hold the public half"),
        (f"{PUBLIC_KIND}2 {digits}", "does not hold the public half"),
    ):
        file.write_text(content)
        with pytest.raises(ConfigError, match=words) as refused:
            KeyFolder.open(folder.path)
        assert digits[:32] not in str(refused.value)
    file.unlink()
    with pytest.raises(DataError, match=r"ask the enroller for enrolment\.pub"):
        KeyFolder.open(folder.path)


def test_a_folder_with_an_enrolment_file_takes_no_keys(tmp_path):
    (tmp_path / "enrolment.pub").write_text("kept")
    with pytest.raises(ConfigError, match="never overwritten"):
        KeyFolder.create(tmp_path, "client-1", ROOT)
    assert [path.name for path in tmp_path.iterdir()] == ["enrolment.pub"]
