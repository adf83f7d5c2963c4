"""How many repeats ``--until-scored N`` plans: one more in place of each that is finished and not scored."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from biabench_plugin.records import MOST_FAULTS

_MOST_TIMES = 2  # at most this many times N: a provider that always refuses is not asked for ever


def repeats(campaign: Path, wanted: int) -> dict[str, int]:
    """Return the number of repeats per ``"<task> <configuration>"`` that a campaign needs for ``wanted`` scored ones.

    A repeat that was refused, excluded, or given up after infrastructure faults stays as it is and is listed; another
    one is planned. Groups without such repeats are not in the result.
    """
    from biabench_plugin.report.rows import from_campaign

    given_up = Counter(
        f"{row.task} {row.configuration}"
        for row in from_campaign(campaign)
        if row.record is not None and not row.counts and (row.record.valid or row.excluded or row.faults >= MOST_FAULTS)
    )
    return {group: min(wanted + count, _MOST_TIMES * wanted) for group, count in given_up.items()}
