"""A store without room for a while: who found none is asked again within the round, and the report says how often."""

import pytest
from kit.crypto.plainsum import InsecurePlainSum
from kit.smallrun import report_of, small_run

from fednode.assemble import session
from fednode.assemble.session import Environment
from fednode.cache import StoreFull
from fednode.reports import parse_report, summary_rows
from fednode.round.machine import MOST_ASKS
from fednode.stores import UpdateStore

PLAIN = Environment(schemes=lambda _: InsecurePlainSum())


@pytest.mark.parametrize("times", [1, MOST_ASKS])
@pytest.mark.parametrize("deadline", [120.0, 600.0])
def test_a_client_without_room_is_asked_again_in_time_and_the_report_says_so(tmp_path, monkeypatch, times, deadline):
    class Narrow(UpdateStore):
        refused = 0

        def put(self, task, round_number, client, payload):
            if client == "client-2" and round_number == 1 and self.refused < times:
                Narrow.refused += 1
                raise StoreFull("no room", self._retry_after)
            super().put(task, round_number, client, payload)

    monkeypatch.setattr(session, "UpdateStore", Narrow)
    result = small_run(tmp_path, PLAIN, deadline=deadline)
    first, second = report_of(result.folder)["rounds"]
    assert result.error is None and "client-2" in first["survivors"]
    assert (first["asked_again"], second["asked_again"]) == (times, 0)
    record = parse_report((result.folder / "report.json").read_bytes())
    words = f"{times} request{'s' if times > 1 else ''}"
    assert dict(summary_rows(record))["Asked again"] == f"round 1: {words}"
    page = (result.folder / "report.html").read_text()
    assert "asked again: the node had no room for an update" in page
