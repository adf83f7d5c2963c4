"""Did an agent look up the study that a task comes from? Pure functions on a transcript and a study's identifiers.

Only what an agent reached for counts: addresses fetched, searches made, and addresses or identifiers in commands that
use the network. What it merely wrote is listed as a mention. What came back to it is not looked at.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote_plus, urlsplit

from pydantic import BaseModel, ConfigDict, Field

from agents.transcript import Step

FILE_NAME = "audit.json"  # in an attempt's folder, beside record.json

Kind = Literal["packages", "models", "documentation", "publication", "dataset", "other"]
How = Literal["fetch", "search", "command"]

# Host (with its sub-domains) or host/path -> what lies there. The longest that fits decides.
_PLACES: dict[str, Kind] = {
    **dict.fromkeys(
        (
            "pypi.org", "pythonhosted.org", "anaconda.org", "anaconda.com", "conda-forge.org", "npmjs.org", "npmjs.com",
            "cran.r-project.org", "bioconductor.org", "debian.org", "ubuntu.com", "repo.maven.apache.org",
            "maven.scijava.org", "update.imagej.net", "sites.imagej.net", "update.fiji.sc", "crates.io",
        ),
        "packages",
    ),
    **dict.fromkeys(
        (
            "huggingface.co", "hf.co", "cellpose.org", "download.pytorch.org", "bioimage.io", "tfhub.dev",
            "models.ilastik.org", "openaipublic.azureedge.net", "dl.fbaipublicfiles.com", "kaggle.com/models",
        ),
        "models",
    ),
    **dict.fromkeys(
        (
            "readthedocs.io", "readthedocs.org", "docs.python.org", "scikit-image.org", "scikit-learn.org", "numpy.org",
            "scipy.org", "pydata.org", "matplotlib.org", "stackoverflow.com", "stackexchange.com", "imagej.net",
            "image.sc", "napari.org", "wikipedia.org", "github.com", "github.io", "githubusercontent.com", "gitlab.com",
            "docs.opencv.org", "pytorch.org", "tensorflow.org", "mathworks.com",
        ),
        "documentation",
    ),
    **dict.fromkeys(
        (
            "doi.org", "nature.com", "science.org", "sciencemag.org", "cell.com", "biorxiv.org", "medrxiv.org",
            "arxiv.org", "pubmed.ncbi.nlm.nih.gov", "ncbi.nlm.nih.gov", "europepmc.org", "plos.org",
            "elifesciences.org", "springer.com", "springeropen.com", "wiley.com", "ieee.org", "oup.com",
            "biomedcentral.com", "frontiersin.org", "semanticscholar.org", "scholar.google.com", "sciencedirect.com",
            "mdpi.com", "openalex.org", "crossref.org", "researchgate.net", "pnas.org", "rupress.org", "biologists.com",
            "embopress.org", "acs.org", "spiedigitallibrary.org", "openaccess.thecvf.com", "ecva.net", "jstor.org",
        ),
        "publication",
    ),
    **dict.fromkeys(
        (
            "zenodo.org", "figshare.com", "datadryad.org", "dryad.org", "gigadb.org", "osf.io", "rodare.hzdr.de",
            "idr.openmicroscopy.org", "openmicroscopy.org", "bbbc.broadinstitute.org", "ebi.ac.uk", "s3.amazonaws.com",
            "celltrackingchallenge.net", "repository.cam.ac.uk", "kaggle.com/datasets", "huggingface.co/datasets",
            "hf.co/datasets", "proteinatlas.org", "ssbd.riken.jp", "cellimagelibrary.org", "opendata.aws",
            "mendeley.com", "dataverse.harvard.edu", "openneuro.org", "synapse.org",
        ),
        "dataset",
    ),
}  # fmt: skip

_URL = re.compile(r"\b(?:https?|ftp|s3|gs)://[^\s'\"`<>|\\{}\[\]^]+", re.I)
_DOI = re.compile(r"\b10\.\d{4,9}/[^\s'\"<>,;)\]]+", re.I)
_INSTALL = re.compile(
    r"\b(?:pip3?|uv\s+pip|conda|mamba|micromamba|apt|apt-get|npm|install\.packages|BiocManager::install)\b[^\n;|&]*\binstall\b"
    r"|\binstall\.packages\(",
    re.I,
)
_NETWORK = re.compile(
    r"\b(?:curl|wget|aria2c|git\s+clone|requests\.|urllib|httpx|urlopen|urlretrieve|pooch|snapshot_download|hf_hub_download"
    r"|load_dataset|zenodo_get|aws\s+s3|ascp|lftp|kaggle\s+datasets|gdown|Entrez\.|ezdac|omero)",
    re.I,
)
_LONGEST_LINE = 2000  # of a command, in characters: what an agent writes must not cost us time
_WORD = re.compile(r"[a-z0-9]+")
_CAMEL = re.compile(r"\b[A-Z][A-Za-z]*[a-z][A-Za-z_]*[A-Z]\w*\b")
_HOSTS_OWN_NAMES = frozenset(
    ("github", "biostudies", "gigascience", "gigadb", "zenodo", "rodare", "apollo", "figshare")
)
_COMMON = frozenset(
    (
        "a", "an", "and", "at", "by", "data", "dataset", "et", "al", "for", "from", "in", "into", "its", "of", "on",
        "or", "the", "to", "under", "using", "via", "with", "images", "image", "imaging", "analysis", "quantitative",
        "cell", "cells", "nature", "science", "methods", "reports", "scientific", "journal", "proc",
    )
)  # fmt: skip
_LOCAL = re.compile(r"^(?:localhost|127\.|0\.0\.0\.0|\[?::1|10\.|192\.168\.)")


class Access(BaseModel):
    """One thing an agent reached for. ``hits`` names the study's identifiers in it."""

    model_config = ConfigDict(extra="forbid")

    step: int
    how: How
    target: str
    kind: Kind
    hits: list[str] = Field(default_factory=list)


class Audit(BaseModel):
    """What a transcript shows. ``mentions`` are identifiers that the agent wrote without reaching for them."""

    model_config = ConfigDict(extra="forbid")

    schema_version: int = 1
    steps: int
    accesses: list[Access]
    mentions: list[str] = Field(default_factory=list)

    @property
    def hits(self) -> list[Access]:
        return [access for access in self.accesses if access.hits]

    @property
    def flagged(self) -> bool:
        """Whether the agent reached for the source study."""
        return bool(self.hits)

    @property
    def counts(self) -> dict[str, int]:
        """Number of accesses of each kind."""
        return dict(Counter(access.kind for access in self.accesses))


@dataclass(frozen=True)
class Identifiers:
    """How a study can be named.

    ``exact`` maps a lower-case text to its label; ``together`` are words that name it only side by side (a repository
    and a short number); ``title`` are the words of its title that the task does not say itself.
    """

    exact: dict[str, str]
    together: tuple[tuple[str, ...], ...]
    title: frozenset[str]

    @staticmethod
    def of(*, study: str, accession: str, doi: str, url: str | None, dataset_id: str, known: str) -> Identifiers:
        """Collect a study's identifiers.

        Parameters
        ----------
        study, accession, doi, url, dataset_id
            As ``task.yaml`` has them.
        known
            Everything that the task tells the agent: its words are no sign of a look-up.
        """
        exact: dict[str, str] = {}
        for text in (doi, accession, study, url or ""):
            for found in _DOI.findall(text):
                label, name = f"DOI {found.rstrip('.')}", found.rstrip(".").lower()
                suffix = name.partition("/")[2]  # publishers' addresses hold it alone
                exact |= {key: label for key in (name, suffix.removeprefix("arxiv.")) if len(key) >= 8}
        if url:
            parts = urlsplit(url)
            exact[f"{(parts.hostname or '').removeprefix('www.')}{parts.path}".rstrip("/").lower()] = f"address {url}"
        exact[dataset_id.lower()] = f"dataset {dataset_id}"
        together = []
        words = re.split(r"[\s,()]+", _DOI.sub(" ", accession))
        for word in filter(None, words):
            plain = word.lower().strip(".")
            if re.search(r"\d", plain) and len(plain) >= 5 and not plain.endswith((".tiff", ".txt")):
                exact[plain] = f"accession {word}"
                if re.fullmatch(r"[a-z]+\d+v\d+", plain):
                    exact[plain.rpartition("v")[0]] = f"accession {word}"
            elif plain.isdecimal():
                together.append((words[0].lower(), plain))
            elif "/" in plain or "_" in plain:
                exact[plain] = f"accession {word}"
        for word in _CAMEL.findall(f"{study} {accession}"):
            if word.lower() not in _HOSTS_OWN_NAMES and len(word) >= 6:
                exact[word.lower()] = f"name {word}"
        told = known.lower()
        exact = {key: label for key, label in exact.items() if key not in told}
        title = frozenset(_words(study)) - frozenset(_words(known)) - _COMMON
        return Identifiers(exact, tuple(together), frozenset(word for word in title if len(word) > 2))

    def hits(self, text: str) -> list[str]:
        """Return the labels of the identifiers in a text."""
        plain = unquote_plus(text).lower()
        found = {label for key, label in self.exact.items() if _contains(plain, key)}
        words = set(_words(plain))
        found |= {f"{pair[0]} {pair[1]}" for pair in self.together if set(pair) <= words}
        common = self.title & words
        if len(common) >= 4 and 2 * len(common) >= len(self.title):
            found.add("words of the title: " + " ".join(sorted(common)))
        return sorted(found)


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _contains(text: str, key: str) -> bool:
    """Tell whether a key stands in a text as a whole, not inside a longer number or word."""
    return re.search(rf"(?<![a-z0-9]){re.escape(key)}(?![a-z0-9])", text) is not None or (
        re.search(r"[a-z]\d+$", key) is not None and re.search(rf"(?<![a-z0-9]){re.escape(key)}v\d", text) is not None
    )


def classify(target: str) -> Kind:
    """Return what lies at an address; ``other`` for unknown places and for texts that are no address."""
    parts = urlsplit(target)
    host = (parts.hostname or "").lower()
    if parts.scheme in ("s3", "gs"):
        return "dataset"
    place = f"{host}{parts.path}".lower()
    fitting = [name for name in _PLACES if _lies_at(host, place, name)]
    if fitting:
        return _PLACES[max(fitting, key=len)]
    if host.startswith("docs.") or "/docs/" in parts.path:
        return "documentation"
    return "other"


def _lies_at(host: str, place: str, name: str) -> bool:
    if "/" in name:
        return place.removeprefix("www.").startswith(name)
    return host == name or host.endswith("." + name)


def reached(step: Step) -> Iterator[tuple[How, str, Kind]]:
    """Yield what a step reached for: how, what, and of which kind."""
    for url in step.urls:
        if not _is_local(url):
            yield "fetch", url, classify(url)
    for query in step.queries:
        yield "search", query, "other"
    if step.kind != "tool" or not step.code:
        return
    seen = set(step.urls)
    for url in _addresses(step.code):
        if url not in seen:
            seen.add(url)
            yield "command", url, classify(url)
    for whole in step.code.splitlines():
        line = whole[:_LONGEST_LINE]
        if _INSTALL.search(line):
            yield "command", line.strip()[:300], "packages"
        elif _NETWORK.search(line) and not _URL.search(line):
            yield "command", line.strip()[:300], _of_command(line)


def _addresses(code: str) -> list[str]:
    found = (url.rstrip(".,;:)") for url in _URL.findall(code))
    return [url for url in dict.fromkeys(found) if not _is_local(url)]


def _is_local(url: str) -> bool:
    parts = urlsplit(url if "://" in url else f"//{url}")
    return parts.scheme == "file" or bool(_LOCAL.match(parts.netloc))


def _of_command(line: str) -> Kind:
    if re.search(r"load_dataset|zenodo_get|kaggle\s+datasets|aws\s+s3|omero", line):
        return "dataset"
    if "Entrez" in line:
        return "publication"
    return "models" if re.search(r"hf_hub_download|snapshot_download", line) else "other"


def audit(steps: Iterable[Step], identifiers: Identifiers) -> Audit:
    """Audit a transcript against a study's identifiers."""
    accesses, mentions, number = [], set(), 0
    for number, step in enumerate(steps, 1):  # noqa: B007 - counts them
        reaches = list(reached(step))
        networked = any(how == "command" for how, _, _ in reaches)
        for how, target, kind in reaches:
            accesses.append(Access(step=step.step, how=how, target=target, kind=kind, hits=identifiers.hits(target)))
        rest = identifiers.hits(step.code or "") if networked else []
        if rest and not any(access.hits for access in accesses[len(accesses) - len(reaches) :]):
            # an address put together from pieces: the command uses the network and names the study
            accesses.append(Access(step=step.step, how="command", target=rest[0], kind="other", hits=rest))
        if not networked:
            mentions.update(identifiers.hits(f"{step.text or ''}\n{step.code or ''}"))
    return Audit(steps=number, accesses=accesses, mentions=sorted(mentions))
