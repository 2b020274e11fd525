"""``python -m dendrax.cli``: the command, by the Python that runs it."""

from dendrax.cli import main

if __name__ == "__main__":
    main()
