"""How dendrax words its errors: who complains, what is wrong and where, and what to do about it.

Errors have the type that JAX itself would raise (``TypeError``, ``ValueError``,
``NotImplementedError``), so code that catches JAX's errors catches ours.
"""

import contextlib
import contextvars
import difflib
import functools
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])
_OURS = "_dendrax"
MAX_LINE = 1000  # characters of a message's line
_public_function = contextvars.ContextVar("public_function", default="dendrax")
_called_by = contextvars.ContextVar("called_by", default="dendrax")


@contextlib.contextmanager
def speaking_as(name: str) -> Iterator[None]:
    """Errors raised inside name the public function ``name``, unless an outer one speaks."""
    if _public_function.get() != "dendrax":
        yield
        return
    token = _public_function.set(name)
    try:
        yield
    finally:
        _public_function.reset(token)


@contextlib.contextmanager
def nobody_speaking() -> Iterator[None]:
    """While the user's own function runs: what it calls speaks for itself.

    What goes wrong with its operations is still reported by the function that runs it.
    """
    caller = _called_by.set(speaker())
    token = _public_function.set("dendrax")
    try:
        yield
    finally:
        _public_function.reset(token)
        _called_by.reset(caller)


def speaker() -> str:
    """The public function that errors name."""
    name = _public_function.get()
    return _called_by.get() if name == "dendrax" else name


def public(name: str) -> Callable[[_F], _F]:
    """Decorator form of `speaking_as`."""

    def decorate(function: _F) -> _F:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with speaking_as(name):
                return function(*args, **kwargs)

        return wrapped  # pyright: ignore[reportReturnType]

    return decorate


def complain(
    kind: type[Exception], problem: str, *, remedy: str = "", source: str = ""
) -> Exception:
    """The exception to raise: public function, problem, the user's source line, remedy."""
    lines = [f"{speaker()}: {problem}"]
    if source:
        lines.append(f"  at {source}")
    if remedy:
        lines.append(f"  {remedy}")
    problem_found = kind(printable("\n".join(lines)))
    problem_found.__dict__[_OURS] = True
    return problem_found


def is_ours(problem: BaseException) -> bool:
    """Whether an exception was worded here, for people; others are somebody's mistake."""
    return _OURS in problem.__dict__


def is_of_dendrax(function: Callable[..., Any]) -> bool:
    """Whether a function is written in a file of dendrax."""
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
    code = getattr(function, "__code__", None)
    return code is not None and code.co_filename.startswith(here)


def warn(problem: str) -> None:
    """Warn about something, at the line of the user's that called dendrax."""
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
    level, frame = 2, sys._getframe(1)  # 1 would be this function
    while frame is not None and frame.f_code.co_filename.startswith(here):
        level, frame = level + 1, frame.f_back
    warnings.warn(f"{speaker()}: {problem}", stacklevel=level)


def one_of(setting: str, value: Any, allowed: tuple[Any, ...]) -> None:
    """Raise ``ValueError`` unless ``value`` is one of the ``allowed`` values of a setting."""
    if not any(value is choice or value == choice for choice in allowed):
        choices = ", ".join(repr(choice) for choice in allowed)
        words = [choice for choice in allowed if isinstance(choice, str)]
        raise complain(
            ValueError,
            f"{setting}={in_short(value)} is not known.{nearest(value, words)}",
            remedy=f"Use one of: {choices}.",
        )


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """``1 edge``, ``2 edges``, ``0 vertices``."""
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def nearest(word: Any, words: Iterable[str], most: int = 1) -> str:
    """A question, if some of the words, at ``most`` so many, are close; no word has none."""
    close = close_words(word, words, most)
    return f" Did you mean {' or '.join(map(repr, close))}?" if close else ""


def close_words(word: Any, words: Iterable[str], most: int = 1) -> list[str]:
    """At ``most`` so many of the words that are close to one, whatever its case."""
    if not isinstance(word, str):
        return []
    lower = {known.lower(): known for known in words}
    return [lower[n] for n in difflib.get_close_matches(word.lower(), lower, n=most, cutoff=0.5)]


def shortened(text: str) -> str:
    """As much of it as a message has room for."""
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text):,} characters)"


def in_short(value: Any) -> str:
    """A value as a message shows it. Python does not write integers of thousands of digits."""
    try:
        return shortened(repr(value))
    except ValueError:
        return f"{type(value).__name__}(...)"


def printable(text: str) -> str:
    """What others wrote, for a terminal: no control characters, and no line of a page's length."""
    shown = re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", lambda found: repr(found[0])[1:-1], text)
    return "\n".join(map(_line_in_short, shown.split("\n")))


def _line_in_short(line: str) -> str:
    if len(line) <= MAX_LINE:
        return line
    return f"{line[: MAX_LINE // 2]} ... ({len(line):,} characters) ... {line[-MAX_LINE // 4 :]}"
