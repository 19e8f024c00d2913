"""The node app: members of a cohort file are served, a cohort that does not fit is refused before a run begins."""

import pytest
from kit.smallrun import small_settings

from fednode.assemble.enrolment import enrol_simulation
from fednode.assemble.serve import Workload, serve
from fednode.errors import ConfigError
from fednode.protocol.model import Layout
from fednode.settings import to_run_config

WORKLOAD = Workload(layout=Layout(("weight",), ((2, 8),)), records=40, max_records=10)


@pytest.mark.parametrize(
    ("content", "named"), [(None, "No such file"), (b"{}", "malformed"), ("cohort", "2 clients and 2 holders")]
)
def test_a_cohort_file_that_does_not_fit_is_refused(tmp_path, content, named):
    path = tmp_path / "cohort.json"
    if content == "cohort":
        content = enrol_simulation(tmp_path / "keys", 2, 2).to_bytes()
    if content is not None:
        path.write_bytes(content)
    config = to_run_config(small_settings(tmp_path)) | {"cohort": str(path)}
    with pytest.raises(ConfigError, match=named):
        serve(None, 1, config, WORKLOAD)
    assert not (tmp_path / "runs").exists()
