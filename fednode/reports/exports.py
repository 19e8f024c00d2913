"""Two files for others to read: the ledger as a table, and the entry for a public registry of deployments."""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import asdict

from fednode.privacy import ChargeRecord
from fednode.reports.figures import moment
from fednode.reports.page import environment
from fednode.reports.run_record import RunRecord


def ledger_csv(charges: Sequence[ChargeRecord]) -> bytes:
    """One row for each of at least one charge, oldest first, with all that an accountant needs to price it again."""
    rows = [
        {
            "run": charge.task,
            "round": charge.round_number,
            "time": moment(charge.time),
            "survivors": len(charge.survivors),
        }
        | asdict(charge.event)
        | {"mu": charge.event.mu, "epsilon_after": charge.epsilon_after, "names": " ".join(charge.survivors)}
        for charge in charges
    ]
    out = io.StringIO()
    table = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return out.getvalue().encode()


def registry_yaml(record: RunRecord) -> bytes:
    """The entry for the registry of differential-privacy deployments, schema of 2026, as a draft of tier 3."""
    organisation, year = record.about.organisation or "not stated", moment(record.ended)[:4]
    words = f"{record.about.title or record.task.model}_{organisation}_{year}".lower()
    slug = re.sub(r"\W+", "_", words).replace("_", "-")
    return environment().get_template("registry.yaml").render(record=record, slug=slug, curator=organisation).encode()
