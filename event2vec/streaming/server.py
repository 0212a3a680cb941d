"""The live page: one port serves the page and a stream of frames, only to the browsers that it is meant for.

The server has a thread of its own. It looks at the ring as the network does, and a browser gets the newest frame only
when it has drawn the one before: a slow browser does not slow down anything else. A request is answered only if its
Host names this server in a way that no stranger's page can, and a stream is only for a page that came from here.
"""

import asyncio
import contextlib
import json
import logging
import secrets
import time
from http import HTTPStatus
from threading import Event, Thread
from types import TracebackType
from typing import TYPE_CHECKING, Any

from event2vec.errors import Event2VecError, MissingExtra
from event2vec.evaluation.figures.attention_maps import has_attention_to_draw
from event2vec.machine.ports import parse_address
from event2vec.model.classifier import Classifier
from event2vec.names import excerpt, printable
from event2vec.streaming import Live
from event2vec.streaming.answers import Answer
from event2vec.streaming.dropped import LARGEST_FILE, Limit, answer_recording, receive_recording
from event2vec.streaming.frames import AttentionViewer, newest_events, pack_frame
from event2vec.streaming.live_page import is_own_host, live_page, page_headers

if TYPE_CHECKING:
    from websockets.asyncio.server import Server, ServerConnection
    from websockets.http11 import Request, Response

FRAMES = 30  # a second, at most
ATTENTION_EVERY = 0.2  # seconds between two pictures of attention
MOST_PAGES = 8  # streams at once
LARGEST_MESSAGE = 1 << 19  # bytes that a browser may send at once
LONGEST_READING = 30.0  # seconds for a dropped recording


class Page:
    """What one browser has seen."""

    def __init__(self) -> None:
        self.drawn = asyncio.Event()
        self.drawn.set()
        self.attention = False
        self.since = 0  # microseconds on the stream's clock
        self.answered = 0  # the number of the last answer that was sent
        self.pictured = 0.0  # when attention was sent last


class PageServer:
    """Serves the page of a stream until it is closed.

    with PageServer(stream, ":8765") as page:
        for answer in stream:
            page.publish(answer)
    """

    def __init__(self, stream: Live, address: str) -> None:
        try:
            import websockets  # noqa: F401
        except ImportError:
            raise MissingExtra("the live page", "live") from None
        self.stream = stream
        self.host, self.port = parse_address(address)
        self.drawing = 0.0  # seconds that the last frame took
        self._answer: tuple[int, dict[str, Any]] = (0, {})
        self._notices: list[str] = []
        self._pages = 0
        self._problem: OSError | None = None
        self._viewer: AttentionViewer | None = None
        self._reading = asyncio.Lock()
        self._closing = Event()
        self._ready, self._loop = Event(), asyncio.new_event_loop()
        self._thread = Thread(target=self._run, daemon=True, name="event2vec page")
        self._thread.start()
        self._ready.wait()
        if self._problem is not None:
            reason = self._problem.strerror or str(self._problem)
            raise Event2VecError(
                f"cannot serve at {self.host}:{self.port}: {excerpt(reason, 120)}. Is the port in use?"
            )

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def publish(self, answer: Answer) -> None:
        """Show this answer; pages that have not yet seen the one before never will."""
        self._answer = (self._answer[0] + 1, answer.facts())
        if answer.notices:
            self._notices = [*self._notices, *answer.notices][-5:]

    def close(self) -> None:
        self._closing.set()
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    def __enter__(self) -> "PageServer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except OSError as error:
            self._problem = error
        finally:
            self._ready.set()
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    async def _serve(self) -> None:
        from websockets.asyncio.server import serve

        self._stop = asyncio.Event()
        async with serve(
            self._handle,
            self.host,
            self.port,
            process_request=self._check,
            compression=None,
            max_size=LARGEST_MESSAGE,
            max_queue=4,
            server_header=None,
            open_timeout=5,
            close_timeout=1,
            logger=_silent(),
        ) as server:
            self.port = _port_of(server)
            self._ready.set()
            await self._stop.wait()

    # Requests

    def _check(self, connection: "ServerConnection", request: "Request") -> "Response | None":
        """The page for /, a stream for /live and /recording, and a refusal for all else."""
        hosts, origins = request.headers.get_all("Host"), request.headers.get_all("Origin")
        if len(hosts) != 1 or not is_own_host(hosts[0], self.host, self.port):
            return connection.respond(HTTPStatus.FORBIDDEN, "This server has another name.\n")
        if getattr(request, "method", "GET") != "GET":  # older versions of websockets refuse others themselves
            return connection.respond(HTTPStatus.METHOD_NOT_ALLOWED, "This server accepts GET requests only.\n")
        if request.path == "/":
            return self._page(connection)
        if request.path not in ("/live", "/recording"):
            return connection.respond(HTTPStatus.NOT_FOUND, "There is only one page here, at /.\n")
        if origins != [f"http://{hosts[0]}"]:
            return connection.respond(HTTPStatus.FORBIDDEN, "Streams are for the page of this server.\n")
        if self._pages >= MOST_PAGES:
            return connection.respond(HTTPStatus.SERVICE_UNAVAILABLE, "Too many pages are open.\n")
        return None

    def _page(self, connection: "ServerConnection") -> "Response":
        nonce = secrets.token_urlsafe(16)
        response = connection.respond(HTTPStatus.OK, live_page(nonce))
        del response.headers["Content-Type"]
        response.headers.update(page_headers(nonce))
        return response

    async def _handle(self, connection: "ServerConnection") -> None:
        from websockets.exceptions import ConnectionClosed

        self._pages += 1
        try:
            with contextlib.suppress(ConnectionClosed):
                assert connection.request is not None
                if connection.request.path == "/live":
                    await self._stream(connection)
                else:
                    await self._answer_recording(connection)
        finally:
            self._pages -= 1

    # Frames

    async def _stream(self, connection: "ServerConnection") -> None:
        page = Page()
        await connection.send(json.dumps(self._hello()))
        listening = asyncio.create_task(self._listen(connection, page))
        try:
            while not listening.done():
                began = time.monotonic()
                waiting = asyncio.create_task(page.drawn.wait())
                await asyncio.wait([waiting, listening], return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                if page.drawn.is_set() and not listening.done():
                    page.drawn.clear()
                    await connection.send(await self._frame(page))
                await asyncio.sleep(max(0.0, 1 / FRAMES - (time.monotonic() - began)))
        finally:
            listening.cancel()

    def _hello(self) -> dict[str, Any]:
        stream, model = self.stream, self.stream.model
        return {
            "names": [printable(name) for name in stream.class_names],
            "width": stream.source.sensor.width,
            "height": stream.source.sensor.height,
            "window": stream.window,
            "largest": LARGEST_FILE,
            "attention": has_attention_to_draw(model),
            "about": f"{model.reads} of the newest window, every {1e3 * stream.every:g} ms",
        }

    async def _listen(self, connection: "ServerConnection", page: Page) -> None:
        """What the browser says: that it has drawn a frame, or what its user chose. Anything else ends the stream."""
        async for message in connection:
            try:
                wish = json.loads(message) if isinstance(message, str) and len(message) < 200 else None
                self._heed(wish, page)
            except (ValueError, TypeError, RecursionError):
                await connection.close(1008, "not understood")

    def _heed(self, wish: Any, page: Page) -> None:
        if not isinstance(wish, dict) or not wish.keys() <= {"drawn", "attention", "window"}:
            raise TypeError
        if "drawn" in wish:
            page.drawn.set()
        if "attention" in wish:
            page.attention = wish["attention"] is True
        if isinstance(wish.get("window"), int | float):
            with contextlib.suppress(Event2VecError):  # the page shows the window that is in use
                self.stream.window = float(wish["window"])

    async def _frame(self, page: Page) -> bytes:
        if page.attention:
            await asyncio.sleep(max(0.0, page.pictured + ATTENTION_EVERY - time.monotonic()))
            page.pictured = time.monotonic()
        began = time.perf_counter()
        now, read = self.stream.reader.now(time.monotonic()), self.stream.newest
        number, answer = self._answer
        head: dict[str, Any] = {"frame": number, "window": self.stream.window}
        if number != page.answered:
            head["answer"] = {**answer, "notices": self._notices}
            page.answered = number
        if page.attention and read is not None:
            columns = await asyncio.to_thread(self._look, read.tokens)
        else:
            columns = newest_events(self.stream.reader.ring, page.since, now)
        newest = self.stream.reader.newest
        page.since = now if newest is None else newest[0]
        frame = pack_frame(head, columns)
        self.drawing = time.perf_counter() - began
        return frame

    def _look(self, tokens: Any) -> tuple[Any, ...]:
        if self._viewer is None:
            assert isinstance(self.stream.model, Classifier)  # only these have attention to draw
            self._viewer = AttentionViewer(self.stream.model, self.stream.source.sensor)
        return self._viewer(tokens)

    # Dropped recordings

    async def _answer_recording(self, connection: "ServerConnection") -> None:
        model, limit = self.stream.model, Limit(LONGEST_READING, self._closing)
        try:
            async with asyncio.timeout(LONGEST_READING) as waiting:
                name, data = await receive_recording(connection)
                async with self._reading:  # one at a time, until its thread has ended
                    waiting.reschedule(None)
                    found = await asyncio.to_thread(answer_recording, model, name, data, self.stream.window, limit)
        except TimeoutError:
            found = {"error": f"It took more than {LONGEST_READING:g} seconds. Use 'event2vec predict' for it."}
        except Event2VecError as error:
            found = {"error": str(error)}
        await connection.send(json.dumps(found))


def _port_of(server: "Server") -> int:
    """The real port: 0 asks for any that is free."""
    return int(next(iter(server.sockets)).getsockname()[1])


def _silent() -> logging.Logger:
    """Bad requests are refused, and not worth a line in our terminal."""
    logger = logging.Logger("event2vec.websockets")
    logger.addHandler(logging.NullHandler())
    return logger
