"""Find, check and safely open what an agent left. A submission is hostile data.

Which file belongs to which deliverable
---------------------------------------
A deliverable's patterns are matched, without regard to case, first against a file's own name, then against the name
together with its nearest folder, and so on outwards. The nearest level that says anything decides, so that
``nuclei_and_cytoplasm/7_cytoplasm.tif`` is a cytoplasm file and ``nuclei_masks/7.tif`` a nuclei file. Where several
deliverables match at that level, the one whose pattern is a special case of the others' is meant; otherwise the file is
ambiguous and belongs to none. A file belongs to one deliverable at most and never stands in for another: there is no
search by file type alone.

What is not looked at: links of any kind (named as problems), devices, pipes and sockets (named), names that begin with
a dot, ``__MACOSX``, a top-level folder ``supporting``, and files whose real extension does not fit the content
(``mask.tif.bak``).
"""

from __future__ import annotations

import fnmatch
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path, PurePath

from evaluators.model import Content, Deliverable
from evaluators.problems import Problems, Refusal
from evaluators.readers import check_header

MAX_FILES = 50_000  # in all; the largest task asks for 530
MAX_FOLDER_ENTRIES = 20_000
MAX_DEPTH = 16
MAX_TOTAL_BYTES = 64 << 30  # above the quota of a trial

_IMAGES = (".tif", ".tiff")
EXTENSIONS: dict[Content, tuple[str, ...]] = {
    Content.LABEL_IMAGE: _IMAGES,
    Content.BINARY_IMAGE: _IMAGES,
    Content.LABEL_STACK: _IMAGES,
    Content.IMAGE: _IMAGES,
    Content.CHANNEL_STACK: _IMAGES,
    Content.TABLE: (".csv", ".tsv", ".txt"),
    Content.WORKBOOK: (".xlsx",),
    Content.LINEAGE: (".txt",),
}
_FILE_EXTENSIONS = {extension for extensions in EXTENSIONS.values() for extension in extensions}
_IGNORED_FOLDERS = {"__macosx"}


@dataclass(frozen=True)
class SubmittedFile:
    """A regular file of a submission. It is known by name only until :meth:`open` has looked again.

    Attributes
    ----------
    root
        The output folder.
    parts
        Path below it. Names may hold any byte but ``/`` and NUL.
    size
        Bytes, when the folder was walked.
    """

    root: Path
    parts: tuple[str, ...]
    size: int

    @property
    def name(self) -> str:
        """The file's own name."""
        return self.parts[-1]

    @property
    def path(self) -> str:
        """Path below the output folder, with ``/``; not safe to print (:func:`evaluators.problems.shown`)."""
        return "/".join(self.parts)

    @property
    def folder(self) -> str:
        """Name of the nearest folder, empty at the top."""
        return self.parts[-2] if len(self.parts) > 1 else ""

    @property
    def depth(self) -> int:
        """Number of folders above the file."""
        return len(self.parts) - 1

    @property
    def stem(self) -> str:
        """Name without its extension; ``.ome.tif`` counts as one extension."""
        return stem_of(self.name)

    def open(self) -> BufferedReader:
        """Open for reading, following no link anywhere on the way.

        Raises
        ------
        Refusal
            It is no longer a regular file, or cannot be opened.
        """
        folder = -1
        try:
            folder = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            for part in self.parts[:-1]:
                inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
                os.close(folder)
                folder = inner
            # O_NONBLOCK: a pipe put in the file's place must not make us wait for a writer.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
            descriptor = os.open(self.parts[-1], flags, dir_fd=folder)
        except OSError as error:
            raise Refusal("unreadable", f"cannot be opened: {error.strerror}") from error
        finally:
            if folder >= 0:
                os.close(folder)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise Refusal("unreadable", "is not a regular file")
        return os.fdopen(descriptor, "rb")


def stem_of(name: str) -> str:
    """Return a file name without its extension, ``.ome.tif`` being one; a dot inside the stem stays.

    Examples
    --------
    >>> stem_of("00_RES.ome.tif"), stem_of("day1.5.csv")
    ('00_RES', 'day1.5')
    """
    return re.sub(r"(?i)(\.ome)?\.[^.]*$", "", name)


class Submission:
    """The files of one output folder, sorted by deliverable.

    Parameters
    ----------
    folder
        The output folder; may be missing.
    deliverables
        What the task asks for.

    Attributes
    ----------
    problems : Problems
        What was wrong so far; evaluators add theirs.
    files : tuple of SubmittedFile
        All regular files, ordered by depth, then by path.
    """

    def __init__(self, folder: Path, deliverables: Sequence[Deliverable]) -> None:
        self.folder = folder
        self.deliverables = {deliverable.id: deliverable for deliverable in deliverables}
        self.problems = Problems()
        self.files = tuple(self._walk())
        self._candidates: dict[str, list[SubmittedFile]] = {identifier: [] for identifier in self.deliverables}
        self._sort_files()

    def candidates(self, deliverable_id: str) -> tuple[SubmittedFile, ...]:
        """Return the files whose names say that they belong to a deliverable; none of them was opened yet."""
        return tuple(self._candidates[deliverable_id])

    @property
    def delivered(self) -> bool:
        """Whether at least one required deliverable has a file that can be what it asks for, by its header."""
        return any(
            self._conforms(file, deliverable)
            for deliverable in self.deliverables.values()
            if deliverable.required
            for file in self._candidates[deliverable.id]
        )

    @staticmethod
    def _conforms(file: SubmittedFile, deliverable: Deliverable) -> bool:
        try:
            check_header(file.open(), deliverable)
        except Refusal:
            return False
        return True

    def missing(self, deliverable_id: str) -> None:
        """Name a deliverable without any candidate, with the files that were found instead."""
        deliverable = self.deliverables[deliverable_id]
        others = [file.path for file in self.files[:5]]
        found = f"found {', '.join(others)}{' …' if len(self.files) > 5 else ''}" if others else "found no file"
        self.problems.add(
            "missing_deliverable",
            deliverable_id,
            f"no file named {' or '.join(deliverable.patterns)}: {found}",
        )

    def _walk(self) -> Iterator[SubmittedFile]:
        if not self.folder.is_dir():
            self.problems.add("missing_folder", str(self.folder), "the output folder does not exist")
            return
        level: list[tuple[str, ...]] = [()]
        files, total = 0, 0
        while level:
            below: list[tuple[str, ...]] = []
            for folder in level:
                for parts, information in self._entries(folder):
                    path = "/".join(parts)
                    if stat.S_ISLNK(information.st_mode):
                        self.problems.add("link", path, "links are not followed; save the file itself")
                    elif stat.S_ISDIR(information.st_mode):
                        below.append(parts)
                        if PurePath(parts[-1]).suffix.lower() in _FILE_EXTENSIONS:
                            self.problems.add("folder_not_file", path, "is a folder with the name of a file")
                    elif not stat.S_ISREG(information.st_mode):
                        self.problems.add("special_file", path, "is neither a file nor a folder")
                    else:
                        files, total = files + 1, total + information.st_size
                        if files > MAX_FILES or total > MAX_TOTAL_BYTES:
                            self.problems.add(
                                "too_many_files",
                                path,
                                f"stopped here: more than {MAX_FILES} files or {MAX_TOTAL_BYTES >> 30} GiB",
                            )
                            return
                        yield SubmittedFile(self.folder, parts, information.st_size)
            if below and len(below[0]) > MAX_DEPTH:
                self.problems.add("too_deep", "/".join(below[0]), f"folders below depth {MAX_DEPTH} are not read")
                return
            level = below

    def _entries(self, folder: tuple[str, ...]) -> list[tuple[tuple[str, ...], os.stat_result]]:
        """List a folder in the order of its names' bytes, without what is ignored everywhere."""
        found = []
        try:
            with os.scandir(self.folder.joinpath(*folder)) as entries:
                for entry in entries:
                    if entry.name.startswith(".") or entry.name.lower() in _IGNORED_FOLDERS:
                        continue
                    if not folder and entry.name.lower() == "supporting":
                        continue
                    found.append(((*folder, entry.name), entry.stat(follow_symlinks=False)))
                    if len(found) > MAX_FOLDER_ENTRIES:
                        message = f"more than {MAX_FOLDER_ENTRIES} entries: the folder is not read"
                        self.problems.add("too_many_files", "/".join(folder) or ".", message)
                        return []
        except OSError as error:
            self.problems.add("unreadable_folder", "/".join(folder) or ".", f"cannot be listed: {error.strerror}")
        return sorted(found, key=lambda item: os.fsencode(item[0][-1]))

    def _sort_files(self) -> None:
        patterns = {
            identifier: _compiled(deliverable.patterns) for identifier, deliverable in self.deliverables.items()
        }
        for file in self.files:
            extension = PurePath(file.name).suffix.lower()
            fitting = {
                identifier: regexes
                for identifier, regexes in patterns.items()
                if extension in EXTENSIONS[self.deliverables[identifier].content]
            }
            named = _nearest_level(file.parts, fitting)
            if len(named) > 1:
                named = self._most_special(named)
            if len(named) > 1:
                self.problems.add(
                    "ambiguous_deliverable",
                    file.path,
                    f"could be {' or '.join(sorted(named))}; name the file after one of them",
                )
            elif named:
                self._candidates[named[0]].append(file)

    def _most_special(self, identifiers: list[str]) -> list[str]:
        """Keep deliverables whose patterns are special cases of all the others': ``summary.csv`` beside ``*.csv``."""
        special = [
            one for one in identifiers if all(one == other or self._refines(one, other) for other in identifiers)
        ]
        return special or identifiers

    def _refines(self, one: str, other: str) -> bool:
        def within(inner: str, outer: str) -> bool:
            examples = [pattern.replace("*", "").replace("?", "x") for pattern in self.deliverables[inner].patterns]
            regexes = _compiled(self.deliverables[outer].patterns)
            return all(any(regex.match(example.lower()) for regex in regexes) for example in examples)

        return within(one, other) and not within(other, one)


def _compiled(patterns: Sequence[str]) -> list[re.Pattern[str]]:
    return [re.compile(fnmatch.translate(pattern.lower())) for pattern in patterns]


def _nearest_level(parts: tuple[str, ...], patterns: dict[str, list[re.Pattern[str]]]) -> list[str]:
    for level in range(1, len(parts) + 1):
        text = "/".join(parts[-level:]).lower()
        named = [key for key, regexes in patterns.items() if any(regex.match(text) for regex in regexes)]
        if named:
            return named
    return []
