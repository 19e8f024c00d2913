"""The sentences that a person can meet, in tests/golden/sentences.txt: each is what the real command says.

Other tests assert codes, types and numbers. To change a sentence on purpose: WRITE_GOLDEN=1 pytest tests/golden -n 0,
then read the diff.
"""

import os
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from kit.smallrun import messages
from safetensors.numpy import save

from fednode.cli import main

GOLDEN = Path(__file__).with_name("sentences.txt")
RUN = "fednode run --config small.toml"
SMALL = f"{RUN} --dry-run"
RUN_ID = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{4}")
COMMANDS = [
    # usage
    "fednode wander",
    "fednode rum",
    "fednode run --clinets 3",
    "fednode run --clients",
    "fednode run stray",
    "fednode predict",
    # settings: values, files, variables, contradictions
    "fednode run --clients three",
    "fednode run --clients 1",
    "fednode run --clients 1000000",
    "fednode run --epsilon nan",
    "fednode run --delta 2",
    "fednode run --partition dirichlett",
    "fednode run --data ''",
    "fednode run --study another",
    "fednode run --config nowhere.toml",
    "fednode run --config latin.toml",
    "fednode run --config broken.toml",
    "fednode run --config unknown.toml",
    "fednode run --config truth.toml",
    "FEDNODE_CLIENTS=x fednode run",
    "FEDNODE_CLINETS=3 fednode run",
    "fednode run --threshold 6",
    "fednode run --threshold 2",
    "fednode run --min-survivors 30",
    "fednode run --clients 4 --assumed-colluders 3",
    "fednode run --rounds 2000",
    "fednode run --faults burnt@1:client-1",
    "fednode run --faults garbage@0:client-01",
    "fednode run --faults garbage@1:client-99",
    "fednode run --faults garbage@1:holder-1",
    "fednode run --engine flower --faults garbage@1:client-1",
    # data
    "fednode run --data missing.csv",
    "fednode run --data something",
    "fednode run --data banking77",
    "fednode run --data banking77 --data-dir .",
    "fednode run --data folder.csv",
    "fednode run --data empty.csv",
    "fednode run --data header.csv",
    "fednode run --data semicolons.csv",
    "fednode run --data latin.csv",
    "fednode run --data quote.csv",
    "fednode run --data long.csv",
    "fednode run --data twice.csv",
    "fednode run --data blank.csv",
    "fednode run --data wide.csv",
    "fednode run --data one.csv",
    "fednode run --data good.csv --label-column intent",
    "fednode run --data good.csv --vectors good.csv",
    "fednode run --data good.csv --vectors short.npz",
    # what cannot work
    f"{SMALL} --delta 1e-300",
    f"{RUN} --clients 1000",
    f"{RUN} --out good.csv",
    f"{RUN} --faults lost-before-upload@1:client-1,lost-before-upload@1:client-2",
    f"{RUN} --faults dead@1:holder-1,dead@1:holder-2",
    # the cache
    f"{SMALL} --cache disk",
    f"{SMALL} --cache redis://user:password@host",
    f"{SMALL} --cache redis://localhost:99999",
    f"{SMALL} --cache redis://user@localhost",
    f"{SMALL} --cache redis://user@localhost --cache-password-file nowhere",
    f"{SMALL} --cache redis://user@localhost --cache-password-file empty.csv",
    f"{SMALL} --cache rediss://localhost --cache-ca good.csv",
    f"{SMALL} --cache rediss://localhost --cache-key good.csv",
    f"{RUN} --cache unix:///nowhere/redis.sock",
    "fednode cache stats",
    "fednode cache stats nowhere",
    # predict and ledger
    "fednode predict nowhere hello",
    "fednode predict junk hello",
    "fednode predict junk hello ' '",
    "fednode predict bare hello",
    "fednode report nowhere",
    "fednode report junk",
    "fednode ledger verify nowhere",
    "fednode ledger verify empty.csv",
    "fednode ledger verify good.csv",
    "fednode ledger verify junk/report.json",
    # keys
    "fednode keys init members/ann",
    "fednode keys init members/ann --enrolment --name ann",
    "fednode keys init members/ann --name ann --trust nowhere",
    "fednode keys init members/ann --name ann --trust good.csv",
    "fednode keys init members/ann --name a/b --trust root/enrolment.pub",
    "fednode keys init root --enrolment",
    "fednode keys enrol root --out cohort.json",
    "fednode keys enrol root --out good.csv --client good.csv --holder good.csv",
    "fednode keys enrol root --out cohort.json --client good.csv --holder good.csv",
    "fednode keys enrol root --out cohort.json --client root/enrolment.key --holder good.csv",
    "fednode keys enrol root --out cohort.json --from good.csv --remove ann",
    "fednode keys enrol nowhere --out cohort.json --client good.csv --holder good.csv",
    "fednode keys show nowhere",
    "fednode keys show good.csv",
    "fednode keys show folder.csv",
    "fednode keys retire folder.csv",
    "fednode keys retire ann --task ''",
    "fednode keys retire lost",
    # keys: the next cohort file
    "fednode keys enrol root --out next.json --replace hal=new/member.json",
    "fednode keys enrol root --out next.json --from signed.json --replace hal",
    "fednode keys enrol root --out next.json --from signed.json --replace hal=hal/member.json",
    "fednode keys enrol root --out next.json --from signed.json --remove ann --client ann/member.json",
    "fednode keys enrol root --out next.json --from signed.json --remove ann --replace ann=new/member.json",
    "fednode keys enrol root --out next.json --from signed.json --replace zoe=new/member.json",
    "fednode keys enrol root --out next.json --from signed.json --remove hal",
    "fednode keys enrol root --out next.json --from signed.json --client ann/member.json",
    "fednode keys enrol root --out next.json --from signed.json --client node/member.json",
    "fednode keys enrol root --out next.json --from signed.json --client ''",
    "fednode keys enrol root --out next.json --from signed.json --client=",
    "fednode keys enrol root --out no/such/next.json --from signed.json",
    # keys: a member's budget
    "fednode keys budget signed.json",
    "fednode keys budget ann --max-epsilon nan",
    "fednode keys budget ann --max-epsilon -3",
    "fednode keys budget ann --delta 0",
    "fednode keys budget ann --reason x",
    "fednode keys budget ann --raise 5 --reason x",
    "fednode keys budget ann --raise nan --reason x",
]


def golden() -> dict[str, str]:
    """What each command says, with its exit code in front."""
    lines = GOLDEN.read_text(encoding="utf-8").splitlines()
    return {command.removeprefix("$ "): said for command, said in zip(lines[::3], lines[1::3], strict=True)}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with files that are wrong in one way each; no variable of whoever runs the tests reaches it."""
    folder = tmp_path_factory.mktemp("place")
    rows = "".join(f"text {number},{'card' if number % 2 else 'pay'}\n" for number in range(40))
    files = {
        "small.toml": b"data='good.csv'\nclients=4\nholders=3\nthreshold=2\nrounds=1\nfeatures=16\n",
        "latin.toml": "data = 'caf\xe9'\n".encode("latin-1"),
        "broken.toml": b"clients = 3\nrounds == 4\n",
        "unknown.toml": b"clients = 3\nround = 4\n",
        "truth.toml": b"clients = true\n",
        "empty.csv": b"",
        "header.csv": b"text,label\n",
        "semicolons.csv": b"text;label\na;b\n",
        "latin.csv": f"text,label\n{rows}caf\xe9,pay\n".encode("latin-1"),
        "quote.csv": f'text,label\n{rows}"open,pay\n'.encode(),
        "long.csv": f"text,label\n{rows}{'x' * 140_000},pay\n".encode(),
        "twice.csv": b"text,label,text\na,b,c\n",
        "blank.csv": b"text,label\na,b\n,c\n",
        "wide.csv": b"text,label\na,b\na,b,c\n",
        "one.csv": b"text,label\na,b\nc,b\n",
        "junk/model.safetensors": b"junk",
        "bare/model.safetensors": save({"kernel": np.ones(2, np.float32)}, metadata={"run": "a-run"}),
        "junk/report.json": b'{"kind":"fednode-report"}\n',
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "folder.csv").mkdir()
    messages(folder).rename(folder / "good.csv")
    np.savez(folder / "short.npz", train=np.ones((3, 4), np.float32), test=np.ones((1, 4), np.float32))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("os.environ", {name: v for name, v in os.environ.items() if not name.startswith("FEDNODE_")})
        patch.setattr("fednode.cli.run.quieten_flower", lambda *_: None)
        assert main(["keys", "init", "root", "--enrolment"]) == 0
        for name in ("ann", "hal", "node", "new", "lost"):
            assert main(["keys", "init", name, "--name", name, "--trust", "root/enrolment.pub"]) == 0
        Path("lost/identity.json").unlink()
        cards = "--node node/member.json --client ann/member.json --holder hal/member.json"
        assert main(["keys", "enrol", "root", "--out", "signed.json", *cards.split()]) == 0
        yield folder


def says(command: str, place: Path, capsys: pytest.CaptureFixture[str]) -> str:
    words = shlex.split(command)
    variables = [word for word in words if word.startswith("FEDNODE_")]
    with pytest.MonkeyPatch.context() as patch:
        for name, _, value in (word.partition("=") for word in variables):
            patch.setitem(os.environ, name, value)
        capsys.readouterr()
        code = main(words[len(variables) + 1 :])
    err = capsys.readouterr().err.replace(str(place), "PLACE")
    assert err.startswith("fednode: ") and err.count("\n") == 1
    return f"{code}  {RUN_ID.sub('ID', err.removeprefix('fednode: ').rstrip())}"


@pytest.fixture(scope="module")
def written():
    """What was said, by command; written over the file at the end if that is asked for."""
    said: dict[str, str] = {}
    yield said
    if "WRITE_GOLDEN" in os.environ:
        GOLDEN.write_text("".join(f"$ {command}\n{text}\n\n" for command, text in said.items()), encoding="utf-8")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_says_its_sentence(command, written, place, capsys):
    written[command] = says(command, place, capsys)
    assert "WRITE_GOLDEN" in os.environ or written[command] == golden()[command]


@pytest.mark.skipif("WRITE_GOLDEN" in os.environ, reason="the file is written when all have spoken")
def test_the_file_holds_these_sentences_and_no_others():
    assert list(golden()) == COMMANDS
    assert {said.split()[0] for said in golden().values()} == {"2", "3", "5", "6", "8"}
    assert [said for said in golden().values() if re.search("unexpected [A-Z]|Traceback", said)] == []
