"""The review page in headless Chromium: keyboard, autosave, evidence, reviewers, and files that try to run."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from biabench_plugin.review.model import ANSWERS, GivenAnswer, read_answers
from biabench_plugin.review.server import ReviewServer

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: pip install 'biabench[dev]'")
from selenium.common.exceptions import WebDriverException  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

SECONDS = 20.0


ROOT = Path(__file__).resolve().parents[3]


def programs() -> tuple[str, str]:
    """Chromium and its driver; without them a test is skipped."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("no Chromium with its driver here: apt-get install chromium chromium-driver")
    return chromium, driver


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    chromium, driver = programs()
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"):
        options.add_argument(argument)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # Chromium refuses to start as root otherwise
    options.add_argument("--window-size=1400,900")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    started = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=driver))
    yield started
    started.quit()


class Page:
    """What a reviewer does and sees."""

    def __init__(self, browser: Any, server: ReviewServer) -> None:
        self.browser = browser
        self.server = server

    def open(self, reviewer: str) -> None:
        self.browser.get(self.server.url)
        self.wait(lambda: self.find("#who").get_attribute("open") is not None)
        self.find("#name").send_keys(reviewer, Keys.ENTER)
        self.wait(lambda: self.text("#reviewer") == reviewer)

    def find(self, selector: str) -> Any:
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[Any]:
        return list(self.browser.find_elements(By.CSS_SELECTOR, selector))

    def text(self, selector: str) -> str:
        return str(self.find(selector).text)

    def keys(self, *keys: str) -> None:
        for key in keys:
            self.find("body").send_keys(key)

    def wait(self, done: Callable[[], object]) -> None:
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                if done():
                    return
            except WebDriverException:  # replaced while we looked
                pass
            assert time.monotonic() < deadline, self.browser.find_element(By.TAG_NAME, "body").text
            time.sleep(0.03)

    def tab(self, name: str) -> None:
        self.find(f"#tabs [data-tab={name}]").click()


@pytest.fixture
def page(browser: Any, prepared) -> Iterator[Page]:
    browser.get_log("browser")  # of the test before
    with ReviewServer(prepared.copy) as server:
        yield Page(browser, server)
        browser.get("about:blank")


def given(prepared, reviewer: str, run: str, item: int) -> GivenAnswer | None:
    path = prepared.copy / ANSWERS / f"{reviewer}.json"
    return read_answers(path).answers.get(run, {}).get(item) if path.exists() else None


def said(prepared, reviewer: str, run: str, item: int) -> tuple[str | None, str | None] | None:
    found = given(prepared, reviewer, run, item)
    return None if found is None else (found.answer, found.reason)


def test_a_run_is_answered_with_the_keyboard_alone_and_saved_as_it_goes(page: Page, prepared) -> None:
    page.open("kim")
    page.wait(lambda: page.text("#statement") == "Statement number 1 holds for the run.")
    assert "critical" in page.text("#item-head")
    assert "counts as no" in page.text("#guidance")
    page.keys("y")
    page.wait(lambda: page.text("#statement").startswith("Statement number 2"))
    page.keys("n", "s", "x")
    page.wait(lambda: page.text("#statement").startswith("Statement number 5"))
    wanted = {1: ("yes", None), 2: ("no", None), 3: ("skip", "cannot_tell"), 4: ("skip", "does_not_apply")}
    page.wait(lambda: {item: said(prepared, "kim", "R01", item) for item in wanted} == wanted)
    page.wait(lambda: page.text("#saved").startswith("saved "))
    page.keys("k")
    assert page.find("#answers [data-reason=does_not_apply]").get_attribute("aria-pressed") == "true"
    page.keys("c")
    page.wait(lambda: said(prepared, "kim", "R01", 4) == (None, None))
    page.keys("u")
    assert page.text("#statement").startswith("Statement number 5")
    page.keys("]")
    page.wait(lambda: page.find("#runs").get_attribute("value") == "1")
    page.keys("[", Keys.ARROW_UP)
    assert page.find("#runs").get_attribute("value") == "0"
    assert "4 · " not in page.text("#count")
    assert page.text("#count").startswith("3 of ")
    page.keys("?")
    assert page.find("#keys").get_attribute("open") is not None
    page.find("#keys button").click()


def test_answers_are_given_with_the_mouse_too(page: Page, prepared) -> None:
    page.open("kim")
    page.find("#items [data-item='3']").click()
    page.find("#answers [data-answer=no]").click()
    page.wait(lambda: said(prepared, "kim", "R01", 3) == ("no", None))
    page.wait(lambda: page.text("#items [data-item='3'] .no") == "no")


def test_notes_are_saved_while_typing_and_keys_in_them_are_text(page: Page, prepared) -> None:
    page.open("kim")
    page.keys("m")
    note = page.find("#note")
    page.wait(lambda: page.browser.switch_to.active_element == note)
    note.send_keys("nyx: any <b>note</b>")
    page.wait(lambda: (found := given(prepared, "kim", "R01", 1)) is not None and found.note == "nyx: any <b>note</b>")
    assert said(prepared, "kim", "R01", 1) == (None, None)
    note.send_keys(Keys.ESCAPE)
    page.keys("j")
    assert page.find("#note").get_attribute("value") == ""
    page.keys("k")
    assert page.find("#note").get_attribute("value") == "nyx: any <b>note</b>"
    page.find("#note").send_keys("!")
    page.find("#items [data-item='2']").click()  # before the pause that saves
    page.wait(lambda: (found := given(prepared, "kim", "R01", 1)) is not None and found.note.endswith("!"))


def test_a_reviewer_continues_where_they_stopped_and_another_starts_empty(page: Page, prepared) -> None:
    page.open("kim")
    items = prepared.review.runs[0].items
    page.keys(*"y" * len(items), "]", "n")
    page.wait(lambda: said(prepared, "kim", "R02", 1) == ("no", None))
    page.browser.refresh()
    page.wait(lambda: page.text("#reviewer") == "kim")
    page.wait(lambda: page.find("#runs").get_attribute("value") == "1")
    assert page.text("#statement").startswith("Statement number 2")
    page.find("#reviewer").click()
    page.find("#name").clear()
    page.find("#name").send_keys("Sam Lee", Keys.ENTER)
    page.wait(lambda: page.text("#reviewer") == "Sam Lee")
    assert page.text("#count").startswith("0 of ")
    page.keys("s")
    page.wait(lambda: said(prepared, "sam_lee", "R01", 1) == ("skip", "cannot_tell"))
    assert said(prepared, "kim", "R01", 1) == ("yes", None)


def test_a_name_that_cannot_be_a_file_is_refused(page: Page, prepared) -> None:
    page.browser.get(page.server.url)
    page.wait(lambda: page.find("#who").get_attribute("open") is not None)
    page.browser.execute_script("document.getElementById('name').removeAttribute('pattern')")
    page.find("#name").send_keys("../../key", Keys.ENTER)
    page.wait(lambda: "reviewer's name" in page.text("#name-problem"))
    assert not (prepared.copy / ANSWERS).exists()


def test_files_figures_tables_code_and_log_stand_beside_the_item(page: Page, prepared) -> None:
    page.open("kim")
    run = prepared.id_of("codex")
    page.find(f"#runs option[value='{[one.id for one in prepared.review.runs].index(run)}']").click()
    page.wait(lambda: "41 cells" in page.text("#pane pre"))
    page.tab("figure")
    page.wait(lambda: len(page.all("#pane figure")) == 4)
    assert "not shown" in page.text("#pane")
    for image in page.all("#pane figure img"):
        page.browser.execute_script("arguments[0].scrollIntoView()", image)
        page.wait(lambda image=image: int(image.get_property("naturalWidth")) > 0)
    page.tab("table")
    page.wait(lambda: len(page.all("#pane tbody tr")) == 199)
    page.find("#pane button.more").click()
    page.wait(lambda: len(page.all("#pane tbody tr")) == 399)
    page.tab("code")
    page.wait(lambda: "for i in range(3):" in page.text("#pane pre.code"))
    assert len(page.all("#pane pre.code span")) == 4
    page.keys("5")
    page.wait(lambda: "python run_AGENT.py" in page.text("#pane pre"))
    page.keys("6")
    page.wait(lambda: "Please count the cells" in page.text("#pane pre"))
    page.keys("7")
    page.wait(lambda: "supporting/AGENT/notes.txt" in page.text("#pane"))
    assert "secret.txt" in page.text("#pane ul")
    next(button for button in page.all("#pane td.path button") if button.text == "run_AGENT.py").click()
    page.wait(lambda: page.find("#tabs [data-tab=code]").get_attribute("aria-selected") == "true")
    assert page.text("#statement").startswith("Statement number 1")  # looking around answers nothing
    assert not (prepared.copy / ANSWERS).exists()
    assert [entry for entry in page.browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_what_agents_wrote_never_runs(page: Page, prepared) -> None:
    page.open("kim")
    run = prepared.id_of("codex")
    page.find(f"#runs option[value='{[one.id for one in prepared.review.runs].index(run)}']").click()
    select = page.find("#pane select")
    next(option for option in select.find_elements(By.TAG_NAME, "option") if option.text == "report.html").click()
    page.wait(lambda: "<script>document.title" in page.text("#pane pre"))
    page.tab("table")
    page.wait(lambda: "<b>0</b>" in page.text("#pane"))
    assert not page.all("#pane td b")
    page.tab("figure")
    drawing = f"/image/{run}/{prepared.number(run, 'plot.svg')}"
    page.wait(lambda: int(page.find(f"img[src='{drawing}']").get_property("naturalWidth")) > 0)
    assert page.browser.title == "BIABench review"
    requests = page.browser.execute_script("return performance.getEntriesByType('resource').map((each) => each.name)")
    assert any(drawing in name for name in requests)
    assert not [name for name in requests if "stolen" in name]
    for how in ("image", "text"):  # opened by itself, out of our page
        page.browser.get(f"{page.server.origin}/{how}/{run}/{prepared.number(run, 'plot.svg')}")
        assert "owned" not in page.browser.title
    page.browser.get(f"{page.server.origin}/image/{run}/{prepared.number(run, 'plot.svg')}")
    blocked = json.dumps(page.browser.get_log("browser"))
    assert "script" in blocked.lower()
    assert "blocked" in blocked.lower() or "sandbox" in blocked.lower()


def test_an_answer_that_cannot_be_saved_is_said_and_tried_again(page: Page, prepared) -> None:
    page.open("kim")
    (prepared.copy / ANSWERS).mkdir()
    path = prepared.copy / ANSWERS / "kim.json"
    path.write_text("{")  # damaged by something else meanwhile
    page.keys("y")
    page.wait(lambda: "not saved" in page.text("#saved"))
    assert "kim.json" in page.text("#saved")
    path.unlink()
    page.wait(lambda: said(prepared, "kim", "R01", 1) == ("yes", None))
    page.wait(lambda: page.text("#saved").startswith("saved "))


def test_without_the_token_there_is_no_page(page: Page) -> None:
    page.browser.delete_all_cookies()
    page.browser.get(page.server.origin)
    assert "biabench review" in page.text("body")
    assert not page.all("#items")


def test_the_picture_in_the_documentation_is_made_by_its_command(prepared, tmp_path: Path) -> None:
    programs()
    spec = importlib.util.spec_from_file_location("biabench_docs_build_review", ROOT / "docs" / "build_review.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.take(prepared.copy, tmp_path / "review.png")
    with Image.open(tmp_path / "review.png") as image:
        assert image.width == 1440
        assert len(image.convert("RGB").getcolors(1 << 24)) > 50  # a page, not a blank
