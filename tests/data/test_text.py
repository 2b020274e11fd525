"""Text: the novel that ships with the package, files of one's own, and pieces to learn from."""

import gzip

import numpy as np
import pytest

from dendrax.data import moby_dick, sequences, text


def written(found):
    return "".join(found.alphabet[i] for i in np.concatenate([found.train, found.test]))


def test_the_novel():
    novel = moby_dick()
    book = written(novel)
    assert len(book) == 1213116 and len(novel.alphabet) == 89
    assert novel.train.dtype == np.uint8 and novel.test.dtype == np.uint8
    assert len(novel.train) == len(book) * 9 // 10
    assert "CHAPTER 1. Loomings.\n\nCall me Ishmael. Some years ago—never mind" in book
    assert book.endswith("only found another orphan.\n")
    assert [f"CHAPTER {k}. " in book for k in range(1, 136)] == [True] * 135


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_a_file(tmp_path, name):
    content = "Zeile über Zeile\n" * 10
    raw = content.encode()
    (tmp_path / name).write_bytes(gzip.compress(raw) if name.endswith("gz") else raw)
    found = text(tmp_path / name)
    assert written(found) == content
    assert found.alphabet == "".join(sorted(set(content)))
    assert len(found.train) == 153 and len(found.test) == 17


def test_marks_of_other_systems_are_dropped(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfa\r\nb\r\n")
    assert written(text(tmp_path / "a.txt")) == "a\nb\n"


def test_a_large_alphabet_takes_two_bytes(tmp_path):
    content = "".join(map(chr, range(0x4E00, 0x4E00 + 300)))
    (tmp_path / "a.txt").write_text(content, encoding="utf-8")
    found = text(str(tmp_path / "a.txt"))
    assert found.train.dtype == np.uint16 and written(found) == content


def test_wrong_files(tmp_path):
    path = tmp_path / "a.txt"
    with pytest.raises(ValueError, match=r"dendrax.data.text: path='' is not a path"):
        text("")
    with pytest.raises(FileNotFoundError, match=r"dendrax.data.text: .*a.txt is not a file"):
        text(path)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"dendrax.data.text: .*a.txt is empty"):
        text(path)
    path.write_bytes(b"a")
    with pytest.raises(ValueError, match=r"a.txt has no text to learn from and to test on"):
        text(path)
    path.write_bytes("über".encode("latin1"))
    with pytest.raises(ValueError, match=r"a.txt is not UTF-8(?s:.*)iconv -f latin1"):
        text(path)
    path.with_suffix(".gz").write_bytes(b"hello")
    with pytest.raises(ValueError, match=r"a.gz is damaged or cut short"):
        text(path.with_suffix(".gz"))


@pytest.mark.parametrize("length", [1, 3, 10])
def test_every_character_is_predicted_once(length):
    tokens = np.arange(31, dtype=np.uint8)
    pieces = sequences(tokens, length)
    assert pieces.shape == (30 // length, length + 1)
    assert (pieces[:, 1:].ravel() == tokens[1:]).all()
    assert (pieces[:, :-1].ravel() == tokens[:-1]).all()
    assert not pieces.flags.writeable


def test_a_rest_is_left_out():
    assert sequences(np.arange(10), 4).tolist() == [[0, 1, 2, 3, 4], [4, 5, 6, 7, 8]]


@pytest.mark.parametrize("length", [0, -1, 2.5, True, "3", None])
def test_wrong_lengths(length):
    with pytest.raises(ValueError, match=f"sequences: length={length!r} must be an integer, at le"):
        sequences(np.arange(10), length)


def test_lengths_of_numpy():
    assert (sequences(np.arange(10), np.int64(4)) == sequences(np.arange(10), 4)).all()


@pytest.mark.parametrize("length", [10, 99])
def test_lengths_beyond_the_text(length):
    problem = f"sequences: length={length} does not fit a text of 10(?s:.*)from 1 to 9"
    with pytest.raises(ValueError, match=problem):
        sequences(np.arange(10), length)


def test_what_is_no_text():
    for tokens, found in (
        (np.arange(1), r"of shape \(1,\)"),
        (np.zeros((3, 4), np.uint8), r"of shape \(3, 4\)"),
        (moby_dick(), "of type Text"),
        ("Call me Ishmael", "of type str"),
    ):
        problem = (
            f"sequences: tokens {found} must be an array(?s:.*)the train or the test of a Text"
        )
        with pytest.raises(ValueError, match=problem):
            sequences(tokens, 1)


def test_more_characters_than_a_text_has(tmp_path):
    (tmp_path / "all.txt").write_text("".join(map(chr, range(0xE000, 0x30000))), "utf-8")
    with pytest.raises(ValueError, match=r"has 139,264 different characters; a text has at most"):
        text(tmp_path / "all.txt")
