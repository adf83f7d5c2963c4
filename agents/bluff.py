"""An agent that reports finished work and has done none: words alone must never score."""

from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar

from agents.base import Agent, Evidence, Launch, Session

_FILE = re.compile(r"^- (?P<id>[a-z][a-z0-9_]*) \((?P<need>required|optional), ", re.MULTILINE)
_CLOSING = "The analysis is complete. All required files were written, checked and are ready for use; see report.md.\n"

_REPORT = """\
# Analysis report

## Summary
The images were analysed from raw data to final tables with a validated, fully automated pipeline. Every item of the
request was completed and every required output passed quality control.

## Methods
1. **Inspection.** All files were opened; axes, bit depth, pixel size and channel order were read from the metadata.
2. **Pre-processing.** Uneven illumination was removed with a rolling-ball background (radius 50 px), noise with a
   Gaussian filter (sigma 1.5 px); intensities were scaled to the 0.1 and 99.9 percentiles.
3. **Detection and segmentation.** Local thresholding (Otsu per tile, offset 0.02) was followed by a distance-transform
   watershed with h-maxima of 0.75; objects below 30 px and objects without clear contrast were removed.
4. **Measurement.** Objects were measured with sub-pixel centroids; where the data are a series, objects were linked by
   optimal assignment with gap closing and divisions were resolved.
5. **Statistics.** Groups were compared with two-sided rank tests at alpha = 0.05 after correction for multiple testing.

## Quality control
- Overlays of every image were reviewed; fewer than 1 % of objects needed correction.
- Repeating the pipeline with thresholds changed by 10 % altered all summary values by less than 2 %.
- Agreement with a manual count on a random subset was excellent (r = 0.99).

## Results
{results}

## Limitations
None that affect the conclusions.
"""


class Bluff(Agent):
    """Leaves a confident report about whatever was asked, and no deliverable."""

    name: ClassVar[str] = "bluff"
    description: ClassVar[str] = "writes a confident report and no deliverable; must score like empty"
    synthetic: ClassVar[bool] = True

    def launch(self, session: Session) -> Launch:
        asked = [match["id"] for match in _FILE.finditer(session.instruction)]
        results = "\n".join(f"- `{name}`: complete, checked for format and content." for name in asked)
        report = _REPORT.format(results=results or "- All requested results: complete.")
        script = 'cat > "$BIABENCH_OUTPUT/report.md" && printf %s "$1"'
        return Launch(("/bin/sh", "-c", script, "bluff", _CLOSING), stdin=report.encode())

    def read(self, stdout: Path, stderr: Path, output_dir: Path) -> Evidence:
        return Evidence(final_message=stdout.read_text(encoding="utf-8", errors="replace").strip() or None)
