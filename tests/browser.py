"""Take a screenshot of a page once a colour appears: ``python browser.py URL PNG RED GREEN BLUE``."""

import os
import sys

os.environ |= {
    "QT_QPA_PLATFORM": "offscreen",
    "QTWEBENGINE_DISABLE_SANDBOX": "1",
    "QTWEBENGINE_CHROMIUM_FLAGS": "--use-gl=angle --use-angle=swiftshader --enable-unsafe-swiftshader",
}

import numpy as np
from PyQt6.QtCore import QTimer, QUrl
from PyQt6.QtGui import QImage
from PyQt6.QtWebEngineWidgets import QWebEngineView
from PyQt6.QtWidgets import QApplication

ENOUGH, ATTEMPTS = 100, 90  # pixels of the colour, seconds


def photograph(url: str, path: str, color: tuple[int, ...]) -> bool:
    """Whether the colour appeared. The screenshot is saved in any case."""
    app = QApplication(sys.argv)
    page = QWebEngineView()
    page.resize(800, 600)
    page.show()
    page.load(QUrl(url))
    found = []

    def look() -> None:
        picture = page.grab()
        image = picture.toImage().convertToFormat(QImage.Format.Format_RGB888)
        rows = np.frombuffer(image.bits().asarray(image.sizeInBytes()), np.uint8).reshape(image.height(), -1)
        pixels = rows[:, : 3 * image.width()].reshape(-1, 3).astype(int)
        near = (np.abs(pixels - color).max(1) < 60).sum()
        found.append(near >= ENOUGH)
        if found[-1] or len(found) == ATTEMPTS:
            picture.save(path)
            app.quit()

    timer = QTimer()
    timer.timeout.connect(look)
    timer.start(1000)
    app.exec()
    return found[-1]


if __name__ == "__main__":
    sys.exit(not photograph(sys.argv[1], sys.argv[2], tuple(map(int, sys.argv[3:]))))
