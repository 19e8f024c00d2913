"""The node app: members of a cohort file are served, a cohort that does not fit is refused before a run begins."""

import pytest
from kit.members import CLIENTS, ENROLMENT, HOLDERS, NODE
from kit.smallrun import small_settings

from fednode.assemble.serve import Workload, serve
from fednode.errors import ConfigError
from fednode.protocol.cohort import Cohort
from fednode.protocol.model import Layout
from fednode.settings import to_run_config
from fednode_clients.keyfolder.folder import KeyFolder
from fednode_crypto.identity import SigningKey

WORKLOAD = Workload(layout=Layout(("weight",), ((2, 8),)), records=40, max_records=10)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (None, "No such file"),
        (b"{}", "malformed"),
        ("cohort", "2 clients and 1 holders"),
        ("of another enroller", "unknown-cohort"),
        ("of another node", "names another node key"),
        ("expired", "expired-cohort"),
        ("older", "older-cohort"),
        ("another", "older-cohort"),
    ],
)
def test_a_cohort_file_that_does_not_fit_is_refused(tmp_path, content, named):
    path, node = tmp_path / "cohort.json", KeyFolder.create(tmp_path / "node", "node", ENROLMENT.public)
    mine, members = node.signer.key.public, [member.public for member in (*CLIENTS[:2], HOLDERS[0])]
    made = {
        "cohort": lambda: Cohort.enrol(members, ENROLMENT, mine),
        "of another enroller": lambda: Cohort.enrol(members, SigningKey.generate(), mine),
        "of another node": lambda: Cohort.enrol(members, ENROLMENT, NODE.signing_key.public, 2),
        "expired": lambda: Cohort.enrol(members, ENROLMENT, mine, 1, 1_700_000_000),
        "older": lambda: Cohort.enrol(members, ENROLMENT, mine, 4),
        "another": lambda: Cohort.enrol(members[1:], ENROLMENT, mine),
    }
    node.cohorts.require_current(Cohort.enrol(members, ENROLMENT, mine, 5 if content == "older" else 1))
    if content is not None:
        path.write_bytes(made[content]().to_bytes() if isinstance(content, str) else content)
    config = to_run_config(small_settings(tmp_path)) | {"cohort": str(path), "node-key-folder": str(tmp_path / "node")}
    with pytest.raises(ConfigError, match=named):
        serve(None, 1, config, WORKLOAD)
    with pytest.raises(ConfigError, match="set node-key-folder"):
        serve(None, 1, config | {"node-key-folder": ""}, WORKLOAD)
    assert not (tmp_path / "runs").exists()
