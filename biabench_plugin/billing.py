"""What runs cost: the providers' bills joined to attempts, beside what was metered.

A bill never replaces what was metered: both are kept, each with where it came from. An attempt's bills lie in
``<attempt>/bills.json``. A charge is billed once, however many exports hold it: importing the same export twice changes
nothing, and of a month's export only what the week's did not hold is added.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agents.base import Usage
from agents.pricing import PROVIDERS_OWN, PriceTable, priced
from biabench_plugin.records import RecordError, TrialRecord, iter_records, write_atomically

FILE_NAME = "bills.json"
LEDGER = "relay.jsonl"

JoinedBy = Literal["run", "request", "time and model"]

# Names of columns in exports, in the order of preference; `--column ours=theirs` adds one.
COLUMNS: dict[str, tuple[str, ...]] = {
    "cost": ("cost_usd", "cost", "total_cost", "amount_usd", "amount", "cost_total"),
    "run": ("run_folder", "trial", "run", "run_id"),
    "agent": ("agent", "agent_name", "app_name", "app"),
    "request": ("request_id", "generation_id", "id"),
    "model": ("model", "model_permaslug", "model_id", "model_name", "slug"),
    "time": ("created_at", "timestamp", "time", "started_at", "date_time", "datetime"),
}
_SLACK = timedelta(seconds=5)  # between the provider's clock and ours


class BillError(RecordError):
    """An export or an attempt's bills cannot be read; the message names file, what was expected and what was found."""


class Bill(BaseModel):
    """The part of one export that belongs to one attempt, without what another export had booked for it before.

    ``charges`` identifies each row (:func:`_identities`); it is empty in bills of earlier versions.
    """

    model_config = ConfigDict(extra="forbid")

    export: str
    sha256: str
    imported: datetime
    rows: int
    cost_usd: float
    joined_by: list[JoinedBy]
    charges: list[str] = Field(default_factory=list)


class Bills(BaseModel):
    """All bills of an attempt."""

    model_config = ConfigDict(extra="forbid")

    schema_version: int = 1
    bills: list[Bill] = Field(default_factory=list)

    @property
    def cost_usd(self) -> float | None:
        return round(sum(bill.cost_usd for bill in self.bills), 10) if self.bills else None


@dataclass(frozen=True)
class Charge:
    """One row of an export."""

    number: int
    cost_usd: float
    run: str | None
    agent: str | None
    request: str | None
    model: str | None
    time: datetime | None
    when: str | None  # as the export writes it: a bare day joins nothing, and still tells two charges apart


@dataclass
class Imported:
    """What an import did.

    ``before`` holds rows that an import had booked already, ``left`` those that belong to no attempt, or to more than
    one, with why.
    """

    attempts: dict[Path, Bill] = field(default_factory=dict)
    before: list[Charge] = field(default_factory=list)
    left: list[tuple[Charge, str]] = field(default_factory=list)

    @property
    def billed_usd(self) -> float:
        return sum(bill.cost_usd for bill in self.attempts.values())


# --- read an export -------------------------------------------------------------------------------------------------


def read_export(path: Path, columns: Mapping[str, str] | None = None) -> list[Charge]:
    """Read a billing export: CSV with a header, a JSON list of objects, ``{"data": […]}``, or JSON lines.

    Parameters
    ----------
    path
        The file; its form is taken from its content.
    columns
        Which of its columns means what, for those that :data:`COLUMNS` does not know.

    Raises
    ------
    BillError
        When it cannot be read, has no cost column, or a cost is no finite number. A negative cost is a refund.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BillError(f"{path}: cannot be read: {error}") from error
    rows = _rows(text, path)
    if not rows:
        raise BillError(f"{path}: expected rows of charges, found none")
    names = _resolve(rows, columns or {}, path)
    return [_charge(number, row, names, path) for number, row in enumerate(rows, 1)]


def _rows(text: str, path: Path) -> list[dict[str, Any]]:
    start = text.lstrip()[:1]
    if start not in ("{", "["):
        try:
            return list(csv.DictReader(io.StringIO(text)))
        except csv.Error as error:  # such as a field beyond the module's limit
            raise BillError(f"{path}: cannot be read as CSV: {error}") from error
    try:
        found = json.loads(text)
    except ValueError:
        try:
            found = [json.loads(line) for line in text.splitlines() if line.strip()]
        except ValueError as error:
            raise BillError(f"{path}: is neither JSON nor JSON lines: {error}") from error
    if isinstance(found, dict):
        found = found.get("data", [found])
    if not (isinstance(found, list) and all(isinstance(row, dict) for row in found)):
        raise BillError(f"{path}: expected a list of objects, one a charge")
    return found


def _resolve(rows: list[dict[str, Any]], columns: Mapping[str, str], path: Path) -> dict[str, str]:
    present = {name.strip().lower(): name for row in rows for name in row if name}
    names = {}
    for ours, known in COLUMNS.items():
        if ours in columns:
            if columns[ours].lower() not in present:
                raise BillError(f"{path}: has no column {columns[ours]!r}; it has {', '.join(present)}")
            names[ours] = present[columns[ours].lower()]
        elif found := next((name for name in known if name in present), None):
            names[ours] = present[found]
    if "cost" not in names:
        raise BillError(f"{path}: no column with a cost ({', '.join(COLUMNS['cost'])}); it has {', '.join(present)}")
    return names


def _charge(number: int, row: Mapping[str, Any], names: Mapping[str, str], path: Path) -> Charge:
    def text(ours: str) -> str | None:
        value = row.get(names[ours]) if ours in names else None
        return str(value).strip() or None if value is not None else None

    raw = text("cost")
    try:
        cost = float(re.sub(r"^(-?)\$", r"\1", raw or ""))
    except ValueError:
        raise BillError(f"{path}: row {number}: the cost {raw!r} is no number") from None
    if not -1e9 < cost < 1e9:
        raise BillError(f"{path}: row {number}: the cost {raw!r} is not a sum of money")
    when = text("time")
    return Charge(number, cost, text("run"), text("agent"), text("request"), text("model"), _moment(when), when)


def _moment(text: str | None) -> datetime | None:
    """Return a point in time; a bare day or something unreadable cannot join a row to a run."""
    if text is None or len(text) <= 10:
        return None
    try:
        found = datetime.fromisoformat(text.replace(" UTC", "+00:00"))
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


# --- join it to attempts --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Attempt:
    folder: Path
    record: TrialRecord
    requests: frozenset[str]

    def named(self, text: str) -> bool:
        record = self.record
        return text.strip("/") in (record.run_folder, record.trial, f"{record.trial}#{record.attempt}")

    def covers(self, charge: Charge) -> bool:
        if charge.time is None or charge.model is None or self.record.model is None:
            return False
        if charge.agent is not None and charge.agent != self.record.agent:
            return False
        began = self.record.started - _SLACK
        ended = self.record.started + timedelta(seconds=self.record.wall_seconds) + _SLACK
        return began <= charge.time <= ended and _plain(charge.model) == _plain(self.record.model)


def _plain(model: str) -> str:
    return model.rpartition("/")[2].partition(":")[0].lower()


def _attempts(campaign: Path) -> Iterator[_Attempt]:
    for path, record in iter_records(campaign):
        if not isinstance(record, RecordError):
            yield _Attempt(path.parent, record, frozenset(_request_ids(path.parent / LEDGER)))


def _request_ids(ledger: Path) -> Iterator[str]:
    if not ledger.is_file():
        return
    for line in ledger.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            found = json.loads(line)
        except ValueError:  # a last line that a kill cut off
            continue
        if isinstance(found, dict) and found.get("request_id"):
            yield str(found["request_id"])


def _join(charge: Charge, attempts: Iterable[_Attempt]) -> tuple[_Attempt | None, JoinedBy | str]:
    """Return the attempt that a charge belongs to and by what, or ``None`` and why there is none."""
    ways: tuple[tuple[JoinedBy, list[_Attempt]], ...] = (
        ("run", [one for one in attempts if charge.run is not None and one.named(charge.run)]),
        ("request", [one for one in attempts if charge.request is not None and charge.request in one.requests]),
        ("time and model", [one for one in attempts if one.covers(charge)]),
    )
    for way, found in ways:
        if way == "run" and len({one.record.trial for one in found}) == 1 and len(found) > 1:
            found = [one for one in found if one.covers(charge)]  # a trial's attempts: the time tells which
        if len(found) == 1:
            return found[0], way
        if found:
            return None, f"{len(found)} attempts fit by {way}"
    return None, "no attempt fits by run, request, or time and model"


def import_bill(path: Path, campaign: Path, columns: Mapping[str, str] | None = None) -> Imported:
    """Join an export to a campaign's attempts and store each one's part beside its record."""
    charges = read_export(path, columns)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    attempts = list(_attempts(campaign))
    if not attempts:
        raise BillError(f"{campaign}: holds no record of an attempt")
    parts: dict[Path, list[tuple[Charge, JoinedBy]]] = {}
    result = Imported()
    for charge in charges:
        attempt, how = _join(charge, attempts)
        if attempt is None:
            result.left.append((charge, how))
        else:
            parts.setdefault(attempt.folder, []).append((charge, how))  # type: ignore[arg-type]
    for folder, rows in parts.items():
        _book(folder, path.name, digest, rows, result)
    return result


def _book(folder: Path, export: str, digest: str, rows: Sequence[tuple[Charge, JoinedBy]], result: Imported) -> None:
    """Store an attempt's part of an export, in place of what the same file was read as before."""
    known = read_bills(folder).bills
    others = [bill for bill in known if bill.sha256 != digest]
    booked = {identity for bill in others for identity in bill.charges}
    identities = _identities([charge for charge, _ in rows])
    fresh = [(*row, identity) for row, identity in zip(rows, identities, strict=True) if identity not in booked]
    result.before += [charge for (charge, _), identity in zip(rows, identities, strict=True) if identity in booked]
    bill = Bill(
        export=export,
        sha256=digest,
        imported=datetime.now(UTC),
        rows=len(fresh),
        cost_usd=round(sum(charge.cost_usd for charge, _, _ in fresh), 10),
        joined_by=sorted({way for _, way, _ in fresh}),
        charges=[identity for _, _, identity in fresh],
    )
    if any(bill.model_copy(update={"export": old.export, "imported": old.imported}) == old for old in known):
        result.before += [charge for charge, _, _ in fresh]
        return
    if fresh:
        result.attempts[folder] = bill
        others.append(bill)
    if others != known:
        write_atomically(folder / FILE_NAME, Bills(bills=others).model_dump_json(indent=1) + "\n")


def _identities(charges: Iterable[Charge]) -> list[str]:
    """Return what tells each of an attempt's charges apart, alike in every export that holds them.

    That is the charge's id, else its time, model and cost. A refund may bear the id of what it refunds. A number
    follows, so that two equal rows of one export stay two charges.
    """
    seen: Counter[str] = Counter()
    found = []
    for charge in charges:
        if charge.request is not None:
            words = ["id", charge.request, *(["refund"] if charge.cost_usd < 0 else [])]
        else:
            time = charge.time.astimezone(UTC).isoformat() if charge.time else charge.when or ""
            words = ["row", time, charge.model or "", f"{charge.cost_usd:.10g}"]
        identity = " ".join(words)
        seen[identity] += 1
        found.append(f"{identity} #{seen[identity]}")
    return found


def read_bills(attempt: Path) -> Bills:
    """Read an attempt's bills; raise :class:`BillError` that names a damaged file."""
    path = attempt / FILE_NAME
    if not path.is_file():
        return Bills()
    try:
        return Bills.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise BillError(f"{path}: holds no bills: {error.errors()[0]['msg']}") from error


# --- what a run cost ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """What an attempt cost, by each source that has it; ``None`` where it has not."""

    metered_usd: float | None
    metered_source: str | None
    billed_usd: float | None

    @property
    def best_usd(self) -> float | None:
        """The bill where there is one, else what was metered."""
        return self.metered_usd if self.billed_usd is None else self.billed_usd

    @property
    def provenance(self) -> Literal["billed", "list_price"] | None:
        """Whether the best cost is the provider's own (its export, or on its answers) or tokens at list price."""
        if self.billed_usd is not None or (self.metered_usd is not None and self.metered_source == PROVIDERS_OWN):
            return "billed"
        return None if self.metered_usd is None else "list_price"


def cost_of(record: TrialRecord, attempt: Path | None, prices: PriceTable | None = None) -> Cost:
    """Return what an attempt cost.

    Parameters
    ----------
    prices
        Price the stored tokens anew by this table, whatever cost was recorded; ``None`` takes what was recorded.

    Raises
    ------
    BillError
        The bills of the attempt are damaged; the message names the file.
    """
    usage: Usage = record.usage
    if prices is not None:
        usage = priced(usage.model_copy(update={"cost_usd": None, "cost_source": None}), record.model, prices)
    billed = None if attempt is None else read_bills(attempt).cost_usd
    return Cost(usage.cost_usd, usage.cost_source or (usage.source if usage.cost_usd is not None else None), billed)


@dataclass
class CostLine:
    """One configuration's costs over all of its attempts; each sum is over those that have the signal, counted too."""

    runs: int = 0
    metered_usd: float = 0.0
    metered_runs: int = 0
    billed_usd: float = 0.0
    billed_runs: int = 0
    sources: list[str] = field(default_factory=list)

    def add(self, cost: Cost) -> None:
        self.runs += 1
        if cost.metered_usd is not None:
            self.metered_usd += cost.metered_usd
            self.metered_runs += 1
        if cost.billed_usd is not None:
            self.billed_usd += cost.billed_usd
            self.billed_runs += 1
        if cost.metered_source and cost.metered_source not in self.sources:
            self.sources.append(cost.metered_source)


def configuration_costs(campaigns: Iterable[Path], prices: PriceTable | None = None) -> dict[str, CostLine]:
    """Return the costs of every configuration in campaigns, synthetic agents left out."""
    lines: dict[str, CostLine] = {}
    for campaign in campaigns:
        for path, record in iter_records(campaign):
            if not isinstance(record, RecordError) and not record.synthetic:
                lines.setdefault(record.configuration, CostLine()).add(cost_of(record, path.parent, prices))
    return dict(sorted(lines.items()))
