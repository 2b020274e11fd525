"""A home of its own for each test, so that no test finds, or writes, what is on the machine."""

import pytest

from dendrax.data import _data_set


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty home folder, which is also the current folder; the cache is ``.cache/dendrax``."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("USERPROFILE", str(folder))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("DENDRAX_DATA", raising=False)
    monkeypatch.chdir(folder)
    path, for_all = _data_set._path, "/usr/share/datasets/fashion-mnist"  # Debian's package
    inside = lambda place: folder / "none" if place == for_all else path(place)
    monkeypatch.setattr(_data_set, "_path", inside)
    return folder


@pytest.fixture
def cache(home):
    folder = home / ".cache" / "dendrax"
    folder.mkdir(parents=True)
    return folder
