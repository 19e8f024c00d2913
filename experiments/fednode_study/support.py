"""The `support` set: messages of a shop's customers, written by a seeded grammar; the same bytes on every machine.

A message is an opener, a background sentence, the request, another background sentence and a closer, of which only the
request is always there; then a writer's habits (case, short forms, missing full stops) and slips of the keyboard.
Every message has its own stream of draws, SHAKE-256 of (seed, intent, number), so that nothing depends on Python's or
numpy's generators, and a new intent leaves the messages of the others as they are.
"""

import hashlib
import re
import struct
from collections.abc import Iterator, Sequence

from fednode_study.support_grammar import BACKGROUND, CLOSERS, OPENERS, WORDS
from fednode_study.support_intents import INTENTS, Intent

SEED = "fednode support 1"
MESSAGES_PER_INTENT = 400
TEST_EVERY = 5

_CHOICE = re.compile(r"\(([^()]*)\)|\{(\w+)\}")
_WORD = re.compile(r"[a-z]{4,}")
_QUESTION_WORDS = frozenset(
    [
        "am",
        "are",
        "can",
        "could",
        "do",
        "does",
        "has",
        "have",
        "how",
        "if",
        "is",
        "what",
        "when",
        "where",
        "which",
        "why",
        "will",
        "would",
    ]
)
_SHORT_FORMS = {"please": "pls", "you": "u", "thanks": "thx", "because": "cuz", "are": "r", "do not": "dont"}
_LONG_FORMS = re.compile(rf"\b({'|'.join(_SHORT_FORMS)})\b")
_NOT_LETTERS = re.compile(r"[^a-z0-9]+")


class Draws:
    """A stream of choices that depends on its name alone."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._blocks = 0
        self._words: list[int] = []

    def below(self, bound: int) -> int:
        """An integer in [0, bound); bound < 2^16, so the bias of the remainder is below 2^-16."""
        if not self._words:
            block = hashlib.shake_256(f"{self._name}/{self._blocks}".encode()).digest(256)
            self._words = list(struct.unpack(">64I", block))
            self._blocks += 1
        return self._words.pop() % bound

    def pick(self, options: Sequence[str]) -> str:
        """One of the options, all equally likely."""
        return options[self.below(len(options))]

    def chance(self, percent: int) -> bool:
        """True in `percent` of 100 draws."""
        return self.below(100) < percent


def messages() -> Iterator[tuple[str, str, bool]]:
    """Yield (text, intent, whether it belongs to the test split): intents in turn, no text twice."""
    seen: set[str] = set()
    streams = {name: _distinct(name, intent, seen) for name, intent in INTENTS.items()}
    for number in range(MESSAGES_PER_INTENT):
        for name, stream in streams.items():
            yield next(stream), name, number % TEST_EVERY == TEST_EVERY - 1


def expand(text: str, draws: Draws) -> str:
    """`text` with every `(a|b)` decided, the innermost first, and every `{name}` replaced by one of its words."""
    while found := _CHOICE.search(text):
        options = found[1].split("|") if found[1] is not None else WORDS[found[2]]
        text = text[: found.start()] + draws.pick(options) + text[found.end() :]
    return " ".join(text.split())


def plain(text: str) -> str:
    """Lower-case letters and digits only: two messages with the same plain form count as the same."""
    return _NOT_LETTERS.sub(" ", text.lower()).strip()


def _distinct(name: str, intent: Intent, seen: set[str]) -> Iterator[str]:
    number = 0
    while True:
        text = _message(intent, Draws(f"{SEED}/{name}/{number}"))
        number += 1
        if plain(text) not in seen:
            seen.add(plain(text))
            yield text


def _message(intent: Intent, draws: Draws) -> str:
    request = expand(draws.pick(intent.requests), draws).rstrip("?")
    asks = request.split()[0].lower() in _QUESTION_WORDS
    sentences = [f"{request}?" if asks and draws.chance(60) else request]
    for percent, in_front in ((45, True), (30, False)):
        if draws.chance(percent):
            background = expand(draws.pick(BACKGROUND[draws.pick(intent.topics)]), draws)
            sentences.insert(0 if in_front else len(sentences), background)
    if draws.chance(30):
        sentences.insert(0, expand(draws.pick(OPENERS), draws))
    if draws.chance(35):
        sentences.append(expand(draws.pick(CLOSERS), draws))
    return _slips(_written(sentences, draws), draws)


def _written(sentences: list[str], draws: Draws) -> str:
    tidy, joint = draws.chance(50), draws.pick((". ", ". ", ", ", " - ", " "))
    if tidy:
        sentences = [sentence[0].upper() + sentence[1:] for sentence in sentences]
    text = joint.join(sentences).replace("?. ", "? ").replace("?, ", "? ")
    if draws.chance(15):
        text = _LONG_FORMS.sub(lambda found: _SHORT_FORMS[found[0]], text)
    if draws.chance(5):
        return text.upper()
    return f"{text}." if tidy and text[-1].isalnum() else text if draws.chance(60) else text.lower()


def _slips(text: str, draws: Draws) -> str:
    """Swap, drop or double a letter inside a word: none in half of the messages, one or two in the others."""
    for _ in range((0, 0, 0, 1, 2, 2)[draws.below(6)]):
        words = list(_WORD.finditer(text))
        if not words:
            return text
        word = words[draws.below(len(words))]
        at = word.start() + 1 + draws.below(len(word[0]) - 2)
        pair = text[at : at + 2]
        slip = (pair[::-1], pair[0], pair[0] + pair)[draws.below(3)]
        text = text[:at] + slip + text[at + 2 :]
    return text
