"""TLS over a stream: verified by default, HTTP/1.1 only, closed without waiting for the peer."""

from __future__ import annotations

import ssl
from types import ModuleType

import trio

from ..model import codes
from ..model.failures import LlmError
from .wire_error import WireError


def default_ssl_context(library: ModuleType) -> ssl.SSLContext:
    """What httpx itself uses: certificates are verified; SSL_CERT_FILE and SSL_CERT_DIR are honoured.

    Raises:
        LlmError: INVALID_CONFIG, if a file that the environment names cannot be read.
    """
    try:
        context: ssl.SSLContext = library.create_ssl_context()
    except OSError as error:
        raise LlmError(
            "the certificates that SSL_CERT_FILE or SSL_CERT_DIR names cannot be read", codes.INVALID_CONFIG
        ) from error
    return context


async def start_tls(
    stream: trio.abc.Stream, context: ssl.SSLContext, host: str, whose: str
) -> trio.SSLStream[trio.abc.Stream]:
    """Shake hands. Whatever goes wrong, the caller closes the socket underneath.

    Args:
        host: the name the certificate must be for.
        whose: how errors call the other side: ``server`` or ``proxy``.

    Raises:
        WireError: ConnectError, if the peer breaks off or its certificate does not verify.
    """
    context.set_alpn_protocols(["http/1.1"])  # as httpx does it with a context that is handed to it
    secured = trio.SSLStream(stream, context, server_hostname=host, https_compatible=True)
    try:
        await secured.do_handshake()
    except trio.BrokenResourceError as error:
        reason = error.__cause__
        if isinstance(reason, ssl.SSLCertVerificationError):
            what = f"the certificate of the {whose} does not verify: {reason.verify_message}"
        elif isinstance(reason, ssl.SSLError) and reason.reason:
            what = f"the TLS handshake with the {whose} failed: {reason.reason.lower().replace('_', ' ')}"
        else:
            what = f"the {whose} broke off the TLS handshake"
        raise WireError("ConnectError", what) from error
    return secured
