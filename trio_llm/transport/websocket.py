"""WebSockets (RFC 6455) over trio-websocket, on connections of this library's own.

The connection is opened as one for HTTP is: proxies, certificates and attribution are the same. What
trio-websocket leaves open is closed here: a socket whose server went first, or never shook hands. It is
imported only when a WebSocket is opened.
"""

from __future__ import annotations

import math
import ssl
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import urlsplit

import httpx
import trio

from ..model import codes
from ..model.failures import LlmError
from ..model.identifiers import ProviderRequestId
from ..model.identity import APP_IDENTITY, AppIdentity, attribution_headers
from .connection import READ_SIZE, Connection, Endpoint, Route, connect
from .headers import checked_headers
from .proxy import EnvironmentProxies, SocksProxy
from .request_id import find_request_id
from .tls import default_ssl_context
from .upgrade import UpgradedStream, UpgradeRefused, refusal_of
from .watcher import UNWATCHED, CallWatcher
from .wire_error import WireError

if TYPE_CHECKING:
    from trio_websocket import CloseReason, WebSocketConnection

MAX_MESSAGE_SIZE: Final = 16 * 1024 * 1024
"""How large a message may be, in characters or bytes."""

BACKLOG: Final = 64 * 1024 * 1024
"""How much is taken in, in bytes, while nobody reads: as long as it is, pings are answered."""

QUEUED_MESSAGES: Final = 16
"""How many messages trio-websocket holds on their way into the backlog."""

_PORTS: Final = {"http": 80, "https": 443}
_ABNORMAL: Final = 1006
_NO_TEXT: Final = 1007
_TOO_BIG: Final = 1009


class WebSocket:
    """An open WebSocket, used by one task at a time. Pings are answered whether anybody reads or not.

    It lives in a task of the nursery it was opened in, until one side closes it. Closing is forceful: at
    once, without a closing handshake.

    Attributes:
        request_id: the provider's id of the upgrade, where it gave one.
        on_close: called once, when the socket closes for whatever reason; must not raise.
    """

    def __init__(
        self,
        connection: Connection,
        watcher: CallWatcher,
        peer: str,
        max_message_size: int,
        secrets: Sequence[str] = (),
    ) -> None:
        self._connection = connection
        self._stream = UpgradedStream(connection, watcher)
        self._peer = peer
        self._max_message_size = max_message_size
        self._secrets = secrets
        self._scope = trio.CancelScope()
        self._socket: WebSocketConnection | None = None
        self._messages: list[bytes] = []
        self._backlog = 0
        self._changed = trio.lowlevel.ParkingLot()
        self._end: LlmError | None = None
        self._closed = False
        self._resting = False
        self.request_id: ProviderRequestId | None = None
        self.on_close: Callable[[], object] = lambda: None

    @property
    def usable(self) -> bool:
        """Whether a message can be sent: neither side has closed, and nothing lies unread."""
        return not self._closed and self._end is None and not self._messages

    def attend(self, watcher: CallWatcher) -> None:
        """Tell ``watcher`` from now on of every sign of life. The rest is over."""
        self._stream.watcher = watcher
        self._resting = False
        self._scope.deadline = math.inf

    def rest(self, until: float) -> None:
        """Tell nobody, and close at that time on Trio's clock, or when a message comes unasked."""
        self._stream.watcher = UNWATCHED
        self._resting = True
        self._scope.deadline = until

    def close(self) -> None:
        """Close the socket, at once and without a word. Idempotent; works in a cancelled task."""
        if not self._closed:
            self._closed = True
            self._stream.watcher = UNWATCHED
            self._connection.close()
            self._scope.cancel()
            self._changed.unpark_all()
            self.on_close()

    async def send(self, message: bytes) -> None:
        """Send a text message, which is UTF-8.

        Cancelling it leaves half a message behind, so :meth:`close` must follow.

        Raises:
            LlmError: the connection is closed or breaks; as :meth:`receive` does.
        """
        from trio_websocket import ConnectionClosed

        assert self._socket is not None
        self._check_open()
        try:
            await self._socket.send_message(message.decode("utf-8"))
        except ConnectionClosed as error:
            raise self._end_of(error.reason) from error
        self._stream.watcher.sent()

    async def receive(self) -> list[bytes]:
        """All messages that are there, at least one, in UTF-8. Always a checkpoint; cancelling loses nothing.

        Raises:
            LlmError: STREAM_CLOSED, if the server closed the socket, or INVALID_REQUEST, as the request is
                too large for it; TRANSPORT, if the connection broke or carries no frames;
                MALFORMED_RESPONSE, for a message that is too large or not UTF-8.
        """
        if self._messages or self._end is not None or self._closed:
            await trio.lowlevel.checkpoint()
        while not self._messages:
            self._check_open()
            await self._changed.park()
        messages, self._messages, self._backlog = self._messages, [], 0
        self._changed.unpark_all()
        return messages

    def _check_open(self) -> None:
        if self._end is not None:
            raise LlmError.of(self._end.failure) from self._end.__cause__
        if self._closed:
            raise LlmError(f"{self._peer}: the WebSocket is closed", codes.TRANSPORT)

    async def _run(
        self,
        host: str,
        resource: str,
        headers: Sequence[tuple[bytes, bytes]],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Shake hands, then take messages in until either side closes.

        Raises:
            LlmError: the handshake failed; see :meth:`WebSocketClient.connect`.
        """
        from trio_websocket import wrap_client_stream

        fault: Exception | None = None
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    self._socket = await wrap_client_stream(
                        nursery,
                        cast(trio.SocketStream, self._stream),
                        host,
                        resource,
                        extra_headers=list(headers),
                        message_queue_size=QUEUED_MESSAGES,
                        max_message_size=self._max_message_size,
                        receive_buffer_size=READ_SIZE,
                    )
                    self._stream.opened = True
                    shaken = {
                        name.decode("latin-1"): value.decode("latin-1")
                        for name, value in self._socket.handshake_headers
                    }
                    self.request_id = find_request_id(shaken)
                    task_status.started()
                    await self._take_in()
                    nursery.cancel_scope.cancel()
        except* Exception as group:
            fault = _leaf(group)
        finally:
            self.close()
        if not self._stream.opened:
            raise refusal_of(self._peer, self._stream.head, fault, self._secrets)
        if fault is not None and self._end is None:
            self._end = LlmError(f"{self._peer}: the WebSocket broke: {fault}", codes.TRANSPORT)
            self._end.__cause__ = fault

    async def _take_in(self) -> None:
        from trio_websocket import ConnectionClosed

        assert self._socket is not None
        while True:
            try:
                message = await self._socket.get_message()
            except ConnectionClosed as error:
                self._end = self._end_of(error.reason)
                self._end.__cause__ = error
                return
            if self._resting:
                return
            data = message.encode("utf-8") if isinstance(message, str) else message
            self._messages.append(data)
            self._backlog += len(data)
            self._changed.unpark_all()
            while self._backlog > BACKLOG:
                await self._changed.park()

    def _end_of(self, reason: CloseReason | None) -> LlmError:
        """Why the socket is closed, as an error."""
        code = _ABNORMAL if reason is None else reason.code
        said = (reason.reason if reason is not None else None) or ""
        if code == _ABNORMAL:
            return LlmError(f"{self._peer}: the WebSocket connection broke", codes.TRANSPORT)
        if not self._closed_by_server():
            if code == _TOO_BIG:
                said = f"a message is larger than the limit of {self._max_message_size} bytes"
            broken = code not in (_TOO_BIG, _NO_TEXT)
            return LlmError(f"{self._peer}: {said}", codes.TRANSPORT if broken else codes.MALFORMED_RESPONSE)
        if code == _TOO_BIG:
            return LlmError(
                f"{self._peer}: the request is too large for the server: {said}".rstrip(": "),
                codes.INVALID_REQUEST,
            )
        return LlmError(
            f"{self._peer}: the server closed the WebSocket with code {code}: {said}".rstrip(": "),
            codes.STREAM_CLOSED,
        )

    def _closed_by_server(self) -> bool:
        """Whether the code is the server's own: trio-websocket has one too for what it cannot read.

        It tells neither from the other; wsproto, under it, is done with a connection only after a frame
        that closes.
        """
        from wsproto.connection import ConnectionState

        assert self._socket is not None
        return self._socket._wsproto.state is ConnectionState.CLOSED


class WebSocketClient:
    """Opens WebSockets.

    Args:
        identity: who asks; attribution can be replaced, not switched off.
        ssl_context: for https; by default certificates are verified as httpx does.
        max_message_size: the largest message taken, in characters or bytes.
    """

    def __init__(
        self,
        *,
        identity: AppIdentity = APP_IDENTITY,
        ssl_context: ssl.SSLContext | None = None,
        max_message_size: int = MAX_MESSAGE_SIZE,
    ) -> None:
        self._attribution = tuple(attribution_headers(identity).items())
        self._ssl_context = ssl_context
        self._max_message_size = max_message_size
        self._proxies: EnvironmentProxies | None = None

    async def connect(
        self,
        nursery: trio.Nursery,
        url: str,
        *,
        headers: Sequence[tuple[str, str]] = (),
        watcher: CallWatcher = UNWATCHED,
        max_message_size: int | None = None,
        secrets: Sequence[str] = (),
    ) -> WebSocket:
        """Open a WebSocket that lives in a task of ``nursery``. Cancelling closes the connection.

        Args:
            url: http or https, as the endpoint is known by (ws and wss are the same).
            headers: sent with the upgrade; ``user-agent`` is set here, whatever they say.
            secrets: blacked out where the answer to the upgrade repeats one.

        Raises:
            UpgradeRefused: the server answered with a response, whose facts the failure holds; or a SOCKS
                proxy lies between.
            LlmError: TRANSPORT, if there is no connection or no answer; INVALID_CONFIG, INVALID_CREDENTIAL,
                INVALID_BASE_URL as for a request over HTTP.
        """
        parts = urlsplit(url)
        scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
        if scheme not in _PORTS or not parts.hostname:
            raise LlmError(
                "a WebSocket's URL is not an http or https URL with a host", codes.INVALID_BASE_URL
            )
        sent = [*checked_headers(headers), *self._attribution]
        route = self._route(Endpoint(scheme, parts.hostname, parts.port or _PORTS[scheme]), parts.port)
        watcher.connecting()
        user_agent = dict(self._attribution)["user-agent"].encode("ascii")
        try:
            connection = await connect(route, self._context() if route.secure else None, user_agent)
        except WireError as error:
            raise LlmError(f"{route}: {error}", codes.TRANSPORT) from error
        socket = WebSocket(
            connection,
            watcher,
            str(route),
            self._max_message_size if max_message_size is None else max_message_size,
            secrets,
        )
        try:
            await nursery.start(
                socket._run,
                parts.netloc.rpartition("@")[2],
                (parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
                [(name.encode("ascii"), value.encode("ascii")) for name, value in sent],
                name="websocket",
            )
        except BaseException:
            socket.close()
            watcher.socket_closed()
            raise
        watcher.connected()
        return socket

    def _route(self, target: Endpoint, port: int | None) -> Route:
        if self._proxies is None:
            self._proxies = EnvironmentProxies(httpx)
        proxy = self._proxies.proxy_for(target.scheme, target.host, port)
        if isinstance(proxy, SocksProxy):
            raise UpgradeRefused("WebSockets are not spoken through a SOCKS proxy", codes.TRANSPORT)
        return Route(target, proxy)

    def _context(self) -> ssl.SSLContext:
        if self._ssl_context is None:
            self._ssl_context = default_ssl_context(httpx)
        return self._ssl_context


def _leaf(error: BaseException) -> Exception:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return cast(Exception, error)
