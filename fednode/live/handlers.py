"""One request in, one answer out: what the node says of its stores. Knows no socket."""

import base64
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from itertools import islice
from threading import Lock
from typing import Any, Final

from fednode.cache import Missing
from fednode.clock import Clock
from fednode.errors import ConfigError, DataError
from fednode.live.export import contents_of
from fednode.live.knobs import Knob
from fednode.live.messages import MOST_ANSWERED, PIECE, line, parsed, refusal
from fednode.live.schema import (
    FetchRequest,
    GetRequest,
    KeysRequest,
    KnobsRequest,
    LiveRequest,
    TuneRequest,
    read_request,
)
from fednode.live.stats import Inspectable, Tuned
from fednode.live.tuning import turn_all

log = logging.getLogger("fednode.live")

_KEYS_BYTES: Final = MOST_ANSWERED // 2


class RequestHandler:
    """Answers requests about `stores`, which is looked up anew for each one; one after the other.

    `tuned` is called with each change that was made; what it raises is logged.
    """

    def __init__(
        self, stores: Mapping[str, Inspectable], clock: Clock, run: str, tuned: Callable[[Tuned], None] | None = None
    ) -> None:
        self._stores = stores
        self._clock = clock
        self._run = run
        self._tuned = tuned
        self._turn = Lock()
        self._file: tuple[str, str, str, bytes] | None = None

    def answer(self, request: bytes) -> bytes:
        """The line that answers a line. Raises nothing: an error is an answer as well."""
        try:
            asked = read_request(parsed(request))
            with self._turn:
                found = line({"ok": True, **self._answered(asked)})
            if len(found) > MOST_ANSWERED:
                raise DataError("the answer is too long; ask for less")
            return found
        except Exception as error:  # noqa: BLE001 - no request may hurt the run
            return line(refusal(error))

    def _answered(self, asked: LiveRequest) -> dict[str, Any]:
        match asked:
            case KeysRequest():
                return self._keys(asked)
            case GetRequest():
                return self._get(asked)
            case FetchRequest():
                return self._fetch(asked)
            case KnobsRequest():
                return self._knobs(asked)
            case TuneRequest():
                return self._tune(asked)
            case _:
                return {"run": self._run, "stores": {name: asdict(store.stats()) for name, store in self._some("")}}

    def forget(self) -> None:
        """Let go of the value that was last fetched: no client is left to ask for the rest."""
        self._file = None

    def _keys(self, asked: KeysRequest) -> dict[str, Any]:
        found: list[tuple[str, str]] = []
        room = _KEYS_BYTES
        for name, store in self._some(asked.store):
            for key in islice(store.keys(asked.prefix), asked.most - len(found) + 1):
                room -= 6 * len(key) + len(name) + 8
                if len(found) == asked.most or room < 0:
                    return {"keys": sorted(found), "more": True}
                found.append((name, key))
        return {"keys": sorted(found), "more": False}

    def _get(self, asked: GetRequest) -> dict[str, Any]:
        found = []
        for name, store in self._some(asked.store):
            value = store.get(asked.key)
            if not isinstance(value, Missing):
                known = {"ttl_left": store.ttl_left(asked.key), "version": store.version(asked.key)}
                found.append({"store": name, "sealed": store.sealed, **asdict(contents_of(value)[0]), **known})
        if not found:
            raise DataError(
                "the node holds nothing under this key: it may have expired or been deleted meanwhile; `fednode cache "
                "keys` shows what it holds"
            )
        return {"found": found}

    def _fetch(self, asked: FetchRequest) -> dict[str, Any]:
        store = self._one(asked.store)
        if store.sealed:
            raise ConfigError(f"what {asked.store} holds is sealed and stays in the node: --out is for other stores")
        data = self._opened(store, (asked.store, asked.key, asked.digest))
        piece = data[asked.offset : asked.offset + PIECE]
        if asked.offset + len(piece) >= len(data):
            self.forget()
        return {"bytes": len(data), "data": base64.b64encode(piece).decode("ascii")}

    def _opened(self, store: Inspectable, wanted: tuple[str, str, str]) -> bytes:
        if self._file is not None and self._file[:3] == wanted:
            return self._file[3]
        value = store.get(wanted[1])
        contents, file = (None, b"") if isinstance(value, Missing) else contents_of(value)
        if contents is None or contents.digest != wanted[2]:
            raise DataError("the value changed while it was fetched; ask again")
        self._file = (*wanted, file)
        return file

    def _knobs(self, asked: KnobsRequest) -> dict[str, Any]:
        some = list(self._some(asked.store))
        each = [(name, knob.name, knob.read(), knob.means, knob.span) for name, store in some for knob in store.knobs()]
        return {"knobs": each, "fixed": [name for name, store in some if not store.knobs()]}

    def _tune(self, asked: TuneRequest) -> dict[str, Any]:
        """All changes of a request or none: each is checked before the first is made."""
        changes = asked.changes
        if len({(name, knob) for name, knob, _ in changes}) < len(changes):
            raise ConfigError("one number is changed twice in this request; give it once")
        wanted = [(name, self._knob(name, knob, value), value) for name, knob, value in changes]
        turned = turn_all([(knob, value) for _, knob, value in wanted])
        made = [(name, knob.name, old, new) for (name, knob, _), (old, new) in zip(wanted, turned, strict=True)]
        for name, what, old, new in made:
            log.info("%s.%s was changed from %g to %g while the node runs", name, what, old, new)
            self._report(Tuned(self._clock.time(), name, what, old, new))
        return {"made": made}

    def _knob(self, name: str, wanted: str, value: float) -> Knob:
        knobs = {knob.name: knob for knob in self._one(name).knobs()}
        if wanted not in knobs:
            raise ConfigError(f"{name} has no knob {wanted}; it has {', '.join(knobs) or 'none'}")
        try:
            knobs[wanted].require(value)
        except ConfigError as error:
            # each of these sentences begins with the knob's name
            raise ConfigError(f"{name}.{error}") from error
        return knobs[wanted]

    def _report(self, tuned: Tuned) -> None:
        if self._tuned is None:
            return
        try:
            self._tuned(tuned)
        except Exception:
            # the change was made, so the answer is about the change
            log.exception("a change could not be recorded")

    def _one(self, name: str) -> Inspectable:
        ((_, store),) = self._some(name)
        return store

    def _some(self, wanted: str) -> Iterator[tuple[str, Inspectable]]:
        """The store of this name, or all for "". Raises `ConfigError`."""
        stores = dict(self._stores)
        if wanted and wanted not in stores:
            raise ConfigError(f"the node has no such store; it has {', '.join(stores) or 'none yet'}")
        return ((name, store) for name, store in stores.items() if wanted in ("", name))
