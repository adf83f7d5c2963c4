"""Make the pictures of the report: ``python docs/build_report.py [--campaign DIR]``.

Without ``--campaign`` the demo campaign is run first (agents classical, replay, shortcut, bluff and empty on demo data;
some minutes). Needs Chromium. Writes ``docs/images/report*.png`` and ``docs/images/trial.png``.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
AGENTS = ("classical", "replay", "shortcut", "bluff", "empty")
TRIAL = "hela_segmentation--classical"


def run_demo(campaign: Path) -> None:
    """Run the demo campaign; trials that are already there are reused."""
    agents = [f"--agent={name}" for name in AGENTS]
    command = [sys.executable, "-m", "pytest", *agents, "--dataset=demo", f"--campaign={campaign}"]
    done = subprocess.run(command, cwd=ROOT, check=False)
    if done.returncode not in (0, 1):  # 1: bluff and empty deliver nothing, as they should
        raise SystemExit(f"the demo campaign ended with status {done.returncode}")


def picture(page: Path, to: Path, width: int, height: int, *, dark: bool = False) -> None:
    """Photograph the top of a page.

    Headless Chromium lays no window out narrower than 500 px, so a narrower page is shown in a frame.
    """
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        raise SystemExit("chromium is needed to make the pictures (apt install chromium)")
    with tempfile.TemporaryDirectory() as scratch:
        shown = page
        if width < 500:
            shown = Path(scratch) / "frame.html"
            shown.write_text(
                f'<body style="margin:0"><iframe src="{page.resolve().as_uri()}" '
                f'style="border:0;width:{width}px;height:{height}px"></iframe>'
            )
        command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"]
        command += [f"--user-data-dir={scratch}/profile", f"--window-size={max(width, 500)},{height}"]
        command += ["--blink-settings=preferredColorScheme=0"] if dark else []
        raw = Path(scratch) / "raw.png"
        subprocess.run(
            [*command, f"--screenshot={raw}", shown.resolve().as_uri()], check=True, capture_output=True, timeout=120
        )
        from PIL import Image

        with Image.open(raw) as image:
            image.crop((0, 0, width, height)).convert("P", palette=Image.Palette.ADAPTIVE, colors=128).save(
                to, optimize=True
            )
    print(to.relative_to(ROOT))


def main(arguments: list[str] | None = None) -> int:
    """Run the command; 0 when the pictures are written."""
    sys.path.insert(0, str(ROOT))
    from biabench_plugin.report import build
    from biabench_plugin.taskspec import load_tasks

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--campaign", type=Path, help="a demo campaign; continued where it is incomplete")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        campaign = (options.campaign or Path(scratch) / "demo").resolve()
        run_demo(campaign)
        page = build([campaign], campaign, load_tasks(ROOT / "tasks")).page
        trial = next((page.parent / "trials").glob(f"{TRIAL}*.html"))
        IMAGES.mkdir(exist_ok=True)
        picture(page, IMAGES / "report.png", 1280, 1250)
        picture(page, IMAGES / "report-dark.png", 1280, 700, dark=True)
        picture(page, IMAGES / "report-narrow.png", 400, 1100)
        picture(trial, IMAGES / "trial.png", 1280, 1300)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
