"""Makes a small GIF of the video that `actor-learner eval RUN --video out.mp4` writes.

python docs/tools/video_gif.py out.mp4 docs/images/lunarlander.gif --first=0 --last=250
"""

from __future__ import annotations

import argparse
import os

import imageio
from PIL import Image


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("video")
    parser.add_argument("out")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--last", type=int, default=300)
    parser.add_argument("--every", type=int, default=4)
    parser.add_argument("--width", type=int, default=320)
    options = parser.parse_args()
    frames = []
    for index, array in enumerate(imageio.get_reader(options.video)):
        if options.first <= index < options.last and not (index - options.first) % options.every:
            image = Image.fromarray(array)
            height = round(image.height * options.width / image.width)
            frames.append(image.resize((options.width, height), Image.Resampling.LANCZOS))
    palette = frames[len(frames) // 2].quantize(32)
    frames = [frame.quantize(32, palette=palette, dither=Image.Dither.NONE) for frame in frames]
    frames[0].save(
        options.out, save_all=True, append_images=frames[1:], duration=60, loop=0, optimize=True
    )
    print(f"{options.out}: {len(frames)} frames, {os.path.getsize(options.out):,} bytes")


if __name__ == "__main__":
    main()
