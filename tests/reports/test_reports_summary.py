"""The table at the end of a run."""

from dataclasses import replace

from kit.sample_record import sample_record

from fednode.reports import NamedReason, summary_rows
from fednode.reports.figures import LOOSER


def test_it_says_what_a_person_asks_first() -> None:
    rows = dict(summary_rows(sample_record()))
    assert rows["Rounds"] == "18 released, 2 failed"
    assert rows["Privacy spent"] == "epsilon 7.874 of 8 at delta 1e-5, unit: one record"
    assert rows["Attack view"] == "an attacker with 1 % false alarms recognises 23.7 % of the records used"
    assert rows["Cross-check"] == f"epsilon 8.471 by Renyi divergence: {LOOSER}"
    assert rows["Accuracy"] == "85.6 % (first round 43.2 %, best 85.6 %)"
    assert rows["Survivors"] == "13 to 20 of 20 a round, 15 needed"
    record = sample_record()
    fewer = (replace(record.rounds[0], invited=18), *record.rounds[1:])
    shown = dict(summary_rows(replace(record, rounds=fewer)))["Survivors"]
    assert shown == "13 to 20 of 18 to 20 a round, 15 needed"
    assert rows["Rejected"] == "round 5: client-18 (damaged), client-19 (other-round)"
    assert rows["Holders silent"] == "round 13: holder-5; round 16: holder-4, holder-5"
    assert rows["Secure sum"] == f"bfv: withstands {sample_record().trust.adversary}"
    assert rows["Warning"] == "The settings are odd, and were known to be."
    sent = "1.87 MB a client a round with all else, on average"
    assert rows["Upload"] == f"1.87 MB a sealed update, 19 x float32; {sent}"
    assert rows["Time"] == "61.5 s"


def test_what_came_down_is_set_beside_sending_the_whole_model_each_time() -> None:
    record = sample_record()
    whole = record.trust.float32_bytes
    sizes = (whole, whole // 2, 0, whole // 2)
    rounds = tuple(replace(entry, bytes_down=size) for entry, size in zip(record.rounds, sizes, strict=False))
    told = dict(summary_rows(replace(record, rounds=rounds)))["Download"]
    assert ", 0.667 x " in told
    assert dict(summary_rows(replace(record, rounds=())))["Download"] == "no client was asked"


def test_a_smooth_run_has_no_row_of_troubles() -> None:
    record = sample_record()
    rows = dict(summary_rows(replace(record, rounds=record.rounds[:4])))
    assert not {"Lost", "Rejected", "Discarded", "Holders silent", "Failed"} & set(rows)
    assert rows["Rounds"] == "4 released"


def test_many_troubles_are_cut_short_and_the_rest_is_counted() -> None:
    record = sample_record()
    rounds = tuple(replace(entry, lost=("client-01",)) for entry in record.rounds[:8])
    told = dict(summary_rows(replace(record, rounds=rounds)))["Lost"]
    assert told == "round 1: client-01; round 2: client-01; round 3: client-01; and in 5 more rounds"


def test_a_run_without_a_round_has_a_table_too() -> None:
    rows = dict(summary_rows(replace(sample_record(), rounds=())))
    assert (rows["Accuracy"], rows["Survivors"], rows["Rounds"]) == ("not measured", "no round ended", "0 released")
    assert rows["Attack view"] == "none: nothing was released"
    assert rows["Upload"] == "1.87 MB a sealed update, 19 x float32"


def test_nothing_in_it_moves_the_cursor() -> None:
    record = sample_record()
    entry = replace(record.rounds[0], rejected=(NamedReason("\x1b[2J\r\nme", "\x07"),), lost=("\u202eevil",))
    rows = summary_rows(replace(record, rounds=(entry,), outcome_sentence="done\x1b[0m"))
    assert all(value.isprintable() and what.isprintable() for what, value in rows)
    assert "me (" in dict(rows)["Rejected"]


def test_who_was_shown_to_be_wrong_is_named_with_the_reason() -> None:
    record = sample_record()
    rounds = list(record.rounds)
    struck = (
        NamedReason("client-2", "bad-box"),
        NamedReason("client-3", "crooked-share"),
        NamedReason("client-4", "late"),
    )
    liars = ("holder-1 (no-answer)", "holder-3 (false-complaint)")
    rounds[2] = replace(rounds[2], rejected=struck, holders_silent=liars)
    rows = dict(summary_rows(replace(record, rounds=tuple(rounds))))
    shown = "client-2 (bad-box), client-3 (crooked-share), holder-3 (false-complaint)"
    assert rows["Wrong, with proof"] == f"round {rounds[2].round}: {shown}"
    assert "Wrong, with proof" not in dict(summary_rows(record))
