"""The report as people use it: a real browser, two widths, light and dark, mouse and keyboard."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from biabench_plugin.endstate import EndState
from biabench_plugin.records import DatasetIdentity, TrialRecord, write_record
from biabench_plugin.report import build
from biabench_plugin.taskspec import load_tasks
from evaluators.model import OutcomeScore, Problem

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: the report is not driven")
TASKS = load_tasks(Path(__file__).resolve().parents[2] / "tasks")
FULL = DatasetIdentity(kind="full", name="full", revision="v1.0", input_digest="a", truth_digest="b")
SCORES = {"good": (0.9, 0.8, 0.1), "fair": (0.6, 0.85, 0.05), "poor": (0.3, 0.2, 0.0)}
PAYLOAD = "<img src=x onerror='window.hacked=1'><script>window.hacked=1</script>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("chromium and chromedriver are needed (apt install chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    started = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield started
    started.quit()


@pytest.fixture
def page(tmp_path: Path, make_record: Callable[..., TrialRecord]) -> Path:
    """Build the report of three agents on three tasks, one of which nobody solves."""
    for agent, outcomes in SCORES.items():
        for task, outcome in zip(("cell_counting", "dna_paint", "oncogenic_puncta"), outcomes, strict=True):
            where = f"runs/{task}/{agent}+brief/r1/attempt-1"
            record = make_record(
                task=task,
                agent=agent,
                configuration=f"{agent}[brief]",
                synthetic=False,
                dataset=FULL,
                run_folder=where,
                status=EndState.DELIVERED if outcome else EndState.NO_DELIVERABLE,
                status_reason=PAYLOAD,
                final_message=PAYLOAD,
                score=OutcomeScore(
                    outcome=outcome,
                    strict=outcome,
                    delivered=bool(outcome),
                    evaluator="e",
                    evaluator_version="1",
                    problems=[Problem(code="x", where=PAYLOAD, message=PAYLOAD)],
                ),
            )
            write_record(record, tmp_path / where)
    return build([tmp_path], tmp_path, TASKS).page


def _open(browser: Any, page: Path, width: int = 1280) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    browser.get_log("browser")
    browser.get(page.as_uri())


def _first_column(browser: Any, table: str) -> list[str]:
    return [cell.text for cell in browser.find_elements("css selector", f"{table} tbody tr > :first-child")]


def test_the_first_screen_answers_three_questions(browser: Any, page: Path) -> None:
    _open(browser, page)
    answers = [found.text for found in browser.find_elements("css selector", ".answer")]
    assert "good" in answers[0]
    assert "0.60" in answers[0]
    assert "fair" in answers[0]  # how sure: against the second
    assert answers[1].startswith("Everybody fails")
    assert "3D oncogenic puncta" in answers[1]
    for found in browser.find_elements("css selector", ".answer, .rank li"):
        assert found.location["y"] + found.size["height"] < 900  # without scrolling


@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_is_wider_than_the_window(browser: Any, page: Path, width: int) -> None:
    trials = sorted((page.parent / "trials").glob("*.html"))
    for shown in (page, trials[0]):
        _open(browser, shown, width)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width, shown


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_the_paper(browser: Any, page: Path, scheme: str) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    _open(browser, page)
    low = browser.execute_script(_CONTRAST)
    assert low == []
    paper = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(18, 25, 28)") == (scheme == "dark")


def test_sorting_by_mouse_and_by_keyboard(browser: Any, page: Path) -> None:
    _open(browser, page)
    table = "#trials + div table"
    assert len(_first_column(browser, table)) == 9
    outcome = browser.find_elements("css selector", f"{table} thead th")[4]
    button = outcome.find_element("css selector", "button")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)
    button.click()
    assert outcome.get_attribute("aria-sort") == "descending"
    values = [cell.text for cell in browser.find_elements("css selector", f"{table} tbody td:nth-child(5)")]
    assert values == sorted(values, reverse=True)
    button.send_keys("\n")
    assert outcome.get_attribute("aria-sort") == "ascending"
    values = [cell.text for cell in browser.find_elements("css selector", f"{table} tbody td:nth-child(5)")]
    assert values == sorted(values)


def test_a_score_leads_to_its_trial_and_back_by_keyboard(browser: Any, page: Path) -> None:
    _open(browser, page)
    link = browser.find_element("css selector", "td.heat a")
    link.send_keys("\n")
    assert "/trials/" in browser.current_url
    assert "good[brief]" in browser.find_element("css selector", "main p").text
    browser.find_element("css selector", "nav a").send_keys("\n")
    assert browser.current_url == page.as_uri()


def test_no_payload_ran_and_the_policy_was_not_hit(browser: Any, page: Path) -> None:
    for shown in (page, *sorted((page.parent / "trials").glob("*.html"))[:3]):
        _open(browser, shown)
        assert browser.execute_script("return window.hacked") is None
        assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_pictures_have_words_and_regions_names(browser: Any, page: Path) -> None:
    _open(browser, page)
    for image in browser.find_elements("css selector", "img"):
        assert (image.get_attribute("alt") or "").strip()
    for region in browser.find_elements("css selector", "[role=region]"):
        assert region.get_attribute("aria-label")
        assert region.get_attribute("tabindex") == "0"


# Elements whose text has a contrast below 4.5 to what lies behind it (WCAG 2.2, AA).
_CONTRAST = """
const channel = (v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
const parse = (text) => { const n = text.match(/[\\d.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n; };
const over = (top, under) => top.slice(0, 3).map((v, i) => v * top[3] + under[i] * (1 - top[3]));
const behind = (node) => {
  const layers = [];
  for (let at = node; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
  return layers.reverse().reduce((under, top) => over(top, under), [255, 255, 255]);
};
const low = [];
for (const node of document.querySelectorAll("body *")) {
  const own = Array.from(node.childNodes).some((c) => c.nodeType === 3 && c.textContent.trim());
  if (!own || !node.getClientRects().length || node.closest(".skip, script, style")) continue;
  const paper = behind(node), ink = over(parse(getComputedStyle(node).color), paper);
  const [a, b] = [light(paper), light(ink)].sort((x, y) => y - x);
  const contrast = (a + 0.05) / (b + 0.05);
  if (contrast < 4.5) low.push(node.textContent.trim().slice(0, 40) + " " + contrast.toFixed(2));
}
return low;
"""
