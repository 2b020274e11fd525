"""What the tests of the explorer's page do in the browser, and what they see there."""


def open_all(page):
    """Opens all modules and draws every parameter, as pages do not at first."""
    page.evaluate("explorer.collapseAll(0)")
    page.evaluate("explorer.state.parameters || explorer.toggle('parameters')")
    return page


def state(page, name):
    return page.evaluate(f"explorer.state.{name}")


def picture(page):
    """The picture of the first pane, as the numbers of its pixels."""
    page.evaluate("explorer.draw()")
    return page.evaluate("explorer.panes[0].canvas.toDataURL()")


def written(page):
    """The texts in the pictures, each behind what its canvas is called."""
    return page.evaluate("""() => {
        const pen = CanvasRenderingContext2D.prototype, { fillText } = pen, texts = [];
        pen.fillText = function (text, ...place) {
            texts.push(this.canvas.getAttribute("aria-label") + ": " + text);
            return fillText.call(this, text, ...place);
        };
        explorer.draw();
        explorer.panel.refresh();
        pen.fillText = fillText;
        return texts; }""")


def facts(page):
    """The rows of the panel."""
    rows = page.evaluate("""() => [...document.querySelectorAll("#panel dt")].map(
        (name) => [name.textContent, name.nextElementSibling.textContent])""")
    return dict(rows)


def focus(page):
    return page.evaluate("document.activeElement.id || document.activeElement.tagName")


def wait_until(page, condition):
    """Playwright's own way of waiting would be forbidden by the page's security policy."""
    for _ in range(1200):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    raise TimeoutError(condition)


def index_of(page, name):
    return page.evaluate(f"explorer.data.vertices.findIndex((v) => v.name === {name!r})")


def click(page, index, *, times=1):
    """A click where a vertex is seen."""
    x, y = page.evaluate(f"Object.values(explorer.panes[0].screen({index}))")
    page.mouse.click(x, y, click_count=times)
