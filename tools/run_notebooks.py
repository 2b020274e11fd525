"""Run the notebooks in examples/ in a real kernel, and store what they show.

pip install nbclient ipykernel
python tools/run_notebooks.py [examples/looking_inside.ipynb ...]
"""

import pathlib
import sys
import tempfile

import nbclient  # pyright: ignore[reportMissingImports]
import nbformat  # pyright: ignore[reportMissingImports]

EXAMPLES = pathlib.Path(__file__).resolve().parents[1] / "examples"


def main(paths: list[str]) -> None:
    for path in map(pathlib.Path, paths or sorted(EXAMPLES.glob("*.ipynb"))):
        notebook = nbformat.read(path, as_version=4)
        with tempfile.TemporaryDirectory() as folder:  # what the cells write
            client = nbclient.NotebookClient(
                notebook,
                timeout=600,
                kernel_name="python3",
                record_timing=False,
                resources={"metadata": {"path": folder}},  # where the cells run
            )
            client.execute()
        notebook.metadata["language_info"] = {"name": "python"}
        nbformat.write(notebook, path)
        print(path)


if __name__ == "__main__":
    main(sys.argv[1:])
