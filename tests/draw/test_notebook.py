"""The explorer in a notebook: a frame with the page, and its path."""

import html
import re
import sys
import types

import jax.numpy as jnp
import pytest

import dendrax
from dendrax.draw import _notebook
from tests.draw.browser import wait_until


@pytest.fixture
def kernel(monkeypatch):
    """Pretends to be a notebook; what is displayed there."""
    shown = []
    shell = types.SimpleNamespace(kernel=object())
    ipython = types.SimpleNamespace(get_ipython=lambda: shell)
    display = types.SimpleNamespace(display=lambda data, raw: shown.append(data))
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return types.SimpleNamespace(shown=shown, shell=shell, ipython=ipython)


def page(path):
    return dendrax.explore(lambda w: jnp.sum(jnp.tanh(w) ** 2), jnp.ones(3), path=path)


def test_explore_shows_its_page_and_prints_where_it_is(kernel, tmp_path, capsys):
    path = page(tmp_path / "page.html")
    assert capsys.readouterr().out == f"The page: {path}\n"
    (data,) = kernel.shown
    (inside,) = re.findall(r'<iframe [^>]*srcdoc="([^"]*)"></iframe>', data["text/html"])
    assert html.unescape(inside) == path.read_text()


@pytest.mark.parametrize("where", ["no IPython", "no shell", "a terminal"])
def test_elsewhere_nothing_is_shown(kernel, tmp_path, capsys, monkeypatch, where):
    if where == "no IPython":
        monkeypatch.delitem(sys.modules, "IPython")
    elif where == "no shell":
        kernel.ipython.get_ipython = lambda: None
    else:
        del kernel.shell.kernel
    assert page(tmp_path / "page.html").exists()
    assert capsys.readouterr().out == "" and kernel.shown == []


def test_a_large_page_is_named_not_copied(kernel, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(_notebook, "MOST_EMBEDDED", 1000)
    monkeypatch.chdir(tmp_path)
    page(tmp_path / "a page.html")
    assert ' src="a%20page.html">' in kernel.shown[0]["text/html"]
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    page(tmp_path / "page.html")  # where a notebook's server cannot reach it
    assert len(kernel.shown) == 1 and capsys.readouterr().out.endswith("page.html\n")


def test_the_frame_works_in_a_browser(chromium, tmp_path):
    path, around = page(tmp_path / "page.html"), tmp_path / "around.html"
    for most in (_notebook.MOST_EMBEDDED, 0):  # the page itself, or its path
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_notebook, "MOST_EMBEDDED", most)
            patch.chdir(tmp_path)
            around.write_text(f"<!doctype html><body>{_notebook.page_frame(path)}")
        tab, troubles = chromium.new_page(), []
        tab.on("pageerror", lambda error, troubles=troubles: troubles.append(str(error)))
        tab.goto(around.as_uri())
        frame = tab.frames[1]
        wait_until(frame, "document.body.dataset.ready === 'yes'")
        frame.click("#play")
        wait_until(frame, "explorer.state.time > 0")
        assert not troubles
        tab.close()
