"""The written-down frames: another implementation that agrees with these agrees with this one."""

import json
from pathlib import Path

import pytest
from kit.faults import reason_of

from fednode.errors import PeerFault
from fednode.wire import digest, join_parts, pack, split_parts, unpack

VECTORS = json.loads((Path(__file__).resolve().parents[1] / "vectors" / "wire.json").read_text())


def octets(row, name="bytes"):
    return bytes.fromhex(row[name])


@pytest.mark.parametrize("row", VECTORS["frames"], ids=lambda row: row["kind"])
def test_a_frame_is_written_and_read_byte_for_byte(row):
    assert pack(row["kind"], row["header"], octets(row, "body")) == octets(row)
    frame = unpack(row["kind"], octets(row))
    assert (frame.kind, frame.header.raw(), frame.body) == (row["kind"], row["header"], octets(row, "body"))


@pytest.mark.parametrize("row", VECTORS["refused"], ids=lambda row: row["why"])
def test_a_hostile_frame_is_refused_for_its_reason(row):
    with pytest.raises(PeerFault) as caught:
        unpack(row["kind"], octets(row), row["max_body"])
    assert caught.value.reason == row["reason"]


@pytest.mark.parametrize("row", VECTORS["parts"], ids=lambda row: str(len(row["parts"])))
def test_parts_are_written_and_read_byte_for_byte(row):
    parts = {name: bytes.fromhex(data) for name, data in row["parts"].items()}
    assert join_parts(parts) == octets(row)
    assert split_parts(octets(row), 8) == parts


@pytest.mark.parametrize("row", VECTORS["refused_parts"], ids=lambda row: row["why"])
def test_hostile_parts_are_refused(row):
    assert reason_of(split_parts, octets(row), 8) == "malformed"


@pytest.mark.parametrize("row", VECTORS["digests"], ids=lambda row: row["digest"][:8])
def test_digests_are_those_written_down(row):
    assert digest(row["domain"], *(bytes.fromhex(part) for part in row["parts"])).hex() == row["digest"]
