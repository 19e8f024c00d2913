"""A key holder's whole work in a process without what only clients and the node need. `python holder_work.py FOLDER`.

Its keys, and a round under the default scheme over `Members`: task, box keys, boxes, confirmation, opening, close.
"""

import sys
from pathlib import Path

FORBIDDEN = {
    *("matplotlib", "opacus", "ray", "redis", "safetensors", "sklearn", "tenseal", "torch", "dp_accounting"),
    "fednode_study",
}


class Refusing:
    """An import hook: a module of `FORBIDDEN` counts as not installed."""

    def find_spec(self, name: str, *_: object) -> None:
        if name.partition(".")[0] in FORBIDDEN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def main(folder: Path) -> None:
    sys.meta_path.insert(0, Refusing())  # type: ignore[arg-type]
    import flwr.clientapp
    from kit.cohort import FakeCohort, Size

    from fednode.cli import main as fednode
    from fednode_clients.mods import privacy_mods

    assert flwr.clientapp.ClientApp and len(privacy_mods()) == 2
    assert fednode(["keys", "init", "--enrolment", str(folder / "enrolment")]) == 0
    trust = str(folder / "enrolment" / "enrolment.pub")
    assert fednode(["keys", "init", "--name", "anna", "--trust", trust, str(folder / "anna")]) == 0
    for command in (["keys", "show", str(folder / "anna")], ["keys", "retire", str(folder / "anna")]):
        assert fednode(command) == 0
    cohort = FakeCohort(folder, Size(clients=3, holders=3, dimension=4, scheme="ring"))
    driver = cohort.begun()
    driver.run_round(1)
    driver.run_round(2)
    sys.stdout.write(f"{sorted({kind for (name, kind) in cohort.said if name == 'holder-1'})}\n")
    assert fednode(["ledger", "verify", str(folder / "ledger.jsonl")]) == 0


if __name__ == "__main__":
    main(Path(sys.argv[1]))
