"""Archives: whatever is wrong with one, it is a `BadFile` that names it, and nothing else."""

import errno
import pathlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dendrax.data._archives import from_deb, from_tar
from dendrax.data._files import BadFile, from_zip, read_file
from tests.data import make

CONTENT = bytes(range(256)) * 4
READERS = {"a.whl": from_zip, "a.tgz": from_tar, "a.deb": from_deb}


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    folder = tmp_path_factory.mktemp("archives")
    make.write_zip(folder / "a.whl", {"x/y": CONTENT, "z": b"z"})
    (folder / "a.tgz").write_bytes(make.tar({"x/y": CONTENT, "z": b"z"}, "w:gz"))
    data = make.tar({"./x/y": CONTENT, "./z": b"z"}, "w:xz")
    (folder / "a.deb").write_bytes(make.ar({"odd": b"1", "data.tar.xz": data}))
    return folder


@pytest.mark.parametrize("name", READERS)
def test_members_in_the_order_asked_for(archives, name):
    assert READERS[name](archives / name, ["z", "x/y"]) == [b"z", CONTENT]
    with pytest.raises(BadFile, match=f"{name} does not hold x/none"):
        READERS[name](archives / name, ["z", "x/none"])


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_damage_is_found_or_does_no_harm(archives, name, data):
    """Some bytes changed, or the end cut off."""
    content = bytearray((archives / name).read_bytes())
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    spoilt = archives / f"spoilt-{name}"
    spoilt.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        found = READERS[name](spoilt, ["z", "x/y"])
    except BadFile as error:
        assert str(error).startswith(f"{spoilt} ")
    else:
        assert len(found) == 2


@pytest.mark.parametrize("name", ["a.deb", "a.tgz", "a.whl"])
def test_a_folder_is_not_a_file(tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(BadFile, match=f"{name} cannot be read: Is a directory"):
        READERS[name](tmp_path / name, ["x"])


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    def refuse(path, *mode):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    (tmp_path / "a").write_bytes(b"a")
    monkeypatch.setattr(pathlib.Path, "open", refuse)  # root may read what has no rights
    with pytest.raises(BadFile, match="a cannot be read: Permission denied"):
        read_file(tmp_path / "a")
