"""The bar that `explore` shows on a terminal, and nowhere else."""

import io

from dendrax.draw._progress import Progress


class Terminal(io.StringIO):
    """A stream that says it is a terminal, or is none."""

    def __init__(self, live):
        super().__init__()
        self.live = live

    def isatty(self):
        return self.live


def written(monkeypatch, *, live):
    stream = Terminal(live)
    monkeypatch.setattr("sys.stderr", stream)
    with Progress("dendrax.explore") as bar:
        bar.begin("running")
        bar.begin("following", 4)
        for _ in range(4):
            bar.advance()
    return stream.getvalue().split("\r")


def test_a_bar_on_a_terminal(monkeypatch):
    lines = written(monkeypatch, live=True)
    assert "dendrax.explore: running ..." in lines
    assert any(line.startswith("dendrax.explore: following [...") for line in lines)
    assert any(line.endswith(f"[{'#' * 24}] 100%") for line in lines)
    assert lines[-1] == "" and len(lines[-2]) == len(lines[-3]) and not lines[-2].strip()


def test_nothing_elsewhere(monkeypatch):
    assert written(monkeypatch, live=False) == [""]
