"""The folders of a trial: where the agent works, and where what it left is kept.

``CAMPAIGN/runs/<task>/<configuration>/r<N>/attempt-<k>/`` is the run folder; no agent ever sees it. While an agent runs
it works in ``CAMPAIGN/work/<hex>/``, whose name gives nothing away; afterwards its output moves to ``submission/`` in
the run folder.
"""

from __future__ import annotations

import errno
import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from filelock import FileLock, SoftFileLease, Timeout

from biabench_plugin import _quota
from biabench_plugin.campaign import Trial
from biabench_plugin.isolation import Rooms
from biabench_plugin.records import CURRENT, FILE_NAME, RecordError, TrialRecord, read_record, write_atomically

INPUTS = "inputs.txt"  # in an attempt's folder: names of the input files
_MAX_INPUTS = 5_000
_ATTEMPT = re.compile(r"attempt-[0-9]+")
_LOCK_SECONDS = 20.0  # workers of a killed session outlive it for seconds
LEASE = ".lease"  # in a trial's folder while it is held
LEASE_SECONDS = 60.0  # a holder on another host that was silent for so long is dead


class BusyError(RuntimeError):
    """Another process runs this trial now."""


def note_inputs(attempt: Path, input_dir: Path) -> None:
    """Write the names of the input files beside a run: the judge asks whether outputs are named after them."""
    names = sorted(path.relative_to(input_dir).as_posix() for path in input_dir.rglob("*") if path.is_file())
    text = "".join(name + "\n" for name in names[:_MAX_INPUTS])
    (attempt / INPUTS).write_text(text, encoding="utf-8", errors="surrogateescape")


def remove_tree(folder: Path) -> None:
    """Delete a folder that an agent could write, whatever depth and permissions it left."""
    if folder.is_symlink() or not folder.is_dir():
        folder.unlink(missing_ok=True)
    else:
        _quota.remove(folder.parent, folder.name)


class TrialFolder:
    """The folder of one trial in a campaign, with its attempts."""

    def __init__(self, campaign: Path, trial: Trial) -> None:
        self.campaign = campaign
        self.trial = trial
        self.path = campaign / trial.relative_folder
        self._lease: SoftFileLease | None = None

    def records(self) -> list[TrialRecord]:
        """Return the records of all finished attempts, oldest first."""
        found = []
        for path in sorted(self._attempts(), key=_attempt_number):
            with suppress(RecordError):  # a damaged record counts as none; the report names it
                found.append(read_record(path / FILE_NAME))
        return found

    def _attempts(self) -> list[Path]:
        return [path for path in self.path.glob("attempt-*") if _ATTEMPT.fullmatch(path.name)]

    def use(self, key: str) -> None:
        """Note which experiment the session that runs now uses; reports show its attempts."""
        marker = self.path / CURRENT
        if not marker.is_file() or marker.read_text(encoding="ascii").strip() != key:
            write_atomically(marker, key + "\n")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the trial against other processes of this host, with a lock of the kernel that ends with its holder."""
        self.path.mkdir(parents=True, exist_ok=True)
        with ExitStack() as held:
            try:
                held.enter_context(FileLock(self.path / ".lock", timeout=_LOCK_SECONDS, fallback_to_soft=False))
            except Timeout as error:
                raise self._busy() from error
            except OSError as error:  # a file system without such locks leaves the lease
                if error.errno not in (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK):
                    raise
            yield

    @contextmanager
    def leased(self) -> Iterator[None]:
        """Hold the trial against other hosts too, while an attempt runs; call it under :meth:`locked`.

        Some network file systems keep the kernel's lock to one host, or have none. The lease is a file that its holder
        keeps renewing: every host sees it, and it is free when its holder on this host is dead, or when a holder on
        another host was silent for ``LEASE_SECONDS``.
        """
        self._lease = SoftFileLease(self.path / LEASE, lease_duration=LEASE_SECONDS, timeout=LEASE_SECONDS * 1.5)
        with ExitStack() as held:
            try:
                held.enter_context(self._lease)
            except Timeout as error:
                raise self._busy() from error
            yield

    def _busy(self) -> BusyError:
        return BusyError(f"{self.trial.id}: another process runs this trial in {self.path}")

    def check_held(self) -> None:
        """Raise :class:`BusyError` when another host took the trial over, having heard nothing of this one."""
        if self._lease is not None and self._lease.compromise is not None:
            raise BusyError(f"{self.trial.id}: this host was silent for so long that another one took the trial over")

    def interrupted(self) -> list[Path]:
        """Return the attempts that ended without a record: whatever ran them was cut off."""
        return [path for path in sorted(self._attempts(), key=_attempt_number) if not (path / FILE_NAME).exists()]

    def new_attempt(self) -> Attempt:
        """Make the folders of the next attempt; call it under :meth:`locked`."""
        numbers = [_attempt_number(path) for path in self._attempts()]
        for number in numbers:  # of sessions that were cut off: incomplete, and nothing scored it
            remove_tree(self.work(number))
        return Attempt(self, max(numbers, default=0) + 1)

    def work(self, number: int) -> Path:
        """Return where the agent of an attempt works; the name gives nothing away."""
        key = hashlib.sha256(f"{self.trial.id}:{number}".encode()).hexdigest()[:16]
        return self.campaign / "work" / key


def _attempt_number(folder: Path) -> int:
    return int(folder.name.removeprefix("attempt-"))


class Attempt:
    """The folders of one attempt."""

    def __init__(self, folder: TrialFolder, number: int) -> None:
        self.number = number
        self.campaign = folder.campaign
        self.path = folder.path / f"attempt-{number}"
        self.path.mkdir()
        self.work = folder.work(number)
        self.submission = self.path / "submission"
        self.rooms = Rooms(
            input=self.work / "input",
            output=self.work / "output",
            home=self.work / "home",
            tmp=self.work / "tmp",
            instruction=self.work / "instruction.md",
            logs=self.path / "logs",
        )
        for room in (self.rooms.output, self.rooms.home, self.rooms.tmp, self.rooms.logs):
            room.mkdir(parents=True, exist_ok=True)

    def write_instruction(self, text: str) -> None:
        """Save the rendered instruction beside the run, and where the agent reads it."""
        for path in (self.path / "instruction.md", self.rooms.instruction):
            path.write_bytes(text.encode())

    def write_home(self, files: Mapping[str, str]) -> None:
        """Write an agent's settings below its HOME, before it starts."""
        for name, text in files.items():
            path = self.rooms.home / name
            if not path.resolve().is_relative_to(self.rooms.home.resolve()):
                raise ValueError(f"an agent's file lies outside its HOME: {name}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def collect(self) -> None:
        """Move what the agent left into the run folder and delete everything else that it could write."""
        self.rooms.output.rename(self.submission)
        self.submission.chmod(0o755)
        remove_tree(self.work)

    def discard(self, *, keep: bool = False) -> None:
        """Delete the work folder of an attempt that could not be started or was interrupted.

        The run folder goes too where no log in it says anything, unless ``keep``.
        """
        if self.work.exists():
            remove_tree(self.work)
        if not keep and not any(path.stat().st_size for path in self.rooms.logs.glob("*")):
            remove_tree(self.path)
