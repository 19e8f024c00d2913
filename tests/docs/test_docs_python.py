"""docs/python.md: every block runs, in order, as one program."""

import re
from pathlib import Path

import fednode

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python.md"


def test_every_block_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), names)  # noqa: S102 - our own page
    said = capsys.readouterr().out
    assert "labels from" in said and (tmp_path / "report.html").exists()
    assert names["run"].accuracy > 0.5


def test_the_page_names_what_there_is():
    text = PAGE.read_text("utf-8")
    for name in set(re.findall(r"fednode\.([A-Za-z_]+)", text)):
        assert hasattr(fednode, name), name
    for name in set(re.findall(r"`run\.([a-z_]+)", text)):
        assert hasattr(fednode.Run, name) or name in fednode.Run.__dataclass_fields__, name
