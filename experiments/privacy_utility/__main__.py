"""`python -m privacy_utility --data DIR [--row NAME] [--seeds N]`: measure, keep each figure, print the table."""

import argparse
import subprocess
import sys
from pathlib import Path

from fednode.disk.no_dumps import keep_keys_in_memory
from privacy_utility.measure import measure
from privacy_utility.results import add, read, table
from privacy_utility.rows import ROWS


def main() -> None:
    """Measure what the results lack, one seed after the other."""
    given = _arguments()
    keep_keys_in_memory()
    for row in given.row or ROWS:
        # a reference has no noise, and its records are not dealt
        for seed in range(1 if ROWS[row].kind == "reference" else given.seeds):
            if str(seed) in read(given.results).get(row, {}):
                continue
            figure = measure(ROWS[row], seed, given.data, given.work)
            add(given.results, row, seed, figure, _commit())
            sys.stdout.write(f"{row} seed {seed}: {figure.accuracy:.2f} % in {figure.seconds:.0f} s\n")
            sys.stdout.flush()
    text = "\n".join(table(read(given.results))) + "\n"
    given.results.with_suffix(".md").write_text(text, encoding="utf-8")
    sys.stdout.write(text)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="privacy_utility", description=__doc__)
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with banking77, clinc150, multidogo, embeddings"
    )
    parser.add_argument("--row", action="append", choices=list(ROWS), help="a row, may be repeated [default: all]")
    parser.add_argument("--seeds", type=int, default=5, help="runs of a row [default: 5]")
    parser.add_argument("--results", type=Path, default=Path("privacy_utility.json"), help="figures so far, kept")
    parser.add_argument("--work", type=Path, default=Path("privacy_utility_work"), help="folder for files in between")
    return parser.parse_args()


def _commit() -> str:
    here = Path(__file__).parent
    command = ["git", "describe", "--always", "--dirty"]
    # git, and no words of others
    found = subprocess.run(command, cwd=here, capture_output=True, check=False)  # noqa: S603  # nosec B603
    return found.stdout.decode().strip() or "unknown"


if __name__ == "__main__":
    main()
