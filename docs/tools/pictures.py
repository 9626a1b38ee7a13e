"""Draws the pictures of the docs: `python docs/tools/pictures.py` writes docs/images/*.svg."""

from __future__ import annotations

import pathlib
from html import escape

IMAGES = pathlib.Path(__file__).resolve().parents[1] / "images"
BLUE, GREEN, AMBER, VIOLET, GREY = "#dbe9fb", "#dcf1e1", "#fdeecb", "#e9e0f7", "#eef0f3"
LINES = {BLUE: "#3a6fb5", GREEN: "#2f8550", AMBER: "#b07a14", VIOLET: "#7350b3", GREY: "#7b8494"}


class Picture:
    """Boxes, arrows and words on a white ground."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
            f'font-family="Helvetica, Arial, sans-serif"><title>{escape(title)}</title>',
            '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
            'markerHeight="7" orient="auto-start-reverse">'
            '<path d="M0 0L10 5L0 10z" fill="#3d4654"/></marker></defs>',
            f'<rect width="{width}" height="{height}" fill="#fff"/>',
        ]

    def box(
        self, x: float, y: float, width: float, height: float, title: str, *lines: str,
        color: str = GREY, dashed: bool = False,
    ) -> None:  # fmt: skip
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="7" fill="{color}" '
            f'stroke="{LINES[color]}" stroke-width="1.4"{dash}/>'
        )
        middle, top = x + width / 2, y + 21
        if not lines and not dashed:
            top = y + height / 2 + 5
        self.text(middle, top, title, bold=True)
        for number, line in enumerate(lines):
            self.text(middle, top + 18 * (number + 1), line, size=12)

    def arrow(self, *points: tuple[float, float], both: bool = False, dashed: bool = False) -> None:
        path = " ".join(f"{x},{y}" for x, y in points)
        start = ' marker-start="url(#tip)"' if both else ""
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(
            f'<polyline points="{path}" fill="none" stroke="#3d4654" stroke-width="1.6"{dash} '
            f'marker-end="url(#tip)"{start}/>'
        )

    def text(
        self, x: float, y: float, words: str, *, size: int = 13, bold: bool = False,
        anchor: str = "middle", color: str = "#20262f",
    ) -> None:  # fmt: skip
        weight = ' font-weight="600"' if bold else ""
        self._parts.append(
            f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" fill="{color}"'
            f"{weight}>{escape(words)}</text>"
        )

    def cell(self, x: float, y: float, color: str, words: str = "", width: float = 26) -> None:
        self._parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="20" fill="{color}" '
            f'stroke="{LINES[color]}" stroke-width="1"/>'
        )
        if words:
            self.text(x + width / 2, y + 14, words, size=11)

    def frame(self, x: float, y: float, width: float, height: float, color: str) -> None:
        self._parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="4" fill="none" '
            f'stroke="{color}" stroke-width="2.4"/>'
        )

    def save(self, name: str) -> None:
        (IMAGES / name).write_text("\n".join([*self._parts, "</svg>"]) + "\n")


def system() -> None:
    picture = Picture(820, 372, "Actors, a Reverb server and a learner")
    picture.box(20, 18, 250, 46, "Gymnasium, EnvPool, your own", color=GREY)
    picture.box(
        20,
        110,
        250,
        104,
        "Actor",
        "steps all lanes by one call,",
        "asks for their actions by one call,",
        "hands the step to its observers",
        color=BLUE,
    )
    picture.box(
        330,
        110,
        170,
        104,
        "Reverb server",
        "tables of experience:",
        "uniform, prioritized,",
        "sequences, unrolls",
        color=AMBER,
    )
    picture.box(
        560,
        110,
        240,
        104,
        "Learner",
        "many train steps in one",
        "graph call; checks that losses",
        "and gradients are finite",
        color=GREEN,
    )
    picture.box(
        560,
        270,
        240,
        84,
        "Triggers",
        "checkpoints · SavedModels ·",
        "summaries · your own",
        color=GREY,
    )
    picture.box(
        20,
        270,
        250,
        84,
        "Evaluator",
        "greedy episodes of its own;",
        "keeps the best, confirmed",
        color=VIOLET,
    )
    picture.arrow((145, 64), (145, 110))
    picture.text(153, 92, "time steps [lanes, …]", size=12, anchor="start")
    picture.arrow((270, 150), (330, 150))
    picture.text(300, 142, "items", size=12)
    picture.arrow((500, 150), (560, 150))
    picture.text(530, 142, "batches", size=12)
    picture.arrow((560, 192), (500, 192), dashed=True)
    picture.text(530, 208, "priorities", size=11)
    picture.arrow((680, 110), (680, 84), (300, 84), (300, 120), (270, 120))
    picture.text(
        490, 76, "policy, version, news: plain calls in one process, the wire between jobs", size=12
    )
    picture.arrow((680, 214), (680, 270))
    picture.arrow((600, 214), (600, 240), (210, 240), (210, 270))
    picture.text(400, 233, "policy", size=12)
    picture.arrow((270, 312), (420, 312), (420, 254), (640, 254), (640, 214), dashed=True)
    picture.text(345, 304, "scores, best policy", size=12)
    picture.save("system.svg")


def runners() -> None:
    picture = Picture(820, 420, "One experiment, three runners")
    picture.text(20, 28, "train: turns in one thread", bold=True, anchor="start", size=14)
    for turn in range(4):
        picture.box(20 + 195 * turn, 42, 90, 34, "collect", color=BLUE)
        picture.box(112 + 195 * turn, 42, 90, 34, "learn", color=GREEN)
    picture.text(
        20,
        118,
        "train with Experiment.overlap = True: two threads, a copy of the policy",
        bold=True,
        anchor="start",
        size=14,
    )
    for turn in range(5):
        picture.box(20 + 156 * turn, 132, 150, 30, "collect", color=BLUE)
        if turn:
            picture.box(20 + 156 * turn, 168, 150, 30, "learn", color=GREEN)
    picture.text(
        20, 240, "up: processes, on one machine or many", bold=True, anchor="start", size=14
    )
    for index in range(3):
        picture.box(20, 254 + 50 * index, 130, 40, f"actor-{index}", color=BLUE)
        picture.arrow((150, 274 + 50 * index), (250, 324))
    picture.box(250, 294, 130, 60, "replay-0", "Reverb", color=AMBER)
    picture.arrow((380, 324), (450, 324))
    picture.box(450, 294, 130, 60, "learner-0", "checkpoints", color=GREEN)
    picture.arrow((580, 324), (650, 324), both=True)
    picture.box(650, 294, 150, 60, "evaluator-0", "best policy", color=VIOLET)
    picture.arrow((515, 354), (515, 400), (5, 400), (5, 324), (20, 324))
    picture.text(338, 392, "policy and news over the wire; addresses from the registry", size=12)
    picture.box(450, 232, 350, 34, "launcher: starts, watches, restarts, scales", color=GREY)
    picture.save("runners.svg")


def items() -> None:
    picture = Picture(820, 330, "What one Reverb item holds, by stream")
    titles = (
        ("LaneReplay", "a few rows of all lanes", "uniform replay"),
        ("PrioritizedReplay", "one transition of one lane", "with a priority"),
        ("SequenceReplay", "L steps of one lane,", "overlapping, with state"),
        ("UnrollQueue", "T steps of all lanes,", "read once, in order"),
    )
    for number, (title, first, second) in enumerate(titles):
        left = 24 + 200 * number
        picture.text(left + 78, 26, title, bold=True, size=14)
        for lane in range(4):
            for step in range(6):
                picture.cell(left + 26 * step, 44 + 24 * lane, GREY, str(step))
            picture.text(left - 9, 59 + 24 * lane, "abcd"[lane], size=11, color="#7b8494")
        color = "#c2410c"
        if title == "LaneReplay":
            picture.frame(left - 2, 41, 56, 98, color)
            picture.frame(left + 50, 41, 56, 98, color)
        elif title == "PrioritizedReplay":
            picture.frame(left - 2, 41, 56, 26, color)
            picture.frame(left + 76, 89, 56, 26, color)
        elif title == "SequenceReplay":
            picture.frame(left - 2, 65, 108, 26, color)
            picture.frame(left + 50, 62, 108, 32, "#7350b3")
        else:
            picture.frame(left - 2, 41, 160, 98, color)
        picture.text(left + 78, 168, first, size=12)
        picture.text(left + 78, 186, second, size=12)
    picture.text(
        24,
        222,
        "Rows are lanes a to d, columns are steps; a frame is one item.",
        anchor="start",
        size=12,
    )
    picture.box(
        24,
        240,
        772,
        74,
        "what reaches agent.train",
        "transitions [batch, 2, …]  ·  sequences [batch, L, …] with state and mask  ·  "
        "unrolls [batch, T + 1, …] with state",
        "each with the version of the policy that acted",
        color=GREEN,
    )
    picture.save("items.svg")


def lanes() -> None:
    picture = Picture(820, 236, "Lanes: one environment call, one policy call, one observer call")
    picture.box(20, 20, 220, 196, "environment", dashed=True, color=GREY)
    for lane in range(4):
        picture.box(40, 54 + 38 * lane, 180, 30, f"lane {lane}", color=BLUE)
    picture.box(
        330,
        60,
        190,
        116,
        "policy",
        "observation [lanes, …]",
        "one call for all lanes",
        "action [lanes, …]",
        color=GREEN,
    )
    picture.box(
        610,
        60,
        190,
        116,
        "observers, metrics",
        "one call per step",
        "of all lanes:",
        "written as one item",
        color=AMBER,
    )
    picture.arrow((240, 96), (330, 96))
    picture.text(285, 88, "observe", size=12)
    picture.arrow((330, 146), (240, 146))
    picture.text(285, 164, "act", size=12)
    picture.arrow((520, 118), (610, 118))
    picture.text(565, 110, "step", size=12)
    picture.save("lanes.svg")


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    for draw in (system, runners, items, lanes):
        draw()
