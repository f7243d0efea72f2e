"""A real Chromium for the page tests, spoken to over its debugging pipe: no driver, no port, no network.

The browser reads commands from file descriptor 3 and writes answers and events to 4, as JSON ended by a zero byte
(the DevTools protocol). Everything waits for a condition; the limit is generous because machines are slow.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from waiting import HANGS

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--force-device-scale-factor=1", "--remote-debugging-pipe",
]  # fmt: skip

# the browser wants its pipe at 3 and 4: put it there, then become the browser
TRAMPOLINE = """
import os, sys
read, write = int(sys.argv[1]), int(sys.argv[2])
high = [os.dup(read), os.dup(write)]
while min(high) < 5:
    high = [os.dup(fd) for fd in high]
os.dup2(high[0], 3), os.dup2(high[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find_chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class PageError(AssertionError):
    """What the page, or the protocol, refused."""


class Browser:
    """One tab of one browser; `events` gathers everything it reports."""

    def __init__(self, process: subprocess.Popen[bytes], read: int, write: int) -> None:
        self.process, self._read, self._write = process, read, write
        self._buffer = b""
        self._number = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None and not method.startswith("Browser."):
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        end = time.monotonic() + HANGS
        while self._number not in self._answers:
            self._receive(end)
        answer = self._answers.pop(self._number)
        if "error" in answer:
            raise PageError(method, answer["error"])
        result: dict[str, Any] = answer["result"]
        return result

    def _receive(self, end: float) -> None:
        left = end - time.monotonic()
        assert left > 0 and select.select([self._read], [], [], left)[0], "the browser does not answer"
        piece = os.read(self._read, 1 << 20)
        assert piece, "the browser has gone"
        *whole, self._buffer = (self._buffer + piece).split(b"\0")
        for text in whole:
            message = json.loads(text)
            if "id" in message:
                self._answers[message["id"]] = message
            else:
                self.events.append(message)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page; what it throws is an error here."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise PageError(expression, answer["exceptionDetails"])
        return answer["result"].get("value")

    def wait(self, expression: str) -> Any:
        """Wait until an expression is true in the page; between two pages there is none to ask."""
        end = time.monotonic() + HANGS
        last: Any = None
        while time.monotonic() < end:
            try:
                if last := self.evaluate(expression):
                    return last
            except PageError as e:
                last = e
            time.sleep(0.02)
        raise AssertionError(f"never true: {expression} (last: {last!r})")

    def open(self, path: Path) -> None:
        """Load a page afresh, away from the pointer, and forget what earlier ones reported."""
        self.move(1, 1)
        self.call("Page.navigate", url="about:blank")
        self.wait("location.href === 'about:blank' && document.readyState === 'complete'")
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        self.wait(f"location.href === {json.dumps(path.as_uri())} && document.readyState === 'complete'")

    def resize(self, width: int, height: int, scale: float = 1, mobile: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=mobile
        )

    def prefer(self, **features: str) -> None:
        """Media features as the system would report them, such as prefers_color_scheme="dark"."""
        listed = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.call("Emulation.setEmulatedMedia", features=listed)

    def press(self, key: str, *, shift: bool = False) -> None:
        """A key as a person presses it: down, what it types, up."""
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        common = {"key": key, "modifiers": 8 if shift else 0, "windowsVirtualKeyCode": VIRTUAL_KEYS.get(key, 0)}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def click(self, x: float, y: float, *, shift: bool = False) -> None:
        self.move(x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1,
                modifiers=8 if shift else 0,
            )  # fmt: skip

    def move(self, x: float, y: float, *, pressed: bool = False) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y, button="left" if pressed else "none")

    def screenshot(self) -> bytes:
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def complaints(self) -> list[str]:
        """Errors and warnings of the console, exceptions, and refusals of the security policy."""
        self.evaluate("0")  # what was reported before this answer is here now
        kinds = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [json.dumps(e["params"]) for e in self.events if e["method"] in kinds]

    def requests(self) -> list[str]:
        """Everything the page asked for, itself included."""
        self.evaluate("0")
        return [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]


VIRTUAL_KEYS = {
    "Enter": 13, "Escape": 27, " ": 32, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39,
    "ArrowDown": 40,
}  # fmt: skip


@contextmanager
def open_browser(chromium: str, profile: Path) -> Iterator[Browser]:
    """Start a browser with a profile of its own, and see it end. One that does not come up gets a second try."""
    with ExitStack() as running:
        try:
            browser = running.enter_context(_started(chromium, profile))
        except (AssertionError, OSError):
            browser = running.enter_context(_started(chromium, profile.with_name(profile.name + "-again")))
        yield browser
        with suppress(AssertionError, OSError):
            browser.call("Browser.close")


@contextmanager
def _started(chromium: str, profile: Path) -> Iterator[Browser]:
    read_there, write_here = os.pipe()
    read_here, write_there = os.pipe()
    with open(profile.with_suffix(".log"), "wb") as log:
        process = subprocess.Popen(
            [
                sys.executable, "-c", TRAMPOLINE, str(read_there), str(write_there),
                chromium, *FLAGS, f"--user-data-dir={profile}",
            ],
            pass_fds=(read_there, write_there), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
    os.close(read_there)
    os.close(write_there)
    try:
        yield Browser(process, read_here, write_here)
    finally:
        os.close(write_here)  # a browser that is still there leaves when its pipe does
        os.close(read_here)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
