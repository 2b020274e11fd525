"""The line about tests that were not run."""

from tests.skipped import skipped_line


def test_groups_are_counted_and_their_remedies_named():
    skipped = [
        ("tests/draw/test_browser.py", "Skipped: Chromium is not installed"),
        ("tests/draw/test_browser_numbers.py", "Skipped: Chromium is not installed"),
        ("tests/draw/test_places.py", "Skipped: graphviz is not installed"),
    ]
    assert skipped_line(skipped, slow_left_out=True) == (
        "not run: 2 in a browser (apt install chromium, or name it in DENDRAX_CHROMIUM); "
        "1 of graphviz' layout (apt install graphviz); the slow ones (make test-all)"
    )


def test_what_has_no_group_is_told_with_its_reason():
    line = skipped_line([("tests/test_new.py", "Skipped: no such device")], slow_left_out=False)
    assert line == "not run: 1 of tests/test_new.py (no such device)"


def test_nothing_was_skipped():
    assert skipped_line([], slow_left_out=False) is None
