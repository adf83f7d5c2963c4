"""The host's part of an agent's view: programs, libraries, the harmless part of /etc, /proc, /dev, GPUs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

SYSTEM_ROOTS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")

_ETC = (
    "alternatives", "ca-certificates", "ca-certificates.conf", "crypto-policies", "debian_version", "fonts", "gai.conf",
    "ghostscript", "glvnd", "gnutls", "host.conf", "ImageMagick-6", "ImageMagick-7", "java-*", "ld.so.cache",
    "ld.so.conf", "ld.so.conf.d", "locale.alias", "localtime", "lsb-release", "magic", "magic.mime", "mailcap",
    "matplotlibrc", "mime.types", "nsswitch.conf", "OpenCL", "os-release", "papersize", "perl", "pki/ca-trust",
    "pki/tls/cert.pem", "pki/tls/certs", "pki/tls/openssl.cnf", "protocols", "python3*", "R", "redhat-release",
    "resolv.conf", "services", "ssl/cert.pem", "ssl/certs", "ssl/openssl.cnf", "timezone", "vulkan",
)  # fmt: skip

# An agent started by root owns, as far as /proc is concerned, what root owns there; so everything that is not named is
# covered, and nothing that is shown may be writable.
_PROC = (
    "cmdline", "cpuinfo", "devices", "filesystems", "loadavg", "meminfo", "mounts", "net", "self", "stat",
    "swaps", "sys", "thread-self", "uptime", "version", "vmstat",
)  # fmt: skip
_SYS = ("bus", "class", "dev", "devices", "module")


class ContainmentError(RuntimeError):
    """A view cannot be built as asked; the message says what to change. It is never an agent's fault."""


def is_system(path: Path) -> bool:
    """Return whether a path is shown anyway, as part of the system."""
    return any(path.is_relative_to(root) for root in SYSTEM_ROOTS)


def system_view(network: str, devices: Sequence[str] = ()) -> list[str]:
    """Return the options that show the system: programs, libraries, the harmless part of /etc, /proc, /dev, GPUs."""
    options = ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/", name)
        if path.is_symlink():
            options += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            options += ["--ro-bind", str(path), str(path)]
    for path in _expand(Path("/etc"), _ETC):
        options += _mirror(path)
    options += ["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", *_proc_covers(gpu=bool(devices))]
    options += ["--dev", "/dev", *_gpu_options(devices), "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]  # noqa: S108
    options += ["--symlink", "/tmp", "/var/tmp", "--dir", "/run"]  # noqa: S108
    if network != "open":
        options.append("--unshare-net")
    return options


def _expand(folder: Path, patterns: Iterable[str]) -> Iterator[Path]:
    for pattern in patterns:
        if "*" in pattern:
            yield from sorted(folder.glob(pattern))
        elif (folder / pattern).exists():
            yield folder / pattern


def _mirror(path: Path) -> list[str]:
    """Show a file or folder at its own path; a link into /usr stays a link."""
    target = path.resolve()
    if path.is_symlink() and target.is_relative_to("/usr"):
        return ["--symlink", str(target), str(path)]
    return ["--ro-bind", str(target), str(path)]


def _proc_covers(*, gpu: bool) -> list[str]:
    options: list[str] = []
    for entry in sorted(os.scandir("/proc"), key=lambda entry: entry.name):
        if entry.name.isdigit() or entry.name in _PROC or entry.is_symlink():
            continue
        if gpu and entry.name == "driver":  # says which GPU is which; can also put them to sleep
            options += ["--ro-bind", entry.path, entry.path]
        elif entry.is_dir():
            options += ["--tmpfs", entry.path, "--remount-ro", entry.path]
        else:
            options += ["--ro-bind", "/dev/null", entry.path]
    return options


def gpu_environment(devices: Sequence[str], contained: bool) -> dict[str, str]:
    """Return the variables by which libraries find the GPUs that were given, and no other."""
    if not devices:
        return {} if contained else {"CUDA_VISIBLE_DEVICES": ""}
    names = [device for device in devices if not device.startswith("/")]
    environment = {}
    if "LD_LIBRARY_PATH" in os.environ:  # where some images keep the driver's libraries
        kept = [part for part in os.environ["LD_LIBRARY_PATH"].split(":") if part and is_system(Path(part))]
        if kept:
            environment["LD_LIBRARY_PATH"] = ":".join(kept)
    if names and (not contained or any(name.startswith("MIG-") for name in names)):
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(names)
    return environment


def gpu_nodes(devices: Sequence[str], proc: Path = Path("/proc"), dev: Path = Path("/dev")) -> list[Path]:
    """Return the device files of the GPUs asked for, with the driver's own."""
    minors: dict[str, str] = {}
    for index, folder in enumerate(sorted(proc.glob("driver/nvidia/gpus/*"))):
        text = (folder / "information").read_text(errors="replace")
        facts = dict(re.findall(r"^([A-Za-z ]+):\s*(\S.*)$", text, re.MULTILINE))
        if "Device Minor" in facts:
            minors[str(index)] = facts["Device Minor"].strip()
            minors[facts.get("GPU UUID", "").strip()] = facts["Device Minor"].strip()
    nodes: list[Path] = []
    for device in devices:
        if device.startswith("/"):
            nodes.append(Path(device))
        elif device in minors or device.isdigit():
            nodes.append(dev / f"nvidia{minors.get(device, device)}")
        else:  # a slice, or a driver that does not tell which is which
            nodes += sorted(path for path in dev.glob("nvidia*") if path.name.removeprefix("nvidia").isdigit())
    if missing := [str(node) for node in nodes if not node.exists()]:
        raise ContainmentError(f"no such GPU device: {', '.join(missing)}")
    control = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "nvidia-caps")
    return [*dict.fromkeys(nodes), *(dev / name for name in control if (dev / name).exists())] if nodes else []


def _gpu_options(devices: Sequence[str]) -> list[str]:
    nodes = gpu_nodes(devices)
    options = [option for node in nodes for option in ("--dev-bind", str(node), str(node))]
    if nodes:
        for name in _SYS:
            options += ["--ro-bind-try", f"/sys/{name}", f"/sys/{name}"]
    return options
