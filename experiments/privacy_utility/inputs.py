"""The public sets as the study reads them: a folder with train.csv and test.csv, and an NPZ file of vectors.

`root` holds banking77/, clinc150/, multidogo/ and embeddings/ as published; nothing there is changed. What has to be
written anew goes to `work`.
"""

import csv
import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np

SERVICES = ("airline", "fastfood", "finance", "insurance", "media", "software")
CHATTER = {
    "contentonly",
    "confirmation",
    "openinggreeting",
    "closinggreeting",
    "rejection",
    "thankyou",
    "outofdomain",
}
"""MultiDoGO's intents that name no service."""
FEWEST = 20
"""Training turns of an intent below which it is left out."""
SOURCES = {
    "banking77": "BANKING77, Casanueva et al. 2020, CC BY 4.0",
    "clinc150": "CLINC150, Larson et al. 2019, CC BY 3.0",
}

Fields = tuple[str, ...]


def data_settings(name: str, root: Path, work: Path, *, hashed: bool) -> dict[str, object]:
    """The settings that name this set, with its files made where that is needed."""
    if name == "banking77":
        found: dict[str, object] = {"data": "banking77", "data_dir": root / "banking77"}
        vectors = root / "embeddings/banking77_minilm.npz"
    elif name == "clinc150":
        found, vectors = {"data": str(_clinc150(root, work))}, root / "embeddings/clinc150_minilm.npz"
    else:
        folder = _multidogo(root, work)
        found, vectors = {"data": str(folder)}, folder / "vectors.npz"
    return found if hashed else found | {"vectors": vectors}


def _clinc150(root: Path, work: Path) -> Path:
    """Its 150 intents; what is out of scope is left out."""
    folder = work / "clinc150"
    if not folder.exists():
        splits = json.loads((root / "clinc150/data_full.json").read_text("utf-8"))
        folder.mkdir(parents=True)
        for part in ("test", "train"):
            _write(folder / f"{part}.csv", ("text", "label"), splits[part])
    return folder


def _multidogo(root: Path, work: Path) -> Path:
    """Turns with one service intent, each with the conversation that it is from, and their vectors."""
    folder = work / "multidogo"
    if folder.exists():
        return folder
    texts = json.loads((root / "embeddings/multidogo_texts.json").read_text("utf-8"))
    place = {text: at for at, text in enumerate(texts)}
    train, test = (list(_turns(root / "multidogo/turn_level", part)) for part in ("train", "test"))
    counts = Counter(label for _, label, _ in train)
    kept = [[row for row in part if counts[row[1]] >= FEWEST and row[0] in place] for part in (train, test)]
    folder.mkdir(parents=True)
    with np.load(root / "embeddings/multidogo_minilm.npz") as arrays:
        vectors = arrays["vectors"]
    rows = {name: vectors[[place[row[0]] for row in part]] for name, part in zip(("train", "test"), kept, strict=True)}
    np.savez(folder / "vectors.npz", **rows)
    for name, part in zip(("train", "test"), kept, strict=True):
        _write(folder / f"{name}.csv", ("text", "label", "customer"), part)
    return folder


def _turns(folder: Path, part: str) -> Iterable[Fields]:
    for service in SERVICES:
        for line in (folder / service / f"{part}.tsv").read_text("utf-8").split("\n")[1:]:
            fields = line.split("\t")
            if len(fields) < 6 or fields[5] in CHATTER or not re.fullmatch("[a-z]+", fields[5]):
                continue
            yield fields[3], fields[5], f"{service}/{fields[0]}"


def _write(path: Path, header: Fields, rows: Iterable[Iterable[str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
