"""Each example runs as it stands, is short, needs `fednode` alone of FedNode, and learns nearly as well as without."""

import ast
import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
# the least that is worth showing of the run, and the most that privacy may cost; measured, with room for other noise
WORTH = {
    "mlp": (0.90, 0.10),
    "cnn_groupnorm": (0.60, 0.35),
    "transformer_tokens": (0.60, 0.40),
    "frozen_backbone": (0.60, 0.35),
    "lora": (0.60, 0.35),
    "regression": (0.30, 0.30),
}


@pytest.mark.thorough
@pytest.mark.timeout(120)
@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize("name", WORTH)
def test_an_example_runs_and_learns(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(EXAMPLES)
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    said = re.search(r"([\d.]+) at epsilon ([\d.]+), ([\d.]+) without privacy", capsys.readouterr().out)
    private, epsilon, plain = map(float, said.groups())
    least, cost = WORTH[name]
    assert epsilon <= 8.0
    assert private >= least
    assert plain - private <= cost


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_is_short_and_needs_fednode_alone(path):
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    prose = {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in range(node.lineno, (node.end_lineno or 0) + 1)
    }
    code = [line for at, line in enumerate(source.splitlines(), 1) if line.strip() and at not in prose]
    assert len([line for line in code if not line.strip().startswith("#")]) <= 25
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    taken = {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert ("fednode" in imported) is (path.stem != "plain")
    assert not [name for name in imported | taken if name.startswith("fednode") and name != "fednode"]


def test_every_example_is_run():
    assert {path.stem for path in EXAMPLES.glob("*.py")} >= {*WORTH, "plain"}
