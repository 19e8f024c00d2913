"""Both files, whole or absent."""

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest
from kit.sample_record import sample_record

from fednode.errors import StoreError
from fednode.reports import parse_report, render_html, write_reports


@pytest.mark.thorough
def test_both_files_are_written_and_nothing_else(tmp_path: Path) -> None:
    html, text = write_reports(sample_record(), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["registry.yaml", "report.html", "report.json"]
    assert html.read_bytes() == render_html(sample_record())
    assert parse_report(text.read_bytes()) == sample_record()
    write_reports(replace(sample_record(), run_id="second"), tmp_path)
    assert parse_report(text.read_bytes()).run_id == "second" and b"run second" in html.read_bytes()


def test_a_record_with_a_nan_writes_nothing(tmp_path: Path) -> None:
    record = sample_record()
    with pytest.raises(ValueError, match=r"guarantee\.renyi is nan"):
        write_reports(replace(record, guarantee=replace(record.guarantee, renyi=float("nan"))), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_between_the_two_leaves_no_json_without_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    real = os.fsync

    def fifth_time_full(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 5:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fifth_time_full)
    with pytest.raises(StoreError, match=r"report\.json"):
        write_reports(sample_record(), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["registry.yaml", "report.html"]
