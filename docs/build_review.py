"""Draw the picture of the review page, docs/images/review.png: python docs/build_review.py

Runs the classical agent on demo data of one task, draws and blinds its run as `biabench review` does, answers a few
items, and takes a picture with headless Chromium (Debian: apt-get install chromium chromium-driver).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "images" / "review.png"
TASK = "hela_segmentation"
ANSWERS = ("yes", "yes", "yes", "skip", "yes", "no", "yes")


def prepare(campaign: Path) -> Path:
    """Draw the campaign's runs and return the blinded copy, with some answers in it."""
    from biabench_plugin.review.answers import AnswerStore
    from biabench_plugin.review.copying import prepare
    from biabench_plugin.review.model import COPY, read_review
    from biabench_plugin.review.rubric import rubric_items, rubric_version
    from biabench_plugin.taskspec import load_tasks

    folder = campaign / "review"
    prepare(campaign, folder, load_tasks(ROOT / "tasks"), rubric_items, rubric_version(), sample=20, seed=0)
    copy = folder / COPY
    review = read_review(copy)
    store = AnswerStore(copy, review)
    run = review.runs[0]
    for item, answer in zip(run.items, ANSWERS, strict=False):
        store.give("reviewer 1", run.id, item, answer, None, "")  # type: ignore[arg-type]
    return copy


def take(copy: Path, picture: Path) -> None:
    """Open the page on the figures of the first run and save what it shows."""
    from selenium import webdriver
    from selenium.webdriver.common.by import By

    from biabench_plugin.review.server import ReviewServer

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1440,900"):
        options.add_argument(argument)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
    with ReviewServer(copy, reviewer="reviewer 1") as server:
        browser = webdriver.Chrome(options=options, service=service)
        try:
            browser.get(server.url)
            time.sleep(1.0)
            browser.find_element(By.CSS_SELECTOR, "[data-tab=figure]").click()
            for _ in range(2):  # images that load on the way move the one that is wanted
                for wanted in browser.find_elements(By.CSS_SELECTOR, "#pane img[alt^='overlays/']")[:1]:
                    browser.execute_script("arguments[0].scrollIntoView()", wanted)
                time.sleep(1.5)
            picture.parent.mkdir(parents=True, exist_ok=True)
            browser.save_screenshot(str(picture))
        finally:
            browser.quit()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--campaign", type=Path, help="take this campaign instead of running one")
    parser.add_argument("--out", type=Path, default=PICTURE)
    given = parser.parse_args(arguments)
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        print("no Chromium with its driver here: apt-get install chromium chromium-driver", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as scratch:
        campaign = Path(scratch) / "campaign"
        if given.campaign is not None:
            shutil.copytree(given.campaign, campaign, ignore=shutil.ignore_patterns("review"))
        else:
            command = [sys.executable, "-m", "pytest", "--agent=classical", "-k", TASK, "--dataset=demo"]
            subprocess.run([*command, f"--campaign={campaign}"], cwd=ROOT, check=True)
        take(prepare(campaign), given.out)
    print(given.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
