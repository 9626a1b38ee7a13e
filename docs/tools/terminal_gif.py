"""Films a command in a terminal of its own: how the pictures of the live view were made.

pip install pyte pillow
python docs/tools/terminal_gif.py docs/images/train.gif --rows=16 -- \
    actor-learner train --gin_file=dqn_cartpole --seed=1
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pathlib
import pty
import select
import struct
import termios
import time

import matplotlib
import pyte
from PIL import Image, ImageDraw, ImageFont

_FONTS = pathlib.Path(matplotlib.get_data_path()) / "fonts" / "ttf"
_SIZE = 13
_BACKGROUND, _FOREGROUND = (30, 33, 41), (214, 218, 226)
_COLORS = {
    "black": (90, 96, 110), "red": (240, 113, 120), "green": (152, 195, 121),
    "brown": (229, 192, 123), "blue": (97, 175, 239), "magenta": (198, 120, 221),
    "cyan": (86, 182, 194), "white": _FOREGROUND, "default": _FOREGROUND,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--columns", type=int, default=96)
    parser.add_argument("--rows", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=0.5, help="between two frames")
    parser.add_argument("--speed", type=float, default=2.0)
    parser.add_argument("--hold", type=float, default=4.0, help="seconds of the last frame")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    screens = _film(options.command, options.columns, options.rows, options.seconds)
    frames, durations = [], []
    for screen in screens:
        frame = _draw(screen, options.columns, options.rows)
        if frames and frame.tobytes() == frames[-1].tobytes():
            durations[-1] += options.seconds / options.speed
            continue
        frames.append(frame)
        durations.append(options.seconds / options.speed)
    durations = [min(seconds, 1.0) for seconds in durations[:-1]] + [options.hold]
    palette = frames[-1].quantize(32)
    frames = [frame.quantize(32, palette=palette, dither=Image.Dither.NONE) for frame in frames]
    frames[0].save(
        options.out,
        save_all=True,
        append_images=frames[1:],
        duration=[int(1000 * seconds) for seconds in durations],
        loop=0,
        optimize=True,
    )
    print(f"{options.out}: {len(frames)} frames, {os.path.getsize(options.out):,} bytes")


def _film(command: list[str], columns: int, rows: int, seconds: float) -> list[list[list]]:
    """What the terminal shows every `seconds`, as rows of (character, colour, bold)."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(columns), LINES=str(rows))
        os.execvp(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    screen = pyte.Screen(columns, rows)
    stream = pyte.ByteStream(screen)
    stream.feed(f"$ {' '.join(command)}\r\n".encode())
    screens, due = [], time.monotonic()
    while True:
        ready, _, _ = select.select([terminal], [], [], 0.05)
        if ready:
            try:
                data = os.read(terminal, 65536)
            except OSError:
                break
            if not data:
                break
            stream.feed(data)
        if time.monotonic() >= due:
            due += seconds
            screens.append(_copy(screen))
    os.waitpid(pid, 0)
    return [*screens, _copy(screen)]


def _copy(screen: pyte.Screen) -> list[list]:
    return [
        [(cell.data, cell.fg, cell.bold) for cell in (row[x] for x in range(screen.columns))]
        for row in (screen.buffer[y] for y in range(screen.lines))
    ]


def _draw(screen: list[list], columns: int, rows: int) -> Image.Image:
    plain = ImageFont.truetype(str(_FONTS / "DejaVuSansMono.ttf"), _SIZE)
    bold = ImageFont.truetype(str(_FONTS / "DejaVuSansMono-Bold.ttf"), _SIZE)
    width, height = plain.getlength("m"), round(_SIZE * 1.3)
    image = Image.new("RGB", (round(columns * width) + 20, rows * height + 20), _BACKGROUND)
    draw = ImageDraw.Draw(image)
    for y, row in enumerate(screen):
        for x, (character, color, is_bold) in enumerate(row):
            if character.strip():
                fill = _COLORS.get(color) or _hex(color)
                font = bold if is_bold else plain
                draw.text((10 + x * width, 10 + y * height), character, fill, font)
    return image


def _hex(color: str) -> tuple[int, ...]:
    try:
        return tuple(int(color[i : i + 2], 16) for i in (0, 2, 4))
    except ValueError:
        return _FOREGROUND


if __name__ == "__main__":
    main()
