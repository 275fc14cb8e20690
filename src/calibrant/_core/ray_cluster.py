"""The connection to a Ray cluster, or to one that is started on this machine alone."""

from __future__ import annotations

import os
import socket
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from typing import Any

from calibrant._core.checks import CalibrationWarning, InputError, refuse
from calibrant._core.extras import import_extra
from calibrant._core.stopping import reinstall

LOCAL_HOST = "127.0.0.1"
LOOPBACK = (LOCAL_HOST, "localhost", "[::1]")
ONE_MACHINE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
ANSWER_SECONDS = 5.0
# A cluster that does not answer us has rejected our token; Ray would retry 20 times.
TRIES, FEW = "RAY_NUM_REDIS_GET_RETRIES", "5"
TOKEN_ADVICE = (
    "If the cluster requires a token, set RAY_AUTH_MODE=token and put its token into "
    "~/.ray/auth_token."
)
CLIENT = "ray://"
# How a gRPC connection begins: the client's first words, and an empty frame of settings.
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
SETTINGS = 4  # the kind of the frame that the server answers with


class ClusterError(InputError):
    """No Ray cluster can be used at an address, or none be started."""


def check_address(address: str | None) -> None:
    """Refuse an address that cannot be one; None starts a cluster on this machine."""
    if address not in (None, "auto"):
        _host_and_port(str(address))


@contextmanager
def connected(address: str | None, user: str, options: Mapping[str, Any]) -> Iterator[Any]:
    """The module ``ray``, connected; ``user`` is what needs it, ``options`` are of ``ray.init``."""
    if address is None:
        # Ray reads it when it is imported; its name is that of what it was made for.
        os.environ.setdefault(ONE_MACHINE, "0")
    else:
        os.environ.setdefault(TRIES, FEW)
    loaded = sys.modules.get("ray")
    ours = loaded is None or not loaded.is_initialized()
    if ours and address not in (None, "auto"):
        _check_answers(str(address))
        if _is_here_alone(str(address)):
            os.environ.setdefault(ONE_MACHINE, "0")
    ray = import_extra("ray", user)
    if ours:
        _connect(ray, address, options)
    try:
        yield ray
    finally:
        if ours:
            with stdout_free():
                ray.shutdown()


def _connect(ray: Any, address: str | None, options: Mapping[str, Any]) -> None:
    options = {"log_to_driver": False, **options}
    if address is None:
        options = {"include_dashboard": False, **options}
    try:
        with stdout_free():
            # Without "local" Ray would look for a cluster, and wait for one that has ended.
            ray.init(address=address or "local", **options)
        reinstall()
    except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        raise ClusterError(_refused(address, error)) from error
    listens_on = ray.util.get_node_ip_address()
    if address is None and listens_on != LOCAL_HOST:
        text = f"Ray listens on {listens_on}, where other machines can reach it"
        text += f". Set {ONE_MACHINE}=0 before ray is imported."
        warnings.warn(text, CalibrationWarning, stacklevel=2)


def _refused(address: str | None, error: Exception) -> str:
    reason = str(error).partition("\n")[0].rstrip(".")
    text = f"Ray ({address or 'on this machine'}) cannot be used: {reason}."
    return text if address is None else f"{text} {TOKEN_ADVICE}"


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.removeprefix(CLIENT).rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        rule, advice = "must be HOST:PORT, ray://HOST:PORT or auto", "Try 10.0.0.1:6379."
        raise refuse("address", rule, f"got {address!r}", advice)
    return host, int(port)


def _check_answers(address: str) -> None:
    """Reject an address without Ray at once; ``ray.init`` would take minutes."""
    host, port = _host_and_port(address)
    advice = "Check it with: ray status --address HOST:PORT."
    try:
        with socket.create_connection((host.strip("[]"), port), ANSWER_SECONDS) as there:
            if os.environ.get("RAY_USE_TLS", "0") != "0":
                return  # no plain-text answer is expected over TLS
            there.sendall(GREETING)
            answer = there.recv(9)
    except OSError as error:
        rule = "must be that of a running Ray cluster"
        raise refuse("address", rule, f"got {address}: {error}", advice) from error
    if len(answer) < 4 or answer[3] != SETTINGS:  # noqa: PLR2004
        rule, got = "must be that of a Ray cluster", f"got {address}, where something else answers"
        raise refuse("address", rule, got, advice)


def _is_here_alone(address: str) -> bool:
    """Whether a cluster that answers at the loopback address does not listen to the network.

    Ray replaces that address by the one that other machines see, and would wait there for minutes.
    """
    host, port = _host_and_port(address)
    return host in LOOPBACK and not _listens(_own_address(), port)


def _listens(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), ANSWER_SECONDS):
            return True
    except OSError:
        return False


def _own_address() -> str:
    """The address of this machine in its network; nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("8.8.8.8", 80))
        except OSError:
            return LOCAL_HOST
        return str(probe.getsockname()[0])


@contextmanager
def stdout_free() -> Iterator[None]:
    """Keep Ray's worker messages off stdout, which is for tables."""
    with redirect_stdout(sys.stderr):
        yield
