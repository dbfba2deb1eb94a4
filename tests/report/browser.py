"""Headless Chromium for the tests: the few calls of the WebDriver protocol that they need."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
)
"""A browser that asks nobody for anything."""

KEYS = {"Tab": "\ue004", "Enter": "\ue007", "Escape": "\ue00c", "ArrowDown": "\ue015"}


def missing() -> str:
    """Why there is no browser here, or nothing."""
    absent = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"{' and '.join(absent)} not installed" if absent else ""


class Browser:
    """One window."""

    def __init__(self, address: str, session: str) -> None:
        self._address, self._session = address, session

    def call(self, method: str, path: str, **body: Any) -> Any:
        data = json.dumps(body).encode() if method == "POST" else None
        request = urllib.request.Request(f"{self._address}/session/{self._session}{path}", data, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def open(self, path: Path) -> None:
        self.call("POST", "/url", url=path.as_uri())

    def run(self, script: str, *arguments: Any) -> Any:
        """The value of a function body in the page."""
        return self.call("POST", "/execute/sync", script=script, args=list(arguments))

    def devtools(self, command: str, **parameters: Any) -> Any:
        return self.call("POST", "/goog/cdp/execute", cmd=command, params=parameters)

    def press(self, *keys: str) -> None:
        """Press keys, each a character or a name of `KEYS`."""
        strokes = [{"type": kind, "value": KEYS.get(key, key)} for key in keys for kind in ("keyDown", "keyUp")]
        self.call("POST", "/actions", actions=[{"type": "key", "id": "keyboard", "actions": strokes}])

    def messages(self) -> list[str]:
        """What the console said since the last call: errors, warnings, refusals of the page's policy."""
        return [entry["message"] for entry in self.call("POST", "/se/log", type="browser")]

    def picture(self) -> bytes:
        return base64.b64decode(self.call("GET", "/screenshot"))


@contextmanager
def browser(profile: Path, width: int = 1280, height: int = 1000) -> Iterator[Browser]:
    """A window of this size, in pixels, with an empty profile."""
    driver = subprocess.Popen(
        ["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert driver.stdout
    try:
        port = next(line for line in driver.stdout if "started successfully on port" in line).split()[-1].rstrip(".")
        address = f"http://127.0.0.1:{port}"
        chromium = {"args": [*FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"]}
        wanted = {"browserName": "chrome", "goog:chromeOptions": chromium, "goog:loggingPrefs": {"browser": "ALL"}}
        data = json.dumps({"capabilities": {"alwaysMatch": wanted}}).encode()
        with urllib.request.urlopen(urllib.request.Request(f"{address}/session", data), timeout=60) as answer:
            window = Browser(address, json.load(answer)["value"]["sessionId"])
        yield window
        window.call("DELETE", "")
    finally:
        driver.terminate()
        driver.wait()
