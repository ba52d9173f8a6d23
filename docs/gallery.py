"""The loops of the gallery from videos of runs: ``python docs/gallery.py runs NAME...`` after its commands."""

import sys
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent / "gallery"
FPS, WIDTH, MOST = 12.0, 360, 4.0  # pictures a second, pixels, seconds
QUALITY = 45  # of WebP, 0 to 100
SLOW = {"drape": 3.0, "fold": 2.0}  # times; drape is filmed with film.FPS = 60 and --duration 0.9
# push is world 0 alone of --goals 2 --timestep 0.01 --iterations 6, 640 pixels wide, 15 pictures a second.
NARROW = {"hourglass": 200}  # pixels
HERO = ("play-ant", "dam-break", "drape", "jelly")


def loop(video: Path, slow: float = 1.0, width: int = WIDTH) -> list[Any]:
    """Pictures of a video for the loop, of at most four seconds."""
    import imageio.v3 as imageio
    from PIL import Image

    rate = imageio.immeta(video, plugin="FFMPEG")["fps"]
    pictures = imageio.imread(video, plugin="FFMPEG")
    shown = pictures[np.arange(0, len(pictures), rate / FPS / slow).astype(int)][: round(FPS * MOST)]
    height = round(shown.shape[1] * width / shown.shape[2] / 2) * 2
    return [Image.fromarray(p).resize((width, height), Image.Resampling.LANCZOS) for p in shown]


def newest(runs: Path, name: str) -> Path:
    """The video of the newest run; "play-ant" is what `fphys play ant` filmed."""
    _, _, policy = name.partition("play-")
    found = sorted(runs.glob(f"play/*/*{policy.capitalize()}*.mp4" if policy else f"{name}/*/{name}.mp4"))
    if not found:
        raise FileNotFoundError(f"{runs} has no video of {name}: run the command of docs/gallery.md first")
    return found[-1]


def save(pictures: list[Any], path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    rest = {"save_all": True, "append_images": pictures[1:], "duration": round(1000 / FPS), "loop": 0}
    pictures[0].save(path, quality=QUALITY, method=6, **rest)
    print(f"{path.name}: {len(pictures)} pictures, {path.stat().st_size // 1024} KiB")


def hero(height: int = 160, width: int = 240) -> None:
    """Four loops side by side, the middle of each; those that are shorter wait at their end."""
    from PIL import Image, ImageSequence

    parts = []
    for name in HERO:
        with Image.open(HERE / f"{name}.webp") as made:
            scale = max(height / made.height, width / made.width)
            size = round(made.width * scale), round(made.height * scale)
            parts.append([p.convert("RGB").resize(size) for p in ImageSequence.Iterator(made)])
    pictures = []
    for k in range(max(map(len, parts))):
        page = Image.new("RGB", (width * len(parts), height))
        for i, part in enumerate(parts):
            one = part[min(k, len(part) - 1)]
            left, top = (one.width - width) // 2, (one.height - height) // 2
            page.paste(one.crop((left, top, left + width, top + height)), (width * i, 0))
        pictures.append(page)
    save(pictures, HERE / "hero.webp")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    for wanted in sys.argv[2:]:
        width = NARROW.get(wanted, WIDTH)
        save(loop(newest(folder, wanted), SLOW.get(wanted, 1.0), width), HERE / f"{wanted}.webp")
    hero()
