"""A headless Chromium that tests steer by its debugging protocol."""

import asyncio
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.controlplane.waits import eventually
from tests.packages import program_or_skip

NAMES = ("chromium", "chromium-browser", "google-chrome")


class Browser:
    def __init__(self, port: str) -> None:
        self._url = f"http://127.0.0.1:{port}/json/list"

    def open(self, url: str) -> None:
        self._send("Page.navigate", url=url)

    def ask(self, expression: str) -> Any:
        """The value of an expression of JavaScript on the page."""
        return self._send("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def _send(self, method: str, **params: Any) -> Any:
        return asyncio.run(self._answer({"id": 1, "method": method, "params": params}))

    async def _answer(self, call: dict[str, Any]) -> Any:
        async with aiohttp.ClientSession() as session:
            async with session.get(self._url) as answer:
                [page] = [each for each in await answer.json() if each["type"] == "page"]
            async with session.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                await socket.send_json(call)
                while (found := await socket.receive_json()).get("id") != call["id"]:
                    pass
                return found["result"]


@contextmanager
def running_browser(directory: Path) -> Iterator[Browser]:
    """Start Chromium, or skip the test and say what is missing."""
    program = next(filter(None, map(shutil.which, NAMES)), None) or str(program_or_skip("chromium", "chromium"))
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    command = [program, *flags, "--remote-debugging-port=0", f"--user-data-dir={directory}", "about:blank"]
    with (directory / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            port = directory / "DevToolsActivePort"
            eventually(lambda: port.exists() and "\n" in port.read_text(), what="the browser answers")
            browser = Browser(port.read_text().split()[0])
            eventually(lambda: b'"page"' in urllib.request.urlopen(browser._url).read(), what="the browser has a tab")
            yield browser
        finally:
            process.kill()
