"""Wrong bytes made of right ones: bits, lengths and JSON values change, and what surrounds them is mended.

A mutation goes down to one place inside the bytes: a frame's header or body, one of its parts, a signed head. On the
way back lengths, canonical form, digests and signatures are made right again, so that the input gets as far as the
check that it is about.
"""

import hashlib
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from random import Random

from fednode.wire import join_parts

_PREFIX = struct.Struct("<2sBBIQ")
_LARGEST_PLANTED = 1 << 12

Sign = Callable[[bytes], bytes]
"""The signature of whoever a head names, or any 64 bytes."""

VALUES: tuple[object, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 255, 256, 1 << 16, 1 << 31, (1 << 31) - 1, 1 << 40, 1 << 63, 1 << 64, 10**400,
    -(1 << 63), 0.0, -0.0, 0.5, 1.0, -1.0, 5e-324, 1e308, 1e-308, 1e16, float("nan"), float("inf"), float("-inf"),
    "", "0", "a", "\x00", "\n", "é", "\ud800", "\u202e", "💥", "../../x", "x" * 129, "x" * 5_000, "00" * 32,
    "FF" * 32, "0" * 63, "ring", "bfv", "client", "holder", "record", "update", "refusal", "client-1", "holder-1",
    "task-1", [], {}, [[]], [{}], {"": ""}, [0], [-1], [2**31, 2**31], [0, 2**31], [2**31] * 4 + [0], [0] * 33,
    [1] * 40, {"a": {"b": []}},
)  # fmt: skip


class Mutator:
    """Draws mutations from `random`; `donors` are other valid inputs, to splice with."""

    def __init__(self, random: Random, donors: Sequence[bytes], sign: Sign = lambda _head: bytes(64)) -> None:
        self._random, self._donors, self._sign = random, donors, sign

    def mutate(self, data: bytes) -> bytes:
        """One to three changes somewhere in `data`."""
        for _ in range(self._random.choice((1, 1, 1, 2, 3))):
            data = self._inside(data)
        return data

    def _inside(self, data: bytes) -> bytes:
        """One change: at this level one time in eight, else further in where the bytes have an inside."""
        if self._random.random() < 0.125:
            return self._bytes(data)
        if data[:2] == b"FN" and len(data) >= _PREFIX.size + 32:
            return self._frame(data)
        if data[:1] == b"{":
            return self.json(data)
        if data[128:130] == b"\n{":
            # a cohort file, which no peer can sign again
            return data[:129] + self._inside(data[129:])
        if data[64:66] == b'{"':
            return self._signed(data)
        parts = parts_in(data)
        return self._parts(parts) if parts else self._bytes(data)

    def _frame(self, data: bytes) -> bytes:
        _, _, kind_size, header_size, _ = _PREFIX.unpack_from(data)
        start = _PREFIX.size + kind_size
        end = start + header_size
        kind, header, body = data[_PREFIX.size : start], data[start:end], data[end:-32]
        which = self._random.random()
        if which < 0.05:
            kind = self._bytes(kind)[:255]
        elif which < 0.5 and header != b"{}":
            header = self.json(header)
        elif body:
            body = self._inside(body)
        else:
            header = self.json(header)
        head = _PREFIX.pack(b"FN", 1, len(kind), len(header), len(body)) + kind + header
        return head + body + hashlib.sha256(head + body).digest()

    def _signed(self, data: bytes) -> bytes:
        """A head that is signed again, or not."""
        head = self._inside(data[64:])
        return (self._sign(head) if self._random.random() < 0.8 else data[:64]) + head

    def _parts(self, parts: dict[str, bytes]) -> bytes:
        message = {"body", "signed"} <= set(parts)
        self._change(parts)
        if message and {"body", "signed"} <= set(parts) and self._random.random() < 0.7:
            parts["signed"] = self._named(parts)
        return join_parts(parts)

    def _named(self, parts: Mapping[str, bytes]) -> bytes:
        """The head of a message, signed anew so that it names the body and the attachments that are there."""
        try:
            head = json.loads(parts["signed"][64:])
            head |= {"size": len(parts["body"]), "sha256": hashlib.sha256(parts["body"]).hexdigest()}
            added = {name[1:]: hashlib.sha256(part).hexdigest() for name, part in parts.items() if name[:1] == "+"}
            head["about"] = {**head["about"], "attached": added} if added else head["about"]
            text = json.dumps(head, sort_keys=True, separators=(",", ":")).encode("ascii")
        except (ValueError, TypeError, KeyError, RecursionError):
            return parts["signed"]
        return self._sign(text) + text

    def _change(self, parts: dict[str, bytes]) -> None:
        names = sorted(parts)
        name, other = self._random.choice(names), self._random.choice(names)
        how = self._random.random()
        if how < 0.7:
            parts[name] = self._inside(parts[name])
        elif how < 0.76:
            del parts[name]
        elif how < 0.82:
            parts[name] = parts[other]
        elif how < 0.88:
            parts[self._random.choice(["", "a", "zz", name + "0", name[:-1] + "9", name + "\n", "x" * 300])] = parts[
                name
            ]
        elif how < 0.94:
            parts[name] = self._donor()
        else:
            parts |= {f"{number:06d}": parts[name][:100] for number in range(self._random.choice((3, 70)))}

    def json(self, text: bytes) -> bytes:
        """One place in a JSON text is another value; in canonical form but for one time in twenty."""
        try:
            tree: object = json.loads(text)
        except (ValueError, RecursionError):
            return self._bytes(text)
        if self._random.random() < 0.03:
            return self._deep()
        tree = self._edited(tree, self._random.randrange(1, 5))
        separators = (",", ":") if self._random.random() < 0.95 else (", ", ": ")
        try:
            return json.dumps(tree, sort_keys=True, separators=separators).encode("ascii")
        except (TypeError, ValueError):
            return self._bytes(text)

    def _edited(self, tree: object, depth: int) -> object:
        inside: Sequence[object] = list(tree) if isinstance(tree, dict) else ()
        if isinstance(tree, list):
            inside = range(len(tree))
        if not inside or depth == 0:
            return self._value(tree)
        key = self._random.choice(inside)
        copy: dict[object, object] | list[object] = dict(tree) if isinstance(tree, dict) else list(tree)  # type: ignore[call-overload]
        how = self._random.random()
        if how < 0.85:
            copy[key] = self._edited(copy[key], depth - 1)  # type: ignore[index]
        elif how < 0.9:
            del copy[key]  # type: ignore[arg-type]
        elif isinstance(copy, list):
            copy += [self._random.choice((copy[key], 0, 1, 1 << 31))] * self._random.choice((1, 4, 40))  # type: ignore[index]
        elif how < 0.95:
            copy[self._random.choice(["", "a", "é", "attached", "staleness", "point"])] = self._random.choice(VALUES)
        else:
            copy[key] = copy[self._random.choice(list(copy))]
        return copy

    def _value(self, old: object) -> object:
        """Another value: mostly of the same type, so that it passes the first look."""
        draw = self._random
        if draw.random() < 0.6:
            if type(old) is int:
                near = (old + 1, old - 1, old + 2, 2 * old, old // 2)
                return draw.choice((0, 1, 3, 40, 1_000, *near, old << 8, old + (1 << 20)))
            if isinstance(old, float):
                return draw.choice((old * 0.5, old * 2.0, old * 1e-9, old * 1e9, old + 1.0, 1e-300, 1e6, 1e300))
            if isinstance(old, str) and old:
                at = draw.randrange(len(old))
                letters = "0123456789abcdef" if set(old) <= set("0123456789abcdef") else "0a9F-/. é\x00"
                return old[:at] + draw.choice(letters) + old[at + 1 :]
        return draw.choice(VALUES)

    def _deep(self) -> bytes:
        levels = self._random.choice((15, 17, 300, 1_000_000 // 500))
        return b'{"a":' + b"[" * levels + b"]" * levels + b"}"

    def _donor(self) -> bytes:
        donor = self._random.choice(self._donors)
        return donor[:_LARGEST_PLANTED]

    def _bytes(self, data: bytes) -> bytes:
        """A change that knows nothing of what the bytes mean."""
        draw = self._random
        at = draw.randrange(len(data) + 1)
        how = draw.randrange(8)
        if how == 0 and at < len(data):
            return data[:at] + bytes([data[at] ^ (1 << draw.randrange(8))]) + data[at + 1 :]
        if how == 1:
            return data[:at]
        if how == 2:
            return data + draw.randbytes(draw.choice((1, 31, 32, 33, 1_000)))
        if how == 3:
            other = self._donor()
            return data[:at] + other[draw.randrange(len(other) + 1) :]
        if how == 4:
            size = draw.choice((1, 2, 4, 8))
            number = draw.choice((0, 1, (1 << (8 * size)) - 1, 1 << (8 * size - 1)))
            return data[:at] + number.to_bytes(size, "little") + data[at + size :]
        if how == 5:
            return data[:at] + draw.randbytes(draw.choice((1, 4, 32))) + data[at:]
        if how == 6:
            return data[:at] + data[at + draw.choice((1, 4, 32)) :]
        twice = data + data[:_LARGEST_PLANTED]
        return draw.choice((b"", b"{}", b"[]", b"null", b"\xff" * 64, bytes(100), b"FN", twice))


def parts_in(data: bytes) -> dict[str, bytes]:
    """The parts in bytes that `join_parts` wrote; none in any other bytes."""
    parts: dict[str, bytes] = {}
    try:
        (count,) = struct.unpack_from("<I", data)
        at = 4
        for _ in range(min(count, 1_000)):
            label, size = struct.unpack_from("<HQ", data, at)
            at += 10
            parts[data[at : at + label].decode("ascii")] = data[at + label : at + label + size]
            at += label + size
    except (struct.error, UnicodeDecodeError, OverflowError):
        return {}
    return parts if at == len(data) and count == len(parts) else {}
