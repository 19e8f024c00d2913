"""Files made before a run: a split that lasts, and a member's records as arrays of the task."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fednode.disk.atomic import write_whole
from fednode.errors import DataError, StoreError
from fednode_study.data import CsvLayout, Dataset, Split, read_rows
from fednode_study.features import HashedText


def write_split(dataset: Dataset, folder: Path) -> list[str]:
    """train.csv and test.csv with columns text and label, in the order in which a run reads them."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"could not make {folder}: {error.strerror}; choose another --into") from error
    lines = []
    for name, split in (("train.csv", dataset.train), ("test.csv", dataset.test)):
        write_whole(folder / name, _rows(split, dataset.labels), 0o600)
        lines.append(f"{folder / name}  {len(split):,} records")
    return lines


def _rows(split: Split, labels: Sequence[str]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(("text", "label"))
    writer.writerows(zip(split.texts, (labels[number] for number in split.labels.tolist()), strict=True))
    return text.getvalue().encode("utf-8")


def write_member_file(path: Path, layout: CsvLayout, features: int, labels: Path, file: Path) -> list[str]:
    """Arrays `inputs`, float32 [n, features], and `targets`, int64 [n], of the records of a CSV file.

    Raises `DataError` for a label that is not in `labels`, with all such labels.
    """
    try:
        names = [line.strip() for line in labels.read_text("utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{labels} cannot be read; name a UTF-8 file with the task's labels, one a line") from error
    if len(set(names)) != len(names) or len(names) < 2:
        raise DataError(f"{labels} has {len(names)} labels, {len(set(names))} different ones: a task has two or more")
    rows, number = read_rows(path, layout), {name: at for at, name in enumerate(names)}
    unknown = sorted({row.label for row in rows} - number.keys())
    if unknown:
        raise DataError(
            f"{path} has labels that the task does not know: {', '.join(unknown[:20])}; correct or remove them"
        )
    memory = io.BytesIO()
    inputs = HashedText(features).transform([row.text for row in rows])
    np.savez(memory, inputs=inputs, targets=np.array([number[row.label] for row in rows], dtype=np.int64))
    write_whole(file, memory.getvalue(), 0o600)
    return [f"{file}  {len(rows):,} records, {features:,} features, {len(names)} labels"]
