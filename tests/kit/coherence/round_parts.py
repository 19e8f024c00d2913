"""What there is of a round protocol in a search: models, rounds, messages, clients with what the node knows of them.

Versions are only compared, and differences above the staleness bound are all alike: `renumbered` writes a world with
the smallest numbers that keep both, so runs need no bound on their rounds. `content[k]` is the version at which key k
changed last: equal numbers mean equal bytes.
"""

from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

from fednode.cache.round_directory import Standing


class Model(NamedTuple):
    """One version of the model."""

    version: int
    content: tuple[int, ...]


class Round(NamedTuple):
    """A round's spec."""

    number: int
    model: Model


class Down(NamedTuple):
    """A request: the chunks whose bits are in `send`, or the word of holders for an older copy, of round `vouched`."""

    round: Round
    send: int
    vouched: Round | None


class Up(NamedTuple):
    """A reply: the model that it was computed from; None says that chunks are missing."""

    round: Round
    basis: Model | None


class Part(NamedTuple):
    """One client. `copy`: the round whose model its room holds; `before`: the one that this replaced, of which there
    may be a backup; `best`: the newest version that it ever took. The rest is what the node knows."""

    copy: Round | None = None
    before: Round | None = None
    best: int = 0
    down: tuple[Down, ...] = ()
    up: tuple[Up, ...] = ()
    standing: Standing = Standing()
    proof: Round | None = None
    resent: bool = False

    @property
    def whole(self) -> bool:
        """Whether it never lost a copy, or has as new a one again."""
        return self.best <= (0 if self.copy is None else self.copy.model.version)

    def late(self, number: int) -> int:
        """Messages of round `number` that are under way."""
        return sum(message.round.number == number for message in (*self.down, *self.up))


class Shared(NamedTuple):
    """What is not one client's: the round, the models that an update may be of, the rounds that holders vouch for."""

    round: Round
    published: tuple[Model, ...]
    opened: tuple[Round, ...] = ()


def in_order(messages: Iterable[Down | Up]) -> tuple:
    """Messages that are under way at once arrive in any order: one order stands for all."""
    return tuple(sorted(messages, key=lambda message: tuple(() if one is None else one for one in message)))


def renumbered(shared: Shared, parts: tuple[Part, ...], bound: int) -> tuple[Shared, tuple[Part, ...]]:
    """The same with the smallest numbers; gaps of more than `bound` versions, or rounds, are `bound` + 1.

    When a key changed is only compared with versions: it moves up to the first version that is still spoken of. With a
    bound of 0 a round is this one or an old one, and which old one nobody asks.
    """
    versions, rounds = {0}, set()
    _Numbering(_Noted(versions), _Noted(rounds), _Noted(set())).world(shared, parts)
    new = _closer(versions, bound)
    numbers = _closer(rounds, bound) if bound else {old: int(old == shared.round.number) for old in rounds}
    return _Numbering(new, numbers, _Since(sorted(versions), new)).world(shared, parts)


def _closer(known: set[int], bound: int) -> dict[int, int]:
    """These numbers from 0 on, with no gap over `bound` + 1."""
    new, last = {}, min(known)
    for old in sorted(known):
        new[old] = min(old - last, bound + 1) + new.get(last, 0)
        last = old
    return new


class _Noted:
    """Takes down every number that it is asked for."""

    def __init__(self, seen: set[int]) -> None:
        self.seen = seen

    def __getitem__(self, number: int) -> int:
        self.seen.add(number)
        return number


class _Since:
    """The new number of the first known version that is not before the one that is asked for."""

    def __init__(self, known: list[int], new: dict[int, int]) -> None:
        self.known, self.new = known, new

    def __getitem__(self, number: int) -> int:
        return self.new[self.known[bisect_left(self.known, number)]]


class _Numbering:
    """Other numbers for those of a world."""

    def __init__(self, versions, rounds, since) -> None:
        self.versions, self.rounds, self.since = versions, rounds, since

    def world(self, shared: Shared, parts: tuple[Part, ...]) -> tuple[Shared, tuple[Part, ...]]:
        published = tuple([self.model(one) for one in shared.published])
        opened = tuple([self.round(one) for one in shared.opened])
        return Shared(self.round(shared.round), published, opened), tuple([self.part(part) for part in parts])

    def part(self, part: Part) -> Part:
        down = [Down(self.round(m.round), m.send, self.round(m.vouched)) for m in part.down]
        up = [Up(self.round(m.round), self.model(m.basis)) for m in part.up]
        return part._replace(
            copy=self.round(part.copy),
            before=self.round(part.before),
            best=self.versions[part.best],
            down=in_order(down),
            up=in_order(up),
            proof=self.round(part.proof),
        )

    def model(self, one: Model | None) -> Model | None:
        if one is None:
            return None
        return Model(self.versions[one.version], tuple([self.since[number] for number in one.content]))

    def round(self, one: Round | None) -> Round | None:
        return None if one is None else Round(self.rounds[one.number], self.model(one.model))
