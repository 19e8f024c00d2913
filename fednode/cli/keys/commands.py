"""`fednode keys`: keys of members and the list of members. No command needs the node."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from fednode.cli.exits import say
from fednode.disk.no_dumps import keep_keys_in_memory
from fednode.errors import ConfigError

keys_app = typer.Typer(
    help="Make keys, enrol members, show keys and cohorts. Secrets stay in the folder that they were made in.",
    no_args_is_help=True,
)


@keys_app.callback()
def _top() -> None:
    keep_keys_in_memory()


@keys_app.command("init")
def init_command(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER")],
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="The member's name in the cohort.")] = None,
    trust: Annotated[
        Path | None, typer.Option("--trust", metavar="FILE", help="The enrolment key's public half, enrolment.pub.")
    ] = None,
    enrolment: Annotated[
        bool, typer.Option("--enrolment", help="Make the enrolment key itself instead of a member's keys.")
    ] = False,
) -> None:
    """Make the keys of a member or of the node (--name, --trust), or the enrolment key (--enrolment).

    The enrolment key signs the list of members.

    FOLDER must not hold keys yet; it is made if needed.
    """
    from fednode.cli.keys import enrol as making
    from fednode_clients.keyfolder.enrolment_key import PUBLIC_FILE, read_enrolment_public
    from fednode_clients.keyfolder.folder import KeyFolder

    if enrolment and name is None and trust is None:
        public = making.create_enrolment(folder)
        say(f"enrolment key {public.raw.hex()}")
        say(f"give {folder / PUBLIC_FILE} to every member; {folder / making.KEY_FILE} never leaves this folder")
    elif name is not None and trust is not None and not enrolment:
        making.refuse_bad_name(name)
        member = KeyFolder.create(folder, name, read_enrolment_public(trust)).member("client")
        making.write_card(folder / making.CARD_FILE, member)
        say(f"{name} {member.verify_key.raw.hex()}")
        say(f"give {folder / making.CARD_FILE} to the enroller, and compare the key above over another channel")
    else:
        raise ConfigError("give --name NAME and --trust enrolment.pub for a member's keys, or --enrolment alone")


@keys_app.command("enrol")
def enrol_command(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The cohort file to write.")],
    *,
    node: Annotated[Path | None, typer.Option("--node", metavar="CARD", help="The node's member.json.")] = None,
    client: Annotated[
        list[Path] | None, typer.Option("--client", metavar="CARD", help="A client's member.json; repeat the flag.")
    ] = None,
    holder: Annotated[
        list[Path] | None, typer.Option("--holder", metavar="CARD", help="A key holder's member.json; repeat the flag.")
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="The cohort file whose members to start from.")
    ] = None,
    replace: Annotated[
        list[str] | None, typer.Option("--replace", metavar="NAME=CARD", help="A member's new card, in its role.")
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", metavar="NAME", help="A client to take out; repeat the flag.")
    ] = None,
    days: Annotated[int, typer.Option("--days", min=1, max=36_500, help="How long the file holds.")] = 365,
) -> None:
    """Sign a cohort file with exactly these members in these roles, or with --from the next serial of an earlier one.

    FOLDER holds the enrolment key; holders get the points 1, 2, ... in the order given. Members who have seen a file
    refuse those with a lower serial, and every file after its --days.
    """
    from fednode.cli.keys import enrol as enrolment
    from fednode.clock import SystemClock
    from fednode.disk.atomic import write_whole
    from fednode.reports.figures import plural

    enrolment.refuse_existing(out)
    wanted = enrolment.Enrolment(client or (), holder or (), node, source, replace or (), remove or ())
    expires = int(SystemClock().time()) + days * 86_400
    cohort = enrolment.enrol(enrolment.open_enrolment(folder), wanted, expires)
    write_whole(out, cohort.to_bytes() + b"\n", 0o644)
    members = f"{plural(len(cohort.clients), 'client')}, {plural(len(cohort.holders), 'holder')}"
    until = datetime.fromtimestamp(expires, UTC)
    say(f"{out}: serial {cohort.serial}, expires {until:%Y-%m-%d}, {members}, digest {cohort.digest().hex()}")


@keys_app.command("retire")
def retire_command(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER")],
    task: Annotated[
        list[str] | None, typer.Option("--task", metavar="NAME", help="A task to close too; repeat the flag.")
    ] = None,
) -> None:
    """Close every task that a member's key folder knows, for good: it refuses them from then on.

    For a folder whose record is damaged, that was copied, that was restored from a backup, or that has taken its
    max-tasks. It also closes the tasks of runs that are still going on, and cannot be undone. Name tasks taken after
    the backup with --task. The member can still take new tasks.
    """
    from fednode.reports.figures import plural
    from fednode_clients.keyfolder.folder import KeyFolder
    from fednode_clients.keyfolder.retire import retire
    from fednode_clients.keyfolder.spending import MemberSpending

    done = retire(KeyFolder.open(folder), task or ())
    say(f"{folder}: {plural(done.closed, 'task')} closed for good")
    for name in done.unknown:
        say(f"{name} was unknown here and is closed too; check that the run's task has exactly this name")
    if not MemberSpending.of(KeyFolder.open(folder).audit_log.entries()).whole:
        say(f"what they cost is unknown: a client joins no round before `fednode keys budget {folder} --raise`")


@keys_app.command("budget")
def budget_command(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER")],
    most: Annotated[
        float | None, typer.Option("--raise", metavar="EPSILON", help="Allow so much over all tasks from now on.")
    ] = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; it stays in the member's record.")] = "",
    max_epsilon: Annotated[float, typer.Option(help="As in the member's configuration.")] = 8.0,
    delta: Annotated[float, typer.Option(help="As in the member's configuration.")] = 1e-5,
) -> None:
    """Show what a member's data have cost over all its tasks, or raise its limit.

    The limit is the larger of max-epsilon in the member's own configuration, which this command does not see, and its
    last --raise, which --raise of max-epsilon takes back. A raise also settles rounds whose cost is unknown: those of a
    damaged record or an earlier version.
    """
    from fednode.cli.keys import show as showing
    from fednode_clients.keyfolder.folder import KeyFolder
    from fednode_clients.keyfolder.spending import raise_budget
    from fednode_clients.limits import MemberLimits

    opened, limits = KeyFolder.open(folder), MemberLimits(max_epsilon=max_epsilon, delta=delta)
    if most is not None:
        raise_budget(opened, most, reason, limits.max_epsilon)
    elif reason:
        raise ConfigError("--reason goes into the record with a --raise; give --raise EPSILON too")
    for line in showing.spending(opened, limits):
        say(line)


@keys_app.command("evidence")
def evidence_command(folder: Annotated[Path, typer.Argument(metavar="FOLDER")]) -> None:
    """Show where a node asked this member about two specs of one round, with the node's signature under both.

    Compare the node's key with the one that `fednode keys show` prints of the cohort file. Retiring tasks keeps these.
    """
    from fednode.cli.keys import show as showing
    from fednode_clients.keyfolder.folder import KeyFolder

    for line in showing.contradictions(KeyFolder.open(folder)):
        say(line)


@keys_app.command("show")
def show_command(
    place: Annotated[Path, typer.Argument(metavar="PLACE")],
    trust: Annotated[
        Path | None, typer.Option("--trust", metavar="FILE", help="Check a cohort file against this enrolment.pub.")
    ] = None,
) -> None:
    """Show the public halves of keys and cohorts, never a secret.

    PLACE is a member's key folder or card, the enrolment folder or a cohort file.
    """
    from fednode.cli.keys import show as showing
    from fednode.clock import SystemClock

    for line in showing.describe(place, trust, SystemClock().time()):
        say(line)
