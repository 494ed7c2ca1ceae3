"""The heads of one HTTP/1.1 exchange, written and read by h11, and what they say about the body.

h11 checks everything that goes out and comes in, but for the one request that nearly all are, a POST of a
whole body: that is written here, which costs a tenth, and h11 is told of one like it. Sizes and counts are
limited here, because h11 limits neither when a head comes in one read. h11's errors quote the bytes they
complain about, so none of them leaves this module, not even as a cause.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import h11

from .body import BodyReader, ChunkedBody, EndlessBody, SizedBody
from .wire_error import WireError

MAX_HEAD = 65536
"""How long the head of a response may be, interim responses before it included, in bytes."""

MAX_HEADERS = 256
"""How many headers a response may have."""

MAX_INTERIM = 16
"""How many interim (1xx) responses may come before the response."""

HeaderItems = Sequence[tuple[bytes, bytes]]

_HEAD = re.compile(
    rb"POST [!-~]+ HTTP/1\.1\r\n"
    rb"(?:[-!#$%&'*+.^_`|~0-9A-Za-z]+: (?:[!-~\x80-\xff]+(?:[ \t]+[!-~\x80-\xff]+)*)?\r\n)+\r\n"
)
_NOT_PLAIN = frozenset({b"connection", b"expect", b"transfer-encoding", b"upgrade"})
_LIKE_IT = h11.Request(method="POST", target="/", headers=[("host", "like.it"), ("content-length", "0")])
_END = h11.EndOfMessage()


def plain_post(method: bytes, target: bytes, headers: HeaderItems, body: bytes) -> bytes | None:
    """A POST of a whole body (RFC 9112 sections 3 and 5); None where it is anything but plain and right."""
    named = {name.lower(): value for name, value in headers}
    if (
        method != b"POST"
        or b"host" not in named
        or named.get(b"content-length") != b"%d" % len(body)
        or len(named) != len(headers)
        or not named.keys().isdisjoint(_NOT_PLAIN)
        or b":" in b"".join(named)  # or a name brings the beginning of its value, and is another name
    ):
        return None
    lines = b"".join([b"%s: %s\r\n" % header for header in headers])
    head = b"POST %s HTTP/1.1\r\n%s\r\n" % (target, lines)
    one_line_each = head.count(b"\n") == len(headers) + 2  # or a value brings a header of its own
    return head + body if one_line_each and _HEAD.fullmatch(head) else None


class Exchange:
    """One request and the head of its response. Does no I/O.

    Args:
        body: all of it; None for one that is still to be sent by :meth:`send_body` and :meth:`send_end`.

    Attributes:
        begin: what is to be sent first: the head, and the body that was given.

    Raises:
        WireError: LocalProtocolError, if the request is not valid HTTP.
    """

    __slots__ = ("_bytes_seen", "_h11", "_interim_seen", "_method", "begin")

    def __init__(self, method: bytes, target: bytes, headers: HeaderItems, body: bytes | None) -> None:
        self._method = method
        self._h11 = h11.Connection(h11.CLIENT, MAX_HEAD)
        self._bytes_seen = 0
        self._interim_seen = 0
        written = None if body is None else plain_post(method, target, headers, body)
        if written is not None:
            self._h11.send(_LIKE_IT)
            self._h11.send(_END)
            self.begin = written
            return
        self.begin = self._send(h11.Request, method=method, target=target, headers=headers)
        if body is not None:
            self.begin += self.send_body(body) + self.send_end()

    def _send(self, event_type: type[h11.Request | h11.Data | h11.EndOfMessage], **fields: object) -> bytes:
        try:
            return self._h11.send(event_type(**fields)) or b""  # type: ignore[arg-type]  # checked by h11
        except h11.LocalProtocolError:
            pass
        raise WireError("LocalProtocolError", "the request is not valid HTTP/1.1 (header, target or length)")

    def send_body(self, data: bytes) -> bytes:
        """Frame a part of the request's body.

        Raises:
            WireError: LocalProtocolError, if it is longer than its Content-Length.
        """
        return self._send(h11.Data, data=data)

    def send_end(self) -> bytes:
        """Frame the end of the request.

        Raises:
            WireError: LocalProtocolError, if the body is shorter than its Content-Length.
        """
        return self._send(h11.EndOfMessage)

    def receive(self, data: bytes) -> h11.Response | None:
        """Take the bytes of one read (``b""`` at the connection's end); the response once its head is there.

        Raises:
            WireError: RemoteProtocolError, if this is no HTTP response or one beyond the limits.
        """
        if not data:
            begun = self._bytes_seen > 0
            raise WireError(
                "RemoteProtocolError",
                "the connection closed " + ("within" if begun else "before") + " the response's head",
            )
        self._h11.receive_data(data)
        self._bytes_seen += len(data)
        while True:
            event = self._next_event()
            if isinstance(event, h11.Response):
                if self._bytes_seen - len(self._h11.trailing_data[0]) > MAX_HEAD:
                    raise WireError("RemoteProtocolError", "the response's head is too long")
                if len(event.headers) > MAX_HEADERS:
                    raise WireError("RemoteProtocolError", "the response has too many headers")
                return event
            if event is h11.NEED_DATA:
                if self._bytes_seen > MAX_HEAD:
                    raise WireError("RemoteProtocolError", "the response's head is too long")
                return None
            if not isinstance(event, h11.InformationalResponse) or event.status_code == 101:
                raise WireError(
                    "RemoteProtocolError", "the server switched to a protocol that was not asked for"
                )
            self._interim_seen += 1
            if self._interim_seen > MAX_INTERIM:
                raise WireError("RemoteProtocolError", "too many interim responses")

    def _next_event(self) -> object:
        try:
            return self._h11.next_event()
        except h11.RemoteProtocolError as error:
            too_long = error.error_status_hint == 431
        if too_long:
            raise WireError("RemoteProtocolError", "the response's head is too long")
        raise WireError("RemoteProtocolError", "the server's answer is not a valid HTTP/1.1 response")

    @property
    def trailing_data(self) -> bytes:
        """What came after the head: the beginning of the body."""
        return self._h11.trailing_data[0]

    def body_of(self, response: h11.Response) -> tuple[BodyReader, bool]:
        """How to read the response's body, and whether the connection may be used again after it.

        h11 let only ``chunked`` pass as a transfer coding, and one integer as a length. RFC 9112 section
        6.3 asks to close a connection on which both came.
        """
        reusable = self._h11.our_state is h11.DONE
        if self._method == b"HEAD" or response.status_code in (204, 304):
            return SizedBody(0), reusable
        framing = dict(response.headers)
        length = framing.get(b"content-length")
        if b"transfer-encoding" in framing:
            return ChunkedBody(), reusable and length is None
        if length is not None:
            return SizedBody(int(length)), reusable
        return EndlessBody(), False
