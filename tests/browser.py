"""A page in a real browser, without a display.

``python browser.py URL PNG look RED GREEN BLUE``: whether the colour appears; a screenshot.
``python browser.py URL PNG uploads BYTES``: how often a second data of this size reach the graphics card, such as all
positions of a point cloud. Printed. A page that nobody looks at is drawn once a second.
``python browser.py URL PNG drag RED GREEN BLUE``: drag the thing of this colour upwards, Shift held, and do not let go.
``python browser.py URL PNG page WIDTH``: a screenshot of a whole page of this width, and whether it fits the width.
"""

import os
import sys
from collections.abc import Callable
from typing import Any

os.environ |= {
    "QT_QPA_PLATFORM": "offscreen",
    "QTWEBENGINE_DISABLE_SANDBOX": "1",
    "QTWEBENGINE_CHROMIUM_FLAGS": "--use-gl=angle --use-angle=swiftshader --enable-unsafe-swiftshader",
}

import numpy as np
from PyQt6.QtCore import QPoint, QPointF, Qt, QTimer, QUrl
from PyQt6.QtGui import QImage, QMouseEvent
from PyQt6.QtWebEngineCore import QWebEngineScript
from PyQt6.QtWebEngineWidgets import QWebEngineView
from PyQt6.QtWidgets import QApplication

ENOUGH, ATTEMPTS = 100, 90  # pixels of the colour, seconds
NOTES = 25  # columns at the left, in which viser's notes have an orange bar
SLOW = 3  # s, in which a page has answered the mouse
WATCHED = 8  # s, for which uploads are counted; Chromium draws a page that nobody looks at once a second
COUNT = """
window.uploads = {};
for (const kind of [WebGLRenderingContext, WebGL2RenderingContext])
  for (const name of ["bufferData", "bufferSubData"]) {
    const own = kind.prototype[name];
    kind.prototype[name] = function (...given) {
      for (const data of given)
        if (data && data.byteLength) window.uploads[data.byteLength] = (window.uploads[data.byteLength] || 0) + 1;
      return own.apply(this, given);
    };
  }
"""


class Browser:
    """One page, and the picture of it."""

    def __init__(self, url: str, width: int = 800, height: int = 600, script: str = "") -> None:
        self.app = QApplication(sys.argv[:1])
        self.view = QWebEngineView()
        self.view.resize(width, height)
        if script:
            first = QWebEngineScript()
            first.setSourceCode(script)
            first.setInjectionPoint(QWebEngineScript.InjectionPoint.DocumentCreation)
            first.setWorldId(QWebEngineScript.ScriptWorldId.MainWorld)
            self.view.page().scripts().insert(first)
        self.view.show()
        self.view.load(QUrl(url))

    def pixels(self, path: str) -> np.ndarray:
        """The picture, also saved: int (height, width, 3)."""
        picture = self.view.grab()
        picture.save(path)
        image = picture.toImage().convertToFormat(QImage.Format.Format_RGB888)
        rows = np.frombuffer(image.bits().asarray(image.sizeInBytes()), np.uint8).reshape(image.height(), -1)
        return rows[:, : 3 * image.width()].reshape(image.height(), image.width(), 3).astype(int)

    def after(self, seconds: float, then: Callable[[], Any]) -> None:
        QTimer.singleShot(round(1000 * seconds), then)

    def ask(self, script: str, then: Callable[[Any], Any]) -> None:
        self.view.page().runJavaScript(script, then)

    def mouse(self, kind: Any, place: QPoint, shift: bool = True) -> None:
        """The left button on the page."""
        button = Qt.MouseButton.NoButton if kind == QMouseEvent.Type.MouseMove else Qt.MouseButton.LeftButton
        down = Qt.MouseButton.NoButton if kind == QMouseEvent.Type.MouseButtonRelease else Qt.MouseButton.LeftButton
        keys = Qt.KeyboardModifier.ShiftModifier if shift else Qt.KeyboardModifier.NoModifier
        target, at = self.view.focusProxy(), QPointF(place)
        QApplication.sendEvent(target, QMouseEvent(kind, at, at, button, down, keys))


def colored(image: np.ndarray, color: tuple[int, ...]) -> np.ndarray:
    found = np.abs(image - color).max(-1) < 60
    found[:, :NOTES] = False
    return found


def until(
    browser: Browser, path: str, color: tuple[int, ...], then: Callable[[bool], Any], left: int = ATTEMPTS
) -> None:
    """Look once a second whether the colour is there."""
    found = bool(colored(browser.pixels(path), color).sum() >= ENOUGH)
    if found or not left:
        then(found)
    else:
        browser.after(1, lambda: until(browser, path, color, then, left - 1))


def look(url: str, path: str, *color: int) -> bool:
    browser, seen = Browser(url), list[bool]()
    browser.after(1, lambda: until(browser, path, color, lambda found: (seen.append(found), browser.app.quit())))
    browser.app.exec()
    return seen[-1]


def uploads(url: str, path: str, size: int) -> bool:
    """Uploads a second, counted from the first one on."""
    browser, counted = Browser(url, script=COUNT), list[int]()
    key = f"window.uploads[{size}] || 0"

    def begun(count: int, left: int = ATTEMPTS) -> None:
        if count > 3:
            browser.after(2, lambda: browser.ask(key, first))  # what came while the page was made is not counted
        elif left:
            browser.after(1, lambda: browser.ask(key, lambda again: begun(again, left - 1)))
        else:
            browser.app.quit()

    def first(count: int) -> None:
        counted.append(count)
        browser.after(WATCHED, lambda: browser.ask(key, last))

    def last(count: int) -> None:
        counted.append(count)
        browser.pixels(path)
        browser.app.quit()

    begun(0)
    browser.app.exec()
    if len(counted) == 2:
        print((counted[1] - counted[0]) / WATCHED)
    return len(counted) == 2


def drag(url: str, path: str, *color: int) -> bool:
    browser, seen = Browser(url), list[bool]()
    kinds = QMouseEvent.Type

    def grab(found: bool) -> None:
        seen.append(found)
        if not found:
            return browser.app.quit()
        i, j = np.argwhere(colored(browser.pixels(path), color)).mean(0).astype(int)
        browser.mouse(kinds.MouseMove, QPoint(j, i))
        browser.after(SLOW, lambda: browser.mouse(kinds.MouseButtonPress, QPoint(j, i)))
        for k in range(1, 11):
            browser.after((2 + k / 5) * SLOW, lambda k=k: browser.mouse(kinds.MouseMove, QPoint(j, i - 12 * k)))
        browser.after(6 * SLOW, lambda: (browser.pixels(path), browser.app.quit()))

    browser.after(1, lambda: until(browser, path, color, grab))
    browser.app.exec()
    return seen[-1]


def page(url: str, path: str, width: int) -> bool:
    """Whether nothing is wider than the page."""
    browser, sizes = Browser(url, width, 900), list[list[int]]()
    size = "const d = document.documentElement; [d.scrollWidth, d.scrollHeight]"

    def sized(found: list[int]) -> None:
        sizes.append(found)
        browser.view.resize(width, min(found[1], 6000))
        browser.after(1.5, lambda: (browser.pixels(path), browser.app.quit()))

    browser.view.loadFinished.connect(lambda good: browser.after(1.5, lambda: browser.ask(size, sized)))
    browser.app.exec()
    return sizes[0][0] <= width


if __name__ == "__main__":
    task = {"look": look, "uploads": uploads, "drag": drag, "page": page}[sys.argv[3]]
    sys.exit(not task(sys.argv[1], sys.argv[2], *map(int, sys.argv[4:])))
