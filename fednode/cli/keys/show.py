"""`fednode keys show`: public halves of keys and cohorts, as lines."""

import math
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from fednode.cli.keys import enrol as enrolment
from fednode.errors import ConfigError, one_line, visible
from fednode.protocol.cohort import Member
from fednode.reports.figures import bound, plural
from fednode_clients.keyfolder.enrolment_key import PUBLIC_KIND, read_enrolment_public
from fednode_clients.keyfolder.evidence import evidence
from fednode_clients.keyfolder.folder import KeyFolder
from fednode_clients.keyfolder.spending import MemberSpending
from fednode_clients.keyfolder.untrained import untrained
from fednode_clients.limits import MemberLimits


def describe(place: Path, trust: Path | None, now: float) -> list[str]:
    """Describe a key folder, an enrolment folder or its public file, a member's card, or a cohort file as of `now`.

    Raises DataError if it is missing, StoreError if a cohort file was changed, ConfigError for anything else.
    """
    if place.is_dir() and (place / enrolment.KEY_FILE).exists():
        return [f"enrolment key {enrolment.open_enrolment(place).public.raw.hex()}"]
    if place.is_dir():
        return _key_folder(place)
    if enrolment.kind_of(place) == PUBLIC_KIND:
        return [f"enrolment key {read_enrolment_public(place).raw.hex()}"]
    with suppress(ConfigError):
        return _public(enrolment.read_card(place))
    return _cohort(place, trust, now)


def _key_folder(place: Path) -> list[str]:
    folder = KeyFolder.open(place)
    note = untrained(folder.state)
    last = "zeros sent in {rounds} rounds without training, last in round {round} of {untrained}: {reason}; see its log"
    return [
        *_public(folder.member("client")),
        f"trusts enrolment key {folder.enrolment_key.raw.hex()}",
        f"{plural(len(folder.audit_log.entries()), 'line')} in its record",
        *([visible(last.format(**note))] if note else []),
    ]


def _public(one: Member) -> list[str]:
    return [f"member {one.name}", f"signing key {one.verify_key.raw.hex()}", f"box key {one.box_key.raw.hex()}"]


def spending(folder: KeyFolder, limits: MemberLimits) -> list[str]:
    """The epsilon of all rounds and its limit, then that of each task alone. Raises StoreError for a damaged record."""
    found = MemberSpending.of(folder.audit_log.entries())
    most, spent = max(limits.max_epsilon, found.raised), found.epsilon(limits.delta)
    rounds = f"in {plural(found.rounds.total(), 'round')} of all tasks"
    lines = [f"{folder.name}: epsilon {_epsilon(spent)} of {most:g} spent at delta {limits.delta:g}, {rounds}"]
    for task, joined in found.tasks.items():
        alone = _epsilon(MemberSpending({task: joined}).epsilon(limits.delta))
        lines.append(f"{one_line(task, 128)}: {plural(joined.total(), 'round')}, epsilon {alone} alone")
    return lines


def contradictions(folder: KeyFolder) -> list[str]:
    """Each pair of requests that contradict each other, verified. Raises StoreError for a damaged one."""
    lines = []
    for pair in evidence(folder):
        first, second = (signed.head for signed in pair.requests)
        lines += [
            f"{one_line(first.task, 128)} round {first.round}: two specs signed by node key {pair.node.raw.hex()}",
            f"  of cohort {pair.cohort.hex()}",
            *(f"  spec {head.spec.hex()}, asked {head.about.get('asks')} of {folder.name}" for head in (first, second)),
        ]
    return lines or [f"{folder.name}: no node has signed two specs for one round"]


def _epsilon(value: float) -> str:
    return bound(value, zeros=True) if math.isfinite(value) else "unknown (only --raise settles that)"


def _cohort(place: Path, trust: Path | None, now: float) -> list[str]:
    cohort = enrolment.read_cohort(place, None if trust is None else read_enrolment_public(trust))
    checked = "signature not checked: give --trust enrolment.pub" if trust is None else "signed by the enrolment key"
    date, word = datetime.fromtimestamp(cohort.expires, UTC), "expires" if now < cohort.expires else "expired"
    lines = [f"cohort {cohort.digest().hex()}", checked, f"serial {cohort.serial}"]
    lines += [f"{word} {date:%Y-%m-%d %H:%M} UTC", f"node {cohort.node.raw.hex()}"]
    lines += [f"client {member.name} {member.verify_key.raw.hex()}" for member in cohort.clients]
    lines += [f"holder {member.name} {member.verify_key.raw.hex()} point {member.point}" for member in cohort.holders]
    return lines
