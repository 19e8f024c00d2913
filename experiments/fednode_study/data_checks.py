"""What makes the figures of a data set say less than they seem to: a sentence for each, for plan and report.

The checks read the records, and what they find is in no epsilon.
"""

import unicodedata
from collections.abc import Iterator

from fednode.assemble.study import rounded_up
from fednode_study.data import Dataset

_NAMED = 3


def data_warnings(dataset: Dataset) -> tuple[str, ...]:
    """A sentence for test rows that are training rows too, and one for labels that are one label in two spellings."""
    return (*_repeated(dataset), *_spellings(dataset.labels))


def _repeated(dataset: Dataset) -> Iterator[str]:
    known = set(zip(map(folded, dataset.train.texts), dataset.train.labels.tolist(), strict=True))
    tested = zip(map(folded, dataset.test.texts), dataset.test.labels.tolist(), strict=True)
    count = sum(row in known for row in tested)
    if count:
        # rounded as all counts of records are that a report holds
        yield (
            f"up to {rounded_up(count):,} of about {rounded_up(len(dataset.test)):,} test rows are training rows too: "
            "the accuracy is partly that of remembering them; remove repeated rows"
        )


def _spellings(labels: tuple[str, ...]) -> Iterator[str]:
    alike: dict[str, list[str]] = {}
    for label in labels:
        alike.setdefault(folded(label), []).append(label)
    found = [group for group in alike.values() if len(group) > 1]
    if found:
        named = "; ".join(" and ".join(map(ascii, group)) for group in found[:_NAMED])
        more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        yield (
            f"labels differ only in case, space or Unicode form and are learned as different ones: {named}{more}; "
            "write each label in one way"
        )


def folded(text: str) -> str:
    """The text without what case, white space and Unicode form make of it."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())
