"""Episodes side by side as pictures with captions, and pictures as a GIF or an mp4."""

import importlib.util
import os
import warnings
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from envs.render import Scene

SUFFIXES = (".gif", ".mp4")
WIDTHS = (160, 1280)  # pixels of a panel
FPS = (1, 50)  # a GIF counts in hundredths of a second, and players take less than two for a mistake
INK, GREY, RED, PAPER = (30, 33, 40), (100, 105, 112), (176, 32, 32), (255, 255, 255)
_HOLD = 1.5  # seconds that the last picture stays

_Entry = tuple[tuple[int, int, int], str]  # of a legend: a colour and what it stands for


class Panel(NamedTuple):
    """One of the episodes."""

    heading: str  # which world
    policy: str  # of when
    drift: str
    params: Any  # in force
    states: Sequence[Any]  # T + 1
    returns: np.ndarray  # (T + 1,) so far
    ending: str  # shown from the last state on


def check_output(out: Path, width: int, fps: int | None) -> None:
    """Refuse what cannot be written, before anything is computed.

    Raises:
      ValueError: with one sentence.
    """
    if out.suffix.lower() not in SUFFIXES:
        got = f"'{out.suffix}'" if out.suffix else "no suffix"
        raise ValueError(f"--out {out} must end in {' or '.join(SUFFIXES)}; got {got}")
    if out.suffix.lower() == ".mp4" and not _ffmpeg():
        raise ValueError("an mp4 needs imageio and ffmpeg: pip install 'aesjax[video]', or choose a .gif")
    if not WIDTHS[0] <= width <= WIDTHS[1]:
        raise ValueError(f"--width must be between {WIDTHS[0]} and {WIDTHS[1]} pixels; got {width}")
    if fps is not None and not FPS[0] <= fps <= FPS[1]:
        raise ValueError(f"--fps must be between {FPS[0]} and {FPS[1]}; got {fps}")
    if out.exists():
        raise ValueError(f"{out} exists; remove it or choose another file with --out")


def _ffmpeg() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("imageio", "imageio_ffmpeg"))


@cache
def _font(size: int, bold: bool) -> Any:
    import matplotlib
    from PIL import ImageFont

    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name), size)


def _write(pen: Any, at: tuple[int, int], text: str, size: int, room: int, fill: Any = INK, bold: bool = False) -> None:
    """One line of text, smaller if ``room`` pixels ask for it."""
    while size > 7 and pen.textlength(text, font=_font(size, bold)) > room:
        size -= 1
    while len(text) > 1 and pen.textlength(text, font=_font(size, bold)) > room:
        text = text[:-2] + "…"
    pen.text(at, text, font=_font(size, bold), fill=fill, anchor="ls")


def _legend_lines(entries: Sequence[_Entry], size: int, room: int) -> list[list[tuple[int, _Entry]]]:
    """The entries of a legend in lines of at most ``room`` pixels, each with the place where it begins."""
    font, lines, at = _font(size, False), [[]], 0
    for entry in entries:
        wide = round(1.4 * size + font.getlength(entry[1]) + size)
        if at and at + wide > room + size:
            lines.append([])
            at = 0
        lines[-1].append((at, entry))
        at += wide
    return lines if entries else []


def compose(scene: Scene, title: str, note: str, panels: Sequence[Panel], stride: int) -> Iterator[Any]:
    """Pictures (PIL, RGB, even sides) of every ``stride``-th step and the last, until all episodes are over.

    An episode that is over keeps its last picture. Under the title stands what the scene draws, by colour.
    """
    from PIL import Image, ImageDraw

    longest = max(len(panel.states) for panel in panels) - 1
    last: list[tuple[int, Any]] = [(-1, None)] * len(panels)
    for step in [*range(0, longest, stride), longest]:
        for i, panel in enumerate(panels):
            at = min(step, len(panel.states) - 1)
            if at != last[i][0]:
                last[i] = at, Image.fromarray(scene.draw(panel.states[: at + 1], panel.params))
        width, height = last[0][1].size
        line, gap = round(width / 18), max(4, width // 40)
        size = round(line * 0.72)
        room = len(panels) * (width + gap) - gap
        legend = _legend_lines(scene.legend(panels[0].states[0]), max(size - 2, 7), room)
        head = (2 + len(legend)) * line + gap
        sheet = Image.new("RGB", (_even(room + 2 * gap), _even(head + height + 4 * line + 2 * gap)), PAPER)
        pen = ImageDraw.Draw(sheet)
        _write(pen, (gap, line), title, size + 1, room, bold=True)
        _write(pen, (gap, 2 * line), note, size - 1, room, fill=GREY)
        for row, entries in enumerate(legend):
            foot = (3 + row) * line
            for left, (colour, text) in entries:
                pen.rectangle([gap + left, foot - 0.8 * size, gap + left + size, foot], fill=colour)
                _write(pen, (gap + left + round(1.4 * size), foot), text, max(size - 2, 7), room - left, fill=GREY)
        for i, panel in enumerate(panels):
            at, picture = last[i]
            left, below = gap + i * (width + gap), head + height
            sheet.paste(picture, (left, head))
            _write(pen, (left, below + line), panel.heading, size, width, bold=True)
            _write(pen, (left, below + 2 * line), panel.policy, size, width)
            _write(pen, (left, below + 3 * line), panel.drift, size, width)
            over = panel.ending if at == len(panel.states) - 1 else ""
            text = f"step {at}   return {panel.returns[at]:.1f}" + (f"   {over}" if over else "")
            _write(pen, (left, below + 4 * line), text, size, width, fill=RED if over else INK)
        yield sheet


def _even(size: int) -> int:
    return size + size % 2  # as video codecs want it


def write_video(out: Path, pictures: Iterator[Any], fps: float) -> None:
    """The file appears complete or not at all.

    Args:
      out: the suffix says which kind. pictures: PIL, RGB, of one size.

    Raises:
      ValueError: it cannot be written.
    """
    partial = out.with_name(f".{out.stem}-{os.getpid()}{out.suffix.lower()}")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        (_write_gif if partial.suffix == ".gif" else _write_mp4)(partial, pictures, fps)
        os.replace(partial, out)
    except OSError as error:
        raise ValueError(f"{out} cannot be written: {error.strerror or error}") from None
    finally:
        if partial.exists():
            partial.unlink()


def _write_gif(path: Path, pictures: Iterator[Any], fps: float) -> None:
    from PIL import Image

    # One palette for all pictures: with one each, colours flicker. The first show every colour but that of an ending.
    first = list(islice(pictures, 8))
    width, height = first[0].size
    sample = Image.new("RGB", (width, 2 * height + 8), RED)
    sample.paste(first[0], (0, 0))
    sample.paste(first[-1], (0, height))
    palette = sample.quantize(256, method=Image.Quantize.MAXCOVERAGE)
    frames = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in chain(first, pictures)]
    durations = [round(1000 / fps)] * (len(frames) - 1) + [round(1000 * _HOLD)]
    frames[0].save(path, "GIF", save_all=True, append_images=frames[1:], duration=durations, loop=0, optimize=False)


def _write_mp4(path: Path, pictures: Iterator[Any], fps: float) -> None:
    import imageio.v2 as imageio

    options: Any = {"format": "FFMPEG", "codec": "libx264", "macro_block_size": 2, "quality": 8}
    writer: Any
    with warnings.catch_warnings(), imageio.get_writer(path, fps=fps, **options) as writer:
        # JAX fears that a fork of its threads goes on as a Python process; this one becomes ffmpeg.
        warnings.filterwarnings("ignore", message="os.fork", category=RuntimeWarning)
        picture = None
        for picture in pictures:
            writer.append_data(np.asarray(picture))
        for _ in range(round(_HOLD * fps)):
            writer.append_data(np.asarray(picture))
