"""Code in the documentation: find it, run it, and compare what it shows with what it does.

A block runs by itself, as a reader would run it, in float32. A comment with an arrow says what the
statement before it prints or, if it prints nothing, what it is worth::

    dendrax.grad(lambda w: w**3)(2.0)  # -> 12.0
    print(dendrax.level(graph))
    # -> LevelledGraph: 4 vertices, ...
    # -> ...

Numbers are compared to the digits that are shown, ``...`` stands for any text, and a line break
counts as a space.
"""

import ast
import contextlib
import functools
import io
import linecache
import pathlib
import re
import textwrap
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import jax
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
ARROW = "# ->"


@dataclass(frozen=True)
class Block:
    """Some lines of code, and where they stand: a page or an object, and a line of its file."""

    where: str
    file: pathlib.Path
    line: int
    code: str

    def __str__(self) -> str:
        return f"{self.where}:{self.line}"

    @property
    def placed_code(self) -> str:
        """The code with the line numbers of its file."""
        return "\n" * (self.line - 1) + self.code


# ---- finding -------------------------------------------------------------------------------------


def page_blocks(page: pathlib.Path, language: str = "python") -> list[Block]:
    """The blocks of a page that are written in a language."""
    where = str(page.relative_to(ROOT)) if page.is_relative_to(ROOT) else page.name
    return [Block(where, page, *found) for found in _fenced_code(page.read_text(), language)]


def page_session(page: pathlib.Path) -> Block:
    """All blocks of Python of a page as one, in which each goes on where the last one ended."""
    blocks = page_blocks(page)
    lines = [""] * len(page.read_text().splitlines())
    for block in blocks:
        code = block.code.splitlines()
        lines[block.line - 1 : block.line - 1 + len(code)] = code
    return Block(blocks[0].where, page, 1, "\n".join(lines))


@functools.cache
def docstring_blocks() -> list[Block]:
    """The blocks of Python in all docstrings of the package."""
    return [
        Block(where, path, first + line - 1, code)
        for path in sorted((ROOT / "src").rglob("*.py"))
        for where, first, text in _docstrings(path)
        for line, code in _fenced_code(text, "python")
    ]


def _fenced_code(text: str, language: str) -> Iterator[tuple[int, str]]:
    """The first line and the text of each block."""
    fence = re.compile(rf"^( *)```{language}\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
    for match in fence.finditer(text):
        yield text.count("\n", 0, match.start(2)) + 1, textwrap.dedent(match[2])


def _docstrings(path: pathlib.Path) -> Iterator[tuple[str, int, str]]:
    """The name of each documented object, the first line of its docstring, and the docstring."""
    module = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (
            text := ast.get_docstring(node, clean=False)
        ):
            name = module if isinstance(node, ast.Module) else f"{module}.{node.name}"
            yield name, node.body[0].lineno, text


def comments(block: Block) -> dict[int, str]:
    """The comments of a block, by line of its file."""
    tokens = tokenize.generate_tokens(io.StringIO(block.placed_code).readline)
    return {token.start[0]: token.string for token in tokens if token.type == tokenize.COMMENT}


def values_without_arrow(block: Block) -> list[str]:
    """Comments that show a value and would not be compared."""
    return [comment for comment in comments(block).values() if _is_literal(comment.lstrip("# "))]


def _is_literal(text: str) -> bool:
    try:
        ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return False
    return True


# ---- running -------------------------------------------------------------------------------------


def run_block(block: Block) -> dict[str, Any]:
    """Run the code, compare what it shows, and return its names."""
    names: dict[str, Any] = {"__name__": "__main__"}
    file = _readers_file(block)
    shown = {
        line: comment.removeprefix(ARROW).removeprefix(" ")
        for line, comment in comments(block).items()
        if comment.startswith(ARROW)
    }
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        for statement, lines in _statements(block):
            claimed = "\n".join(shown.pop(line) for line in lines if line in shown)
            found = _execute(statement, file, names)
            if claimed and not agrees(claimed, found):
                raise AssertionError(_difference(block, statement, claimed, found))
    if shown:
        raise AssertionError(f"{block}: an arrow must follow a statement of the block's top level")
    return names


def _statements(block: Block) -> Iterator[tuple[ast.stmt, range]]:
    """Each statement, with the lines from its end up to the next one."""
    body = ast.parse(block.placed_code).body
    ends = [*(statement.lineno for statement in body[1:]), block.placed_code.count("\n") + 2]
    for statement, end in zip(body, ends, strict=True):
        yield statement, range(statement.end_lineno or 0, end)


def _readers_file(block: Block) -> str:
    """The name of a file with the block's lines, which is not ours: a reader's would not be."""
    lines = block.placed_code.splitlines(keepends=True)
    linecache.cache[block.where] = (len(block.placed_code), None, lines, block.where)
    return block.where


def _execute(statement: ast.stmt, file: str, names: dict[str, Any]) -> str:
    """What a statement prints or, if it prints nothing, what it is worth."""
    output, value = io.StringIO(), None
    with contextlib.redirect_stdout(output):
        if isinstance(statement, ast.Expr):
            value = eval(compile(ast.Expression(statement.value), file, "eval"), names)
        else:
            exec(compile(ast.Module([statement], []), file, "exec"), names)
    return output.getvalue().rstrip() or str(jax.tree.map(_plain, value))


def _plain(leaf: Any) -> Any:
    return np.asarray(leaf).tolist() if isinstance(leaf, jax.Array | np.ndarray) else leaf


def _difference(block: Block, statement: ast.stmt, claimed: str, found: str) -> str:
    claimed, found = (textwrap.indent(text, "    ") for text in (claimed, found))
    place = f"{block.file.name}:{statement.lineno} ({block.where})"
    return f"{place} shows\n{claimed}\nbut it gives\n{found}"


# ---- comparing -----------------------------------------------------------------------------------

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?"


def agrees(shown: str, found: str) -> bool:
    """Is the text the one that is shown, numbers to the digits shown, `...` for anything?"""
    shown, found = (" ".join(text.split()) for text in (shown, found))
    pieces = re.split(rf"(\.\.\.|{_NUMBER})", shown)
    numbers = [piece for piece in pieces[1::2] if piece != "..."]
    pieces[::2] = map(re.escape, pieces[::2])
    pieces[1::2] = [".*" if piece == "..." else f"({_NUMBER})" for piece in pieces[1::2]]
    match = re.fullmatch("".join(pieces), found, re.DOTALL)
    return match is not None and all(map(_same_number, numbers, match.groups()))


def _same_number(shown: str, found: str) -> bool:
    """Whole numbers are equal; others agree to half of the last digit that is shown.

    A tenth more is for machines that round differently.
    """
    if re.fullmatch(r"[-+]?\d+\.?", shown):
        return shown == found
    allowed = Decimal("0.55").scaleb(Decimal(shown).as_tuple().exponent)
    return abs(Decimal(shown) - Decimal(found)) <= allowed
