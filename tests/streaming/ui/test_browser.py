"""The page in a real browser while a stream runs: its numbers are updated.

The tests need Chromium, from Playwright or from the system, and are skipped without it.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from circuits import compile_sql
from streaming import ViewSink
from streaming.ui import serve
from tests.streaming.sink.test_view_sink import Frame
from tests.streaming.ui.test_pages import VIEWS
from tests.support.tables import EDGE, edges

pytest.importorskip("starlette")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

NO_BACKGROUND_REQUESTS = (  # Chromium would contact its update and sync servers
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
TOKEN = "a-token-of-the-test"
SIZES = {"light": (1280, 900), "dark": (1280, 900), "narrow": (390, 844)}


@pytest.fixture(scope="module")
def browser():
    names = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell")
    installed = next(filter(None, map(shutil.which, names)), None)
    with playwright.sync_playwright() as play:
        bundled = Path(play.chromium.executable_path)
        if not installed and not bundled.exists():
            pytest.skip("no Chromium: apt-get install chromium, or playwright install chromium")
        chromium = play.chromium.launch(
            executable_path=installed or str(bundled),
            args=[*NO_BACKGROUND_REQUESTS, *(["--no-sandbox"] if os.geteuid() == 0 else [])],
        )
        yield chromium
        chromium.close()


@pytest.fixture
def live():
    sink = ViewSink(compile_sql(VIEWS, {"e": EDGE}))
    page = serve(sink, port=0, name="payments")
    yield sink, page
    page.stop()


def cycle_edges(n):
    """Return the three edges of a directed cycle from node n."""
    return (n, n + 1), (n + 1, n + 2), (n + 2, n)


def open_page(browser, live, scheme="light", size=(1280, 900)):
    _, served = live
    width, height = size
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
    )
    page = context.new_page()
    page.errors, page.requested = [], []
    page.on("console", lambda message: message.type == "error" and page.errors.append(message.text))
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    page.on("request", lambda request: page.requested.append(request.url))
    page.goto(served.address)
    page.wait_for_selector(".tile")
    return page


def number(page, view):
    return (
        page.locator("article.view", has=page.get_by_role("heading", name=view)).locator("b").first
    )


def expect(locator, text):
    playwright.expect(locator).to_have_text(text, timeout=5000)


def test_each_micro_batch_updates_the_numbers(browser, live):
    sink, served = live
    page = open_page(browser, live)
    expect(page.locator("#status"), "waiting for the first micro-batch")
    sink(Frame(edges(*cycle_edges(1), (7, 8))), 0)
    expect(number(page, "total"), "4")
    expect(number(page, "rings"), "3")
    expect(page.locator("#status"), "running")
    assert page.locator("#matches .node").count() == 3
    assert page.locator("#matches li").count() == 3
    sink(Frame(edges(*cycle_edges(10))), 1)
    sink(Frame(edges((1, 2), weights=[-1])), 2)
    expect(number(page, "total"), "6")
    expect(number(page, "rings"), "3")
    expect(page.locator("#matches li").first, "12 → 10 → 11")
    assert page.locator("#latency rect").count() > 0
    assert page.locator("#circuit g.op").count() >= 6
    assert page.locator("#state .arrangement").count() >= 2
    served.end("all has been read")
    expect(page.locator("#status"), "all has been read")
    assert page.errors == []
    assert {url.partition("/assets")[0].rstrip("/") for url in page.requested} <= {
        served.address.rstrip("/"),
        served.address + "events",
    }


def test_keys_select_sections_switch_the_theme_and_pause_updates(browser, live):
    sink, _ = live
    sink(Frame(edges(*cycle_edges(1))), 0)
    page = open_page(browser, live)
    expect(number(page, "total"), "3")
    page.keyboard.press("2")
    assert page.evaluate("document.activeElement.id") == "matches"
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.keyboard.press("p")
    expect(page.locator("#status"), "updates paused; running")
    sink(Frame(edges((5, 6))), 1)
    page.wait_for_timeout(500)
    expect(number(page, "total"), "3")
    page.keyboard.press("p")
    expect(number(page, "total"), "4")
    page.keyboard.press("?")
    assert page.locator("#keys").is_visible()
    page.keyboard.press("Escape")
    page.locator("#matches ol").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.textContent") == "2 → 3 → 1"
    page.locator("#latency svg").focus()
    page.keyboard.press("ArrowLeft")
    playwright.expect(page.locator("#latency .reading")).to_contain_text("micro-batch 1, 1 rows")
    page.locator("#circuit g.op").first.focus()
    page.keyboard.press("ArrowRight")
    playwright.expect(page.locator("#circuit .about p")).to_contain_text("of the time")
    assert page.errors == []


@pytest.mark.parametrize("window", SIZES)
def test_no_window_scrolls_sideways(browser, live, window):
    sink, _ = live
    for batch in range(3):
        sink(Frame(edges(*cycle_edges(10 * batch))), batch)
    scheme = "dark" if window == "dark" else "light"
    page = open_page(browser, live, scheme, SIZES[window])
    expect(number(page, "total"), "9")
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    content_width, window_width = page.evaluate(
        "[document.documentElement.scrollWidth, window.innerWidth]"
    )
    assert content_width <= window_width
    screenshot_dir = os.environ.get("DBSP_WCOJ_SCREENSHOTS")
    if screenshot_dir:
        page.screenshot(path=f"{screenshot_dir}/{window}.png", full_page=True)
    assert page.errors == []


def test_areas_of_charts_stay_within_their_charts(browser):
    views = """
        CREATE VIEW falling AS SELECT min(-src) AS low, max(src) AS high, -max(src) AS one FROM e;
        CREATE VIEW pairs AS SELECT src, dst FROM e;
        CREATE VIEW some AS SELECT sum(src - 50) AS s FROM e;
    """
    sink = ViewSink(compile_sql(views, {"e": EDGE}))
    live = sink, serve(sink, port=0)
    try:
        page = open_page(browser, live)
        for batch in range(8):
            sink(Frame(edges((10 * batch + 3, 1))), batch)
        expect(number(page, "pairs"), "8")
        areas_inside = page.eval_on_selector_all(
            "#views svg.plot",
            """plots => plots.flatMap(plot => [...plot.querySelectorAll("path")].map(path => {
                const box = path.getBBox(), height = plot.height.baseVal.value;
                return [box.y >= 0, box.y + box.height <= height];
            }))""",
        )
        assert len(areas_inside) >= 10 and all(top and bottom for top, bottom in areas_inside)
        axis_labels = page.locator("#views svg.plot text").all_text_contents()
        assert not [label for label in axis_labels if "." in label and "K" not in label]
        assert page.errors == []
    finally:
        live[1].stop()


def test_an_unknown_number_of_rows_is_not_shown(browser, tmp_path):
    first = ViewSink(compile_sql(VIEWS, {"e": EDGE}, materialize=["degrees"]), state_dir=tmp_path)
    first(Frame(edges(*cycle_edges(1), *cycle_edges(10))), 0)
    first.close()
    circuit = compile_sql(VIEWS, {"e": EDGE}, materialize=["degrees"])
    sink = ViewSink(circuit, state_dir=tmp_path)
    live = sink, serve(sink, port=0)
    try:
        page = open_page(browser, live)
        sink(Frame(edges((1, 2), weights=[-1])), 1)
        expect(number(page, "degrees"), "5")
        rings = page.locator("article.view", has=page.get_by_role("heading", name="rings"))
        assert rings.locator("b").first.is_hidden()
        assert rings.locator("svg").is_hidden()
        assert "number of rows unknown" in rings.inner_text()
        assert "−3" in rings.inner_text()
        assert page.locator("#state .arrangement", has_text="view degrees").count() == 1
        assert page.errors == []
    finally:
        live[1].stop()


@pytest.mark.parametrize("size", [(1280, 900), (390, 844)])
def test_the_drawing_of_a_circuit_opens_at_its_inputs(browser, size):
    views = ";".join(f"CREATE VIEW v{n} AS SELECT src + {n} AS s FROM e" for n in range(16))
    sink = ViewSink(compile_sql(views, {"e": EDGE}))
    live = sink, serve(sink, port=0)
    try:
        page = open_page(browser, live, size=size)
        page.wait_for_selector("#circuit g.op")
        is_in = page.evaluate("""() => {
            const room = document.querySelector("#circuit .drawing").getBoundingClientRect();
            const box = document.querySelector("#circuit g.input").getBoundingClientRect();
            return [room.left <= box.left, box.right <= room.right,
                    room.top <= box.top, box.bottom <= room.bottom];
        }""")
        assert all(is_in)
        assert page.errors == []
    finally:
        live[1].stop()


@pytest.fixture
def live_with_token():
    sink = ViewSink(compile_sql(VIEWS, {"e": EDGE}))
    page = serve(sink, port=0, token=TOKEN, name="payments")
    yield sink, page
    page.stop()


def test_a_visitor_signs_in_with_the_token_and_again_after_the_session_has_expired(
    browser, live_with_token
):
    sink, served = live_with_token
    sink(Frame(edges(*cycle_edges(1))), 0)
    page = browser.new_page()
    page.goto(served.address)
    page.fill("#token", "another-token")
    page.click("button")
    expect(page.get_by_role("alert"), "This is not the token.")
    page.fill("#token", TOKEN)
    page.keyboard.press("Enter")
    page.wait_for_selector(".tile")
    expect(number(page, "total"), "3")
    assert page.url == served.address
    assert TOKEN not in str(page.context.cookies())
    assert page.evaluate("document.cookie") == ""
    page.context.clear_cookies()
    page.reload()
    page.wait_for_selector("#token")
    page.close()


def test_a_page_that_is_refused_retries_later(browser, live, monkeypatch):
    sink, served = live
    streams = served._server.streams
    monkeypatch.setattr(streams, "max_streams", 0)
    page = browser.new_page()
    page.clock.install()
    page.goto(served.address)
    expect(page.locator("#status"), "connecting")
    page.wait_for_timeout(300)
    monkeypatch.setattr(streams, "max_streams", 1)
    page.clock.run_for(6000)
    page.wait_for_selector(".tile")
    sink(Frame(edges(*cycle_edges(1))), 0)
    expect(number(page, "total"), "3")
    page.close()


def test_values_of_rows_are_texts_and_never_markup(browser):
    import pyarrow as pa

    schema = pa.schema({"t": pa.string()})
    sink = ViewSink(compile_sql("SELECT t FROM r", {"r": schema}, name="v"))
    live = sink, serve(sink, port=0)
    try:
        page = open_page(browser, live)
        evil = "<img src=x onerror=alert(1)>"
        sink(Frame(pa.table({"t": [evil]})), 0)
        expect(page.locator("#views td").nth(1), evil)
        assert page.locator("#views img").count() == 0
        assert page.errors == []
    finally:
        live[1].stop()
