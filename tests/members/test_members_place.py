"""Which member a process is, and what its own configuration and its run's make of its limits."""

import pytest

from fednode.errors import ConfigError
from fednode_clients.keyfolder.folder import KeyFolder
from fednode_clients.limits import MemberLimits
from fednode_clients.membership import MemberParts, Members, NodeContext, key_folder, member_name
from fednode_crypto.identity import SigningKey


@pytest.mark.parametrize(
    ("run", "left"), [((1, 0.0, 10**6), (4, 2.0, 5)), ((9, 3.0, 2), (9, 3.0, 2)), ((9, 0.0, 10**6), (9, 2.0, 5))]
)
def test_a_runs_configuration_only_narrows_the_limits(run, left):
    names = ("floor-survivors", "min-noise", "max-rounds")
    own = dict(zip(names, (4, 2.0, 5), strict=True))
    limits = MemberLimits().configured(own, dict(zip(names, run, strict=True)), simulated=False)
    assert limits == MemberLimits(*left)


@pytest.mark.parametrize(("old", "new"), [("min-survivors", "floor-survivors"), ("z-min", "min-noise")])
def test_a_limit_under_its_old_name_is_refused_and_not_forgotten(old, new):
    with pytest.raises(ConfigError, match=new):
        MemberLimits().configured({old: 10}, {}, simulated=False)
    assert MemberLimits().configured({}, {old: 10}, simulated=True) == MemberLimits()


@pytest.mark.parametrize(
    ("node", "run", "most"),
    [
        ({}, {}, 0),
        ({}, {"staleness": 3}, 3),
        ({"key-folder": True}, {"staleness": 3}, 0),
        ({"key-folder": True, "max-staleness": 2}, {"staleness": 3}, 2),
    ],
)
def test_no_run_makes_a_member_take_older_models_unless_its_keys_are_the_runs(tmp_path, node, run, most):
    KeyFolder.create(tmp_path / "client-1", "client-1", SigningKey.generate().public)
    own = {**node, "partition-id": 0} | ({"key-folder": str(tmp_path / "client-1")} if "key-folder" in node else {})
    spot = NodeContext(1, own, {**run, "clients": 2, "holders": 2, "key-root": str(tmp_path)})
    assert Members(MemberParts()).client(spot)._limits.max_staleness == most
    # whoever finds keys in a way of its own is no simulation
    found = Members(MemberParts(folder=lambda _: tmp_path / "client-1")).client(spot)
    assert found._limits.max_staleness == node.get("max-staleness", 0)


@pytest.mark.parametrize(("number", "name"), [(0, "client-01"), (9, "client-10"), (10, "holder-1"), (11, "holder-2")])
def test_members_of_a_simulation_are_numbered(tmp_path, number, name):
    run = {"clients": 10, "holders": 2, "key-root": str(tmp_path)}
    spot = NodeContext(1, {"partition-id": number}, run)
    assert member_name(spot) == name and key_folder(spot) == tmp_path / name
    assert key_folder(NodeContext(1, {"partition-id": number, "key-folder": "/own"}, run)).as_posix() == "/own"


@pytest.mark.parametrize("node", [{}, {"partition-id": "0"}, {"partition-id": 12}, {"partition-id": -1}])
def test_a_node_without_a_part_says_so(node):
    with pytest.raises(ConfigError, match="start"):
        member_name(NodeContext(1, node, {"clients": 10, "holders": 2}))
