"""The page's plots take most of a small run's time, and have tests of their own."""

import pytest


@pytest.fixture(autouse=True)
def no_plots(monkeypatch):
    monkeypatch.setattr("fednode.reports.page.figures_of", lambda _record: [])
