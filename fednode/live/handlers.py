"""One request in, one answer out: what the node says of its stores. Knows no socket."""

import base64
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from itertools import islice
from typing import Any, Final

from fednode.cache import Missing
from fednode.clock import Clock
from fednode.errors import ConfigError, DataError
from fednode.live.export import contents_of
from fednode.live.knobs import Knob
from fednode.live.messages import MOST_ANSWERED, MOST_KEYS, PIECE, changes, count, line, parsed, refusal, text
from fednode.live.stats import Inspectable, Tuned
from fednode.live.tuning import turn_all

log = logging.getLogger("fednode.live")

_KEYS_BYTES: Final = MOST_ANSWERED // 2


class Answers:
    """Answers requests about `stores`, which is looked up anew for each one.

    `tuned` is called with each change that was made; what it raises is logged. One thread at a time.
    """

    def __init__(
        self, stores: Mapping[str, Inspectable], clock: Clock, run: str, tuned: Callable[[Tuned], None] | None = None
    ) -> None:
        self._stores = stores
        self._clock = clock
        self._run = run
        self._tuned = tuned
        self._file: tuple[str, str, str, bytes] | None = None
        self._kinds: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "stats": self._stats,
            "keys": self._keys,
            "get": self._get,
            "fetch": self._fetch,
            "knobs": self._knobs,
            "tune": self._tune,
        }

    def answer(self, request: bytes) -> bytes:
        """The line that answers a line. Raises nothing: what goes wrong is the answer."""
        try:
            asked = parsed(request)
            kind = self._kinds.get(text(asked, "do"))
            if kind is None:
                raise ConfigError(f"the node answers {', '.join(self._kinds)} and nothing else")
            found = line({"ok": True, **kind(asked)})
            if len(found) > MOST_ANSWERED:
                raise DataError("the answer is too long; ask for less")
            return found
        except Exception as error:  # noqa: BLE001 (whatever it is, the run has nothing to do with it)
            return line(refusal(error))

    def forget(self) -> None:
        """Let go of the value that was last fetched: nobody is there any more to ask for the rest."""
        self._file = None

    def _stats(self, _: Mapping[str, Any]) -> dict[str, Any]:
        stores = {name: store.stats().plain() for name, store in self._all().items()}
        return {"run": self._run, "stores": stores}

    def _keys(self, request: Mapping[str, Any]) -> dict[str, Any]:
        prefix, most = text(request, "prefix", ""), min(count(request, "limit", 100), MOST_KEYS)
        found: list[tuple[str, str]] = []
        room = _KEYS_BYTES
        for name, store in self._some(request):
            for key in islice(store.keys(prefix), most - len(found) + 1):
                room -= 6 * len(key) + len(name) + 8
                if len(found) == most or room < 0:
                    return {"keys": sorted(found), "more": True}
                found.append((name, key))
        return {"keys": sorted(found), "more": False}

    def _get(self, request: Mapping[str, Any]) -> dict[str, Any]:
        key = text(request, "key")
        found = []
        for name, store in self._some(request):
            value = store.get(key)
            if not isinstance(value, Missing):
                known = {"ttl_left": store.ttl_left(key), "version": store.version(key)}
                found.append({"store": name, "sealed": store.sealed, **asdict(contents_of(value)[0]), **known})
        if not found:
            raise DataError("the node holds nothing under this key; `fednode cache keys` shows what it holds")
        return {"found": found}

    def _fetch(self, request: Mapping[str, Any]) -> dict[str, Any]:
        name, key, digest = text(request, "store"), text(request, "key"), text(request, "digest")
        store = dict(self._some(request))[name]
        if store.sealed:
            raise ConfigError(f"what {name} holds is sealed and stays in the node: --out is for other stores")
        data, start = self._opened(store, (name, key, digest)), count(request, "offset", 0)
        piece = data[start : start + PIECE]
        if start + len(piece) >= len(data):
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

    def _knobs(self, request: Mapping[str, Any]) -> dict[str, Any]:
        some = list(self._some(request))
        each = [(name, knob.name, knob.read(), knob.means, knob.span) for name, store in some for knob in store.knobs()]
        return {"knobs": each, "fixed": [name for name, store in some if not store.knobs()]}

    def _tune(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """All changes of a request or none: each is checked before the first is made."""
        asked = changes(request)
        if len({(name, knob) for name, knob, _ in asked}) < len(asked):
            raise ConfigError("one number is changed twice in this request; say once what it is to be")
        wanted = [(name, self._knob(name, knob), value) for name, knob, value in asked]
        turned = turn_all([(knob, value) for _, knob, value in wanted])
        made = [(name, knob.name, old, new) for (name, knob, _), (old, new) in zip(wanted, turned, strict=True)]
        for name, what, old, new in made:
            log.info("%s.%s was changed from %g to %g while the node runs", name, what, old, new)
            self._tell(Tuned(self._clock.time(), name, what, old, new))
        return {"made": made}

    def _knob(self, name: str, wanted: str) -> Knob:
        knobs = {knob.name: knob for knob in dict(self._some({"store": name}))[name].knobs()}
        if wanted not in knobs:
            raise ConfigError(f"{name} has nothing called {wanted} to tune; it has {', '.join(knobs) or 'nothing'}")
        return knobs[wanted]

    def _tell(self, tuned: Tuned) -> None:
        if self._tuned is None:
            return
        try:
            self._tuned(tuned)
        except Exception:
            # the change was made, and its caller has to hear of it
            log.exception("a change could not be recorded")

    def _all(self) -> dict[str, Inspectable]:
        return dict(self._stores)

    def _some(self, request: Mapping[str, Any]) -> Iterator[tuple[str, Inspectable]]:
        """The store that a request names, or all. Raises `ConfigError`."""
        stores, wanted = self._all(), text(request, "store", "")
        if wanted and wanted not in stores:
            raise ConfigError(f"the node has no such store; it has {', '.join(stores) or 'none yet'}")
        return ((name, store) for name, store in stores.items() if wanted in ("", name))
