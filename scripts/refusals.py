"""Print docs/refusals.md from the codes in the source: run `python -m scripts.refusals > docs/refusals.md`."""

from fednode.reasons import Reason

HEAD = """# Why a message was not accepted

A peer's fault never ends a run: it is counted under one of these codes, in the report and in the log.
`refused: CODE` means that a member declined and gave the code itself. This page is made by
`python -m scripts.refusals` from `fednode/reasons.py`.

| code | meaning |
|---|---|
"""


def page() -> str:
    """The page as it has to stand in docs/refusals.md."""
    return HEAD + "".join(f"| `{reason}` | {reason.meaning} |\n" for reason in Reason)


if __name__ == "__main__":
    print(page(), end="")
