"""Data sets: labelled messages, split into what clients train on and what the test measures.

support      built in: a shop's customers, from a seeded grammar
banking77    from a folder with train.csv and test.csv (PolyAI task-specific-datasets, CC BY 4.0)
a folder     one with train.csv and test.csv, each with a text column and a label column
a path       any CSV file with a text column and a label column; every fifth record of a label becomes test
"""

import codecs
import csv
import hashlib
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fednode.errors import ConfigError, DataError
from fednode_study import support

BANKING77_SOURCE = (
    "BANKING77, Casanueva et al. 2020, Efficient Intent Detection with Dual Sentence Encoders; "
    "PolyAI task-specific-datasets, CC BY 4.0"
)
_SHOWN = 20
"""Most faults of a file in one sentence."""
SUPPORT_SOURCE = f"FedNode's own grammar, seed '{support.SEED}', Apache-2.0"


class Row(NamedTuple):
    """A record as it is read; the customer is "" where no column names it."""

    text: str
    label: str
    customer: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Texts and the numbers of their labels and customers, record by record; the texts never print.

    Customers are numbered from 0 in the order in which they first come; all are 0 where no column names them.
    """

    texts: tuple[str, ...] = field(repr=False)
    labels: NDArray[np.int64] = field(repr=False)
    customers: NDArray[np.int64] = field(repr=False)

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True, slots=True)
class Dataset:
    """One task: `labels[i]` names label number i; `source` says in one line where it comes from and its licence.

    `given` says that the operator gave it, so that nothing is known of its licence.
    """

    name: str
    labels: tuple[str, ...]
    train: Split
    test: Split
    source: str
    given: bool = False


@dataclass(frozen=True, slots=True)
class CsvLayout:
    """How to read a CSV file: its columns, which share becomes test, and the seed that decides which records.

    `customer`, if not None, is the column that names whose a record is. `fixed` says that the columns are the data
    set's own: no setting names others. `delimiter` is what stands between fields, `encoding` a codec of Python.
    """

    text: str = "text"
    label: str = "label"
    test_share: float = 0.2
    seed: int = 0
    fixed: bool = False
    customer: str | None = None
    delimiter: str = ","
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        if not 0 < self.test_share < 1:
            raise ConfigError(f"test share is {self.test_share}; give a share between 0 and 1, such as 0.2")
        if self.text == self.label:
            raise ConfigError(
                f"text_column and label_column are both {self.text!r}: a model would learn to repeat its input; "
                "name two columns"
            )
        if self.customer in (self.text, self.label):
            raise ConfigError(
                f"customer_column is {self.customer!r}, which is the text or the label: name the column that says "
                "whose a record is"
            )

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """Each column that is read, and the flag that names it."""
        named = ((self.text, "--text-column"), (self.label, "--label-column"))
        return named if self.customer is None else (*named, (self.customer, "--customer-column"))


def load(name: str, folder: Path | None = None, layout: CsvLayout | None = None) -> Dataset:
    """The data set of that name, or of the CSV file or the folder at that path.

    Raises `DataError` with the file, the line where there is one, and what to do about it. `layout` is for paths only.
    """
    if name in ("support", "banking77") and layout is not None and layout.customer is not None:
        raise DataError(f"{name} does not say whose its messages are; protect a record, or give a CSV file")
    if name == "support":
        return load_support()
    if name == "banking77":
        return load_banking77(folder)
    place = Path(name) if folder is None else folder / name
    if _is_file(place / "train.csv"):
        return load_folder(place, layout or CsvLayout())
    if name.endswith(".csv") or _is_file(Path(name)):
        return load_csv(place, layout or CsvLayout())
    raise DataError(
        f"there is no data set {name!r}; give 'support', 'banking77', the path of a CSV file, or a folder with "
        "train.csv and test.csv"
    )


def load_support() -> Dataset:
    """The built-in set: the same bytes on every machine."""
    train: list[Row] = []
    test: list[Row] = []
    for text, intent, is_test in support.messages():
        (test if is_test else train).append(Row(text, intent))
    return _dataset("support", train, test, SUPPORT_SOURCE, "support")


def load_banking77(folder: Path | None) -> Dataset:
    """BANKING77 from a folder with its public train.csv and test.csv (columns text and category)."""
    fetch = (
        "banking77 is read from a folder with train.csv and test.csv (columns text, category). They are public: folder "
        "banking_data of github.com/PolyAI-LDN/task-specific-datasets, CC BY 4.0"
    )
    if folder is None:
        raise DataError(f"{fetch}. Pass the folder as --data-dir")
    for part in ("train.csv", "test.csv"):
        if not _is_file(folder / part):
            raise DataError(f"{folder / part} is missing. {fetch}")
    layout = CsvLayout(label="category", fixed=True)
    train, test = (read_rows(folder / part, layout) for part in ("train.csv", "test.csv"))
    return _dataset("banking77", train, test, BANKING77_SOURCE, folder)


def load_folder(folder: Path, layout: CsvLayout) -> Dataset:
    """A set that is split already: train.csv and test.csv in one folder, with the same columns."""
    train, test = (read_rows(folder / part, layout) for part in ("train.csv", "test.csv"))
    return _given(folder, folder.name, train, test)


def load_csv(path: Path, layout: CsvLayout) -> Dataset:
    """Any CSV file with a header: a seeded split that holds the same share of every label.

    A label with a single record trains; every label with two or more records is in both splits.
    """
    train: list[Row] = []
    test: list[Row] = []
    by_label: dict[str, list[Row]] = {}
    for row in read_rows(path, layout):
        by_label.setdefault(row.label, []).append(row)
    for label in sorted(by_label):
        rows = by_label[label]
        order = sorted(range(len(rows)), key=lambda i: _lot(layout.seed, label, i))
        held_out = min(len(rows) - 1, max(1, round(layout.test_share * len(rows))))
        test += [rows[i] for i in sorted(order[:held_out])]
        train += [rows[i] for i in sorted(order[held_out:])]
    return _given(path, path.stem, train, test)


def read_rows(path: Path, layout: CsvLayout) -> list[Row]:
    """Every record of a CSV file; a text may hold quoted delimiters and line breaks.

    Raises `DataError` for a missing or doubled column, bytes of another encoding, and a file without records; and one
    that lists all records that are broken or lack text, label or customer, with the lines in which they start.
    """
    faults: list[str] = []
    records = _records(_decoded(path, layout.encoding), layout.delimiter, faults)
    _, header = next(records, (0, []))
    if not header and faults:
        raise DataError(f"{path}, {faults[0]}")
    if not header:
        names = ",".join(name for name, _ in layout.columns)
        raise DataError(f"{path} is empty; it needs a header, {names}, and a record a line")
    places = _places(path, [name.strip() for name in header], layout)
    rows: list[Row] = []
    for line, record in records:
        row = Row(*("".join(record[at : at + 1]).strip() for at in places))
        if len(record) > len(header):
            faults.append(f"line {line}: more fields than columns; put texts with a {layout.delimiter!r} in quotes")
        elif not row.text or not row.label:
            faults.append(f"line {line}: the text or the label is empty; fill it in or remove the line")
        elif layout.customer is not None and not row.customer:
            faults.append(f"line {line}: the customer is empty; fill it in or remove the line")
        rows.append(row)
    if faults:
        more = f"; and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
        raise DataError(f"{path}, {'; '.join(faults[:_SHOWN])}{more}")
    if not rows:
        raise DataError(f"{path} has no records below its header")
    return rows


def _records(text: str, delimiter: str, faults: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Each record that is not blank, with the line in which it starts; a fault ends them, and is noted."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=delimiter)
    while True:
        line = reader.line_num + 1
        try:
            record = next(reader, None)
        except csv.Error as error:
            if "field limit" in str(error):
                why = f"a field is longer than {csv.field_size_limit():,} characters; shorten it, or close its quotes"
            else:
                why = f"not a CSV record ({error}); check its quotes"
            faults.append(f"line {line}: {why}")
            return
        if record is None:
            return
        if any(field.strip() for field in record):
            yield line, record


def _places(path: Path, columns: Sequence[str], layout: CsvLayout) -> list[int]:
    """The places in a record of the columns that are read. Raises `DataError` for a name that two columns have."""
    for name in filter(None, columns):
        if columns.count(name) > 1:
            raise DataError(f"{path} has {columns.count(name)} columns {name!r}; rename all but one")
    for name, flag in layout.columns:
        if name in columns:
            continue
        for sign, kind, named in ((";", "semicolons", "';'"), ("\t", "tabs", "tab"), (",", "commas", "','")):
            if len(columns) == 1 and sign in columns[0]:
                raise DataError(f"{path} has {kind} between its columns: give --delimiter {named}")
        advice = "use the published file" if layout.fixed else f"name the right one with {flag}"
        raise DataError(f"{path} has no column {name!r}, its columns are {', '.join(columns)}; {advice}")
    return [columns.index(name) for name, _ in layout.columns]


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: OSError) -> DataError:
    return DataError(f"{path} cannot be read: {error.strerror}; name a file that this user may read")


def _decoded(path: Path, encoding: str) -> str:
    try:
        raw = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    except FileNotFoundError:
        raise DataError(f"there is no file {path}; check the path") from None
    except OSError as error:
        raise _unreadable(path, error) from None
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}, line {line}: byte 0x{raw[error.start]:02x} is not {encoding.upper()}; save the file as UTF-8, or "
            "name its encoding with --encoding"
        ) from None


def _lot(seed: int, label: str, number: int) -> bytes:
    return hashlib.sha256(f"{seed}/{number}/{label}".encode()).digest()


def _given(place: Path, name: str, train: Sequence[Row], test: Sequence[Row]) -> Dataset:
    return replace(_dataset(name, train, test, f"{place.name}, given by the operator", place), given=True)


def _dataset(name: str, train: Sequence[Row], test: Sequence[Row], source: str, place: Path | str) -> Dataset:
    labels = tuple(sorted({row.label for row in train}))
    if len(labels) < 2:
        raise DataError(f"{place} has one label only ({labels[0]!r}); a classifier needs two or more")
    unknown = sorted({row.label for row in test} - set(labels))
    if unknown:
        raise DataError(f"{place}: label {unknown[0]!r} is in the test part only; no client could learn it")
    number = {label: i for i, label in enumerate(labels)}
    return Dataset(name, labels, _split(train, number), _split(test, number), source)


def _split(rows: Sequence[Row], number: dict[str, int]) -> Split:
    known: dict[str, int] = {}
    customers = [known.setdefault(row.customer, len(known)) for row in rows]
    labels = np.array([number[row.label] for row in rows], dtype=np.int64)
    return Split(tuple(row.text for row in rows), labels, np.array(customers, dtype=np.int64))
