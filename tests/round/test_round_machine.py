"""A round against a plain model: whatever happens, in whatever order, nothing is opened that was not charged."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from kit.members import some_receipt

from fednode.round import effects as do
from fednode.round import events as on
from fednode.round.machine import ALLOWED, Round

SPEC, OTHER = b"s" * 32, b"o" * 32
PEOPLE = "abcdef"
WHO = st.sampled_from(PEOPLE)
POINTS = st.integers(0, 5)
LUCK = st.sampled_from([1, 1, 1, 2, 1, 1, 0, 1])
FOREIGN = {
    on.Kept: on.Kept("a"),
    on.WaitOver: on.WaitOver("a"),
    on.DeadlinePassed: on.DeadlinePassed(),
    on.StopAsked: on.StopAsked(),
    on.Checked: on.Checked(1, ()),
    on.Confirmed: on.Confirmed(1),
    on.Charged: on.Charged(some_receipt()),
    on.ChargeRefused: on.ChargeRefused("x"),
    on.Answered: on.Answered(1),
    on.HolderSilent: on.HolderSilent(1, "x"),
    on.Opened: on.Opened(),
    on.OpeningFailed: on.OpeningFailed("x"),
}


class PlainRound:
    """What a round should do, in sets and ifs."""

    def __init__(self, invited, least, holders, threshold, boxed):
        self.invited, self.least, self.holders, self.threshold = invited, least, holders, threshold
        self.boxed, self.checked, self.excluded, self.confirmed = boxed, set(), set(), set()
        self.phase, self.seen, self.kept, self.gone = "COLLECTING", {}, [], set()
        self.answered, self.silent, self.combining = set(), set(), False
        self.turned, self.waiting, self.asked, self.asks = {}, set(), set(), {}

    def fate(self, who, spec, payload):
        if who not in self.invited:
            return "stranger"
        if who in self.seen:
            return "repeat" if self.seen[who] == payload else "second-update"
        if self.turned.get(who, payload) != payload:
            return "second-update"
        if spec != SPEC:
            return "another-round"
        if self.phase != "COLLECTING":
            return "late"
        return "keep" if who not in self.turned or who in self.asked else "repeat"

    def no_room(self, who, payload, wait):
        """Whether it is asked again later."""
        self.turned[who] = payload
        self.asked.discard(who)
        if wait is None or self.asks.get(who, 0) >= 2:
            self.lost(who)
            return False
        self.gone.discard(who)
        self.waiting.add(who)
        return True

    def lost(self, who):
        if self.phase == "COLLECTING" and who in self.invited - self.waiting:
            self.gone.add(who)
            self.close_if(not self.invited - set(self.kept) - self.gone)

    def close_if(self, over):
        if over:
            following = {"COLLECTING": "CHECKING", "CHECKING": "CONFIRMING"}
            ready = following.get(self.phase, "CHARGING") if self.boxed else "CHARGING"
            self.phase = ready if len(self.kept) >= self.least else "FAILED"

    def checking(self):
        if self.holders <= self.checked | self.silent:
            if len(self.checked) < self.threshold:
                self.phase, self.excluded = "FAILED", set()
                return
            self.holders, self.silent = set(self.checked), set()
            self.kept = [who for who in self.kept if who not in self.excluded]
            self.close_if(True)

    def confirming(self):
        if self.holders <= self.confirmed | self.silent:
            if len(self.confirmed) < self.threshold:
                self.phase = "FAILED"
                return
            self.holders, self.silent = set(self.confirmed), set()
            self.close_if(True)

    def committee(self):
        if not self.combining and self.holders <= self.answered | self.silent:
            self.combining = len(self.answered) >= self.threshold
            self.phase = "OPENING" if self.combining else "FAILED"


class RoundMachine(RuleBasedStateMachine):
    @initialize(
        invited=st.sets(WHO.filter("f".__ne__), min_size=1),
        least=st.integers(1, 3),
        committee=st.sampled_from([(1, 1), (2, 1), (3, 2), (3, 3), (4, 3)]),
        early=st.integers(0, 5),
        ahead=st.integers(0, 8),
        boxed=st.booleans(),
    )
    def begin(self, invited, least, committee, early, ahead, boxed):
        points = frozenset(range(1, committee[0] + 1))
        self.now = Round(SPEC, frozenset(invited), least, points, committee[1], boxed, most_asks=2)
        self.plain = PlainRound(set(invited), least, set(points), committee[1], boxed)
        self.log, self.charged = [], False
        # a head start: else few examples would ever come to an opening
        for who in sorted(invited)[:early]:
            self.arrive(who, SPEC, b"p", 1, None)
        for step in range(-1, ahead):
            if not self.now.ended:
                self.go_on(1, step % (committee[0] + 1))

    def do(self, event):
        before, ended = self.now, self.now.ended
        self.now, effects = before.handle(event)
        assert not ended or self.now is before
        for effect in effects:
            assert not isinstance(effect, do.Open) or self.charged
        self.log += effects
        return effects

    def words(self, effects):
        """The end of an arrival: exactly one effect, and it comes first."""
        ends = [effect for effect in effects if isinstance(effect, do.Keep | do.Reject | do.Discard)]
        assert len(ends) == 1 and effects[0] is ends[0]
        return ends[0]

    @rule(
        who=WHO,
        spec=st.sampled_from([SPEC, SPEC, SPEC, OTHER]),
        payload=st.sampled_from([b"p", b"q"]),
        luck=LUCK,
        wait=st.sampled_from([None, 1.5, 1.5]),
    )
    def arrive(self, who, spec, payload, luck, wait):
        payload += spec
        fate = self.plain.fate(who, spec, payload)
        end = self.words(self.do(on.Arrived(who, spec, payload)))
        assert end.client == who
        if fate != "keep":
            assert isinstance(end, do.Discard if fate in ("repeat", "late") else do.Reject) and end.reason == fate
            if fate == "another-round" or (fate == "second-update" and who in self.plain.turned):
                self.plain.lost(who)
            return
        assert end == do.Keep(who)
        with pytest.raises(RuntimeError):
            self.now.handle(on.DeadlinePassed())
        if luck:
            self.plain.seen[who] = payload
            self.plain.kept.append(who)
            self.plain.turned.pop(who, None)
            self.plain.asked.discard(who)
            self.plain.close_if(not self.plain.invited - set(self.plain.kept) - self.plain.gone)
            self.do(on.Kept(who))
        else:
            later = self.plain.no_room(who, payload, wait)
            effects = self.do(on.NotKept(who, "no-room", wait))
            assert self.words(effects) == do.Discard(who, "no-room-yet" if later else "no-room")
            assert (do.AskLater(who, 1.5) in effects) == later

    @precondition(lambda self: self.plain.phase == "COLLECTING" and self.plain.waiting)
    @rule(data=st.data())
    def ask_again(self, data):
        """The time of one that found no room has come."""
        who = data.draw(st.sampled_from(sorted(self.plain.waiting)))
        self.plain.waiting.discard(who)
        self.plain.asked.add(who)
        self.plain.asks[who] = self.plain.asks.get(who, 0) + 1
        assert self.do(on.WaitOver(who)) == (do.AskAgain(who),)

    @rule(who=WHO)
    def send_garbage(self, who):
        self.plain.lost(who)
        assert self.words(self.do(on.Faulted(who, "garbage"))) == do.Reject(who, "garbage")

    @rule(who=WHO)
    def answer_an_earlier_round(self, who):
        assert self.do(on.Late(who)) == (do.Discard(who, "late"),)

    @precondition(lambda self: self.plain.phase in ("COLLECTING", "CHECKING", "CONFIRMING", "CHARGING", "OPENING"))
    @rule(luck=LUCK, point=POINTS)
    def go_on(self, luck, point):
        """The next thing on the way to a release; without luck (0) the one that ends it."""
        if self.plain.phase == "COLLECTING":
            self.end_of_collecting(luck)
        elif self.plain.phase == "CHECKING":
            self.end_of_checking(luck) if luck != 1 else self.check(point, "", 1)
        elif self.plain.phase == "CONFIRMING":
            self.end_of_confirming(luck) if luck != 1 else self.confirm(point, 1)
        elif self.plain.phase == "CHARGING":
            self.charge(luck)
        elif self.plain.combining:
            self.combine(luck)
        elif luck == 2:
            self.end_of_opening()
        else:
            self.holder(point, luck)

    def end_of_collecting(self, luck):
        if len(self.plain.kept) < self.plain.least and luck == 1:
            return
        if luck:
            self.plain.close_if(True)
            self.do(on.DeadlinePassed())
        else:
            self.plain.phase = "FAILED"
            assert self.do(on.StopAsked())[0].cause == "stopped"

    def end_of_checking(self, luck):
        if luck:
            self.plain.silent |= self.plain.holders - self.plain.checked
            self.plain.checking()
            self.do(on.DeadlinePassed())
        else:
            self.plain.phase = "FAILED"
            assert self.do(on.StopAsked())[0].cause == "stopped"

    @precondition(lambda self: self.plain.phase not in ("COLLECTING", "CHARGING"))
    @rule(point=POINTS, bad=st.sampled_from(["", "", "", "a", "bf", "abc"]), luck=LUCK)
    def check(self, point, bad, luck):
        """A holder opens its boxes; those of some clients are no good."""
        if self.plain.phase == "CHECKING" and point in self.plain.holders:
            if luck:
                self.plain.checked.add(point)
                self.plain.excluded |= set(bad) & set(self.plain.kept)
            else:
                self.plain.silent.add(point)
            self.plain.checking()
            self.do(on.Checked(point, tuple(bad)) if luck else on.HolderSilent(point, "x"))
        else:
            assert self.do(on.Checked(point, tuple(bad))) == ()

    def end_of_confirming(self, luck):
        if luck:
            self.plain.silent |= self.plain.holders - self.plain.confirmed
            self.plain.confirming()
            self.do(on.DeadlinePassed())
        else:
            self.plain.phase = "FAILED"
            assert self.do(on.StopAsked())[0].cause == "stopped"

    @precondition(lambda self: self.plain.phase not in ("COLLECTING", "CHECKING", "CHARGING"))
    @rule(point=POINTS, luck=LUCK)
    def confirm(self, point, luck):
        """A holder signs the final roster."""
        if self.plain.phase == "CONFIRMING" and point in self.plain.holders:
            (self.plain.confirmed if luck else self.plain.silent).add(point)
            self.plain.confirming()
            self.do(on.Confirmed(point) if luck else on.HolderSilent(point, "x"))
        else:
            assert self.do(on.Confirmed(point)) == ()

    def charge(self, luck):
        self.charged, self.plain.phase = bool(luck), "OPENING" if luck else "FAILED"
        effects = self.do(on.Charged(some_receipt()) if luck else on.ChargeRefused("no budget"))
        assert effects == ((do.Open(some_receipt()),) if luck else (do.Fail("budget", "no budget"),))

    def end_of_opening(self):
        self.plain.silent |= self.plain.holders - self.plain.answered
        self.plain.committee()
        self.do(on.DeadlinePassed())

    def combine(self, luck):
        self.plain.phase = "RELEASED" if luck else "FAILED"
        effects = self.do(on.Opened() if luck else on.OpeningFailed("residual"))
        assert effects == (do.Publish(some_receipt()) if luck else do.Fail("opening-rejected", "residual"),)

    @precondition(lambda self: self.plain.phase in ("OPENING", "RELEASED", "FAILED"))
    @rule(point=POINTS, luck=LUCK)
    def holder(self, point, luck):
        if self.plain.phase == "OPENING" and not self.plain.combining and point in self.plain.holders:
            (self.plain.answered if luck else self.plain.silent).add(point)
            self.plain.committee()
        self.do(on.Answered(point) if luck else on.HolderSilent(point, "x"))

    @precondition(lambda self: self.plain.combining and self.plain.phase == "OPENING")
    @rule()
    def deadline_while_combining(self):
        assert self.do(on.DeadlinePassed()) == ()

    @rule(kind=st.sampled_from(sorted(FOREIGN, key=lambda kind: kind.__name__)))
    def out_of_order(self, kind):
        if kind not in ALLOWED[self.now.state] or kind is on.Kept or (kind is on.Opened and not self.now.combining):
            before = repr(self.now)
            with pytest.raises(RuntimeError):
                self.now.handle(FOREIGN[kind])
            assert repr(self.now) == before

    def of(self, kind):
        return [effect for effect in self.log if isinstance(effect, kind)]

    @invariant()
    def the_round_is_the_plain_one(self):
        assert self.now.state.name == self.plain.phase
        assert list(self.now.survivors) == self.plain.kept
        assert dict(self.now.arrived) == self.plain.seen
        assert self.now.answered == self.plain.answered and self.now.combining == self.plain.combining

    @invariant()
    def survivors_are_invited_distinct_and_enough(self):
        assert len(set(self.now.survivors)) == len(self.now.survivors)
        assert set(self.now.survivors) <= self.now.invited
        for charge in self.of(do.ChargeBudget):
            assert charge.survivors == self.now.survivors and len(charge.survivors) >= self.now.min_survivors

    @invariant()
    def each_effect_comes_once_and_after_what_it_needs(self):
        of_updates = do.Keep | do.Reject | do.Discard | do.AskLater | do.AskAgain
        kinds = [type(effect) for effect in self.log if not isinstance(effect, of_updates)]
        excluded = {who for effect in self.of(do.Exclude) for who in effect.clients}
        assert excluded == (self.plain.excluded if self.plain.phase not in ("CHECKING", "FAILED") else excluded)
        kinds = [kind for kind in kinds if kind is not do.Exclude]
        path = [
            *([do.CheckBoxes, do.Confirm] if self.plain.boxed else []),
            do.ChargeBudget,
            do.Open,
            do.Combine,
            do.Publish,
        ]
        assert kinds == path[: len(kinds)] or kinds == [*path[: len(kinds) - 1], do.Fail]
        assert (kinds[-1:] in ([do.Publish], [do.Fail])) == self.now.ended
        for combine in self.of(do.Combine):
            assert len(set(combine.points)) == len(combine.points) >= self.now.threshold
            assert set(combine.points) <= self.now.holders
        assert len(self.of(do.Keep)) >= len(self.now.survivors)
        for who in PEOPLE:
            asks = self.of(do.AskAgain).count(do.AskAgain(who))
            assert asks <= 2 and self.of(do.Keep).count(do.Keep(who)) <= 1 + asks


TestRoundMachine = RoundMachine.TestCase
TestRoundMachine.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
