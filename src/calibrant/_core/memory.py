"""How much memory is available to this process, and a check that data fit."""

from __future__ import annotations

import os
from pathlib import Path

from calibrant._core.checks import InputError

# Where Linux keeps the limit of a container and what it uses: version 2, then version 1.
CGROUPS = (
    ("", "memory.max", "memory.current", "inactive_file"),
    ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
UNKNOWN = 64 << 30
# Bytes of Python objects per byte of JSON: "{}," makes 72.
PARSED = 24
SMALL = 1 << 20  # too small to be worth the millisecond that the check takes


def check_size(
    needed: int, where: str, advice: str = "Free some memory, or read only part of it."
) -> None:
    """Fail, before allocation, if data do not fit into the available memory.

    >>> check_size(1, "a.npz")
    """
    if needed < SMALL:
        return
    available = available_memory()
    if needed > available:
        raise InputError(
            f"{where} needs {in_bytes(needed)} of memory, but only {in_bytes(available)} are "
            f"available. {advice}"
        )


def in_bytes(size: int) -> str:
    """A number of bytes in a readable unit.

    >>> in_bytes(1023), in_bytes(3 << 29), in_bytes(10**15)
    ('1,023 bytes', '1.5 GiB', '931,322.6 GiB')
    """
    for unit, exponent in (("GiB", 30), ("MiB", 20)):
        if size >= 1 << exponent:
            return f"{size / (1 << exponent):,.1f} {unit}"
    return f"{size:,} bytes"


def available_memory() -> int:
    """Bytes still available to this process.

    The least of what the machine has free, what the container leaves, and what the limit of the
    process on its address space leaves.
    """
    return max(0, min(_machine(), _container(), _address_space()))


def _machine() -> int:
    """Memory that is free or can be freed; all of it if the system does not report it."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return _physical()


def _physical() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return UNKNOWN


def _container() -> int:
    """What the control-group limits leave; cached files count as free."""
    return min([UNKNOWN << 20, *(left for group in _groups() for left in _left_in(*group))])


def _groups() -> list[tuple[Path, str, str, str]]:
    """Folders of the control groups of this process and above, with the names of their files."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return []
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        for controller, limit, usage, cached in CGROUPS:
            if controller in controllers.split(","):
                root = Path("/sys/fs/cgroup", controller)
                inner = root / path.lstrip("/")
                folders = [inner, *(above for above in inner.parents if root in above.parents)]
                found += [(folder, limit, usage, cached) for folder in {*folders, root}]
    return found


def _left_in(folder: Path, limit: str, usage: str, cached: str) -> list[int]:
    try:
        most = int((folder / limit).read_text(encoding="ascii"))  # "max": no limit
        used = int((folder / usage).read_text(encoding="ascii"))
        lines = (folder / "memory.stat").read_text(encoding="ascii").splitlines()
        free = sum(int(line.split()[1]) for line in lines if line.split()[0] == cached)
    except (OSError, ValueError, IndexError):
        return []
    return [most - used + free]


def _address_space() -> int:
    """What the limit on the address space leaves, if one is set."""
    try:
        import resource

        most, _ = resource.getrlimit(resource.RLIMIT_AS)
        if most == resource.RLIM_INFINITY:
            return UNKNOWN << 20
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except (ImportError, OSError, ValueError):
        return UNKNOWN << 20
    return most - pages * os.sysconf("SC_PAGE_SIZE")
