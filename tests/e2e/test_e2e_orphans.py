"""Keys of a run that was killed do not outlive the next run; those of a run that is on stay."""

import os
import subprocess
import sys

from fednode.assemble.running import sweep_orphaned_keys


def test_key_folders_of_dead_processes_are_swept(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    names = {f"fednode-keys-{gone.pid}-abc": False, f"fednode-keys-{os.getpid()}-abc": True, "fednode-keys-x": True}
    for name in names:
        (tmp_path / name / "client-1").mkdir(parents=True)
    sweep_orphaned_keys()
    assert {name: (tmp_path / name).exists() for name in names} == names
