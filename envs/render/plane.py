"""Painters of the small tasks, whose states are places in a plane."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

INK, PAPER, GREY, GOLD, BLUE = (40, 44, 52), (250, 250, 247), (165, 170, 176), (240, 178, 50), (38, 98, 168)
PALE, GREEN, RED, ROD = (222, 208, 160), (112, 190, 160), (200, 50, 47), (168, 52, 52)

_Legend = list[tuple[tuple[int, int, int], str]]


class Plane:
    """A square of the plane, drawn large and made smaller so that edges are smooth."""

    rate: float | None = None
    OVERSAMPLING = 3

    def __init__(self, width: int, half: float) -> None:
        self.width, self.half, self.pixels = width, half, width * self.OVERSAMPLING

    def at(self, places: Any) -> list[tuple[float, float]]:
        """Pixels of places (n, 2)."""
        scaled = np.asarray(places, np.float64).reshape(-1, 2) / self.half
        return [((1 + x) * self.pixels / 2, (1 - y) * self.pixels / 2) for x, y in scaled]

    def length(self, distance: float) -> float:
        """Pixels of a distance."""
        return float(distance) / self.half * self.pixels / 2

    def stroke(self, thickness: float) -> int:
        """Width of a line, given for a picture of 320 pixels."""
        return max(1, round(thickness * self.pixels / 320))

    def circle(self, pen: Any, place: Any, radius: float, **style: Any) -> None:
        """A circle about ``place`` (2,)."""
        ((x, y),) = self.at(place)
        r = self.length(radius)
        pen.ellipse([x - r, y - r, x + r, y + r], **style)

    def finished(self, image: Any) -> np.ndarray:
        """The picture in its own size."""
        return np.asarray(image.reduce(self.OVERSAMPLING))

    def close(self) -> None:
        """Nothing is held."""


class Goals(Plane):
    """A point among goals: where reward is, where the goals were without drift, and the way so far.

    Args:
      bound: half width of the arena.
      reward: params, distances (..., G) to the goals -> brightness (...) in [0, 1].
      weights: params -> (G,) sizes of the goals in [0, 1].
      radius: of a goal of weight 1, in units of the arena.
      named: goals and brightness, for the legend.
    """

    def __init__(
        self,
        width: int,
        bound: float,
        reward: Callable[..., np.ndarray],
        weights: Callable[..., Any],
        radius: float,
        named: _Legend,
    ) -> None:
        super().__init__(width, 1.06 * bound)
        self.named = named
        self.bound, self.reward, self.weights, self.radius = bound, reward, weights, radius
        self._backdrops: dict[bytes, Any] = {}

    def draw(self, states: Sequence[Any], params: Any) -> np.ndarray:
        """The whole way."""
        from PIL import ImageDraw

        goals = np.asarray(params.goals) + np.asarray(params.goal_offset)
        if goals.tobytes() not in self._backdrops:
            self._backdrops[goals.tobytes()] = self._backdrop(goals, params)
        image = self._backdrops[goals.tobytes()].copy()
        pen = ImageDraw.Draw(image)
        way = np.stack([np.asarray(state.position) for state in states])
        if len(way) > 1:
            pen.line(self.at(way), fill=BLUE, width=self.stroke(2), joint="curve")
        small = self.bound * 0.012
        for place in way[:-1]:
            self.circle(pen, place, small, fill=BLUE)
        self.circle(pen, way[0], 2 * small, fill=PAPER, outline=BLUE, width=self.stroke(1.5))
        self.circle(pen, way[-1], 4 * small, fill=RED, outline=PAPER, width=self.stroke(1.5))
        return self.finished(image)

    def legend(self, state: Any) -> _Legend:
        """The point, its way, the goals and where they were."""
        del state
        return [(RED, "agent"), (BLUE, "its way from the ring on"), *self.named, (GREY, "cross: goal without drift")]

    def _backdrop(self, goals: np.ndarray, params: Any) -> Any:
        from PIL import Image, ImageDraw

        line = np.linspace(-self.half, self.half, 160)
        x, y = np.meshgrid(line, -line)
        distances = np.hypot(x[..., None] - goals[:, 0], y[..., None] - goals[:, 1])
        heat = self.reward(params, distances)[..., None]
        colours = np.array(PAPER) * (1 - heat) + np.array(GREEN) * heat
        inside = (np.maximum(np.abs(x), np.abs(y)) <= self.bound)[..., None]
        colours = np.where(inside, colours, PAPER).astype(np.uint8)
        image = Image.fromarray(colours).resize((self.pixels, self.pixels), Image.Resampling.BICUBIC)
        pen = ImageDraw.Draw(image)
        corner = [*self.at([-self.bound, self.bound])[0], *self.at([self.bound, -self.bound])[0]]
        pen.rectangle(corner, outline=INK, width=self.stroke(1.5))
        weights = np.asarray(self.weights(params))
        arm = self.bound * 0.035
        for nominal in np.asarray(params.goals):  # a cross where the goal is without drift
            for step in ([arm, 0], [0, arm]):
                pen.line(self.at([nominal - step, nominal + step]), fill=GREY, width=self.stroke(1.5))
        for goal, weight in zip(goals, weights, strict=True):
            fill = GOLD if weight == weights.max() else PALE
            self.circle(pen, goal, self.radius * weight, fill=fill, outline=INK, width=self.stroke(1))
        return image


class Pendulum(Plane):
    """The rod, and gravity as an arrow of its size."""

    rate: float | None = 20.0

    def __init__(self, width: int) -> None:
        super().__init__(width, 1.35)

    def legend(self, state: Any) -> _Legend:
        """Rod, way and gravity."""
        del state
        return [(ROD, "rod"), (BLUE, "its tip in the last half second"), (INK, "gravity, as long as it is strong")]

    def draw(self, states: Sequence[Any], params: Any) -> np.ndarray:
        """The newest state, and where the tip was in the last half second."""
        from PIL import Image, ImageDraw

        image = Image.new("RGB", (self.pixels, self.pixels), PAPER)
        pen = ImageDraw.Draw(image)
        tips = [[-np.sin(float(s.angle)), np.cos(float(s.angle))] for s in states[-10:]]
        self.circle(pen, [0, 0], 1.0, outline=(225, 226, 226), width=self.stroke(1))
        for age, tip in enumerate(reversed(tips)):
            shade = tuple(int(c + (p - c) * (0.3 + 0.07 * age)) for c, p in zip(BLUE, PAPER, strict=True))
            self.circle(pen, tip, 0.035, fill=shade)
        pen.line(self.at([[0, 0], tips[-1]]), fill=ROD, width=self.stroke(13))
        self.circle(pen, [0, 0], 0.08, fill=INK)
        self.circle(pen, tips[-1], 0.1, fill=ROD)
        top, foot = np.array([-1.15, 1.15]), np.array([-1.15, 1.15 - 0.06 * float(params.gravity)])
        pen.line(self.at([top, foot]), fill=INK, width=self.stroke(2.5))
        pen.polygon(self.at(foot + np.array([[-0.06, 0], [0.06, 0], [0, -0.13]])), fill=INK)
        return self.finished(image)


def _bumps(params: Any, distances: np.ndarray) -> np.ndarray:
    """The reward of task ``toy``."""
    return np.max(np.asarray(params.weights) * np.exp(-(distances**2) / (2 * float(params.width) ** 2)), axis=-1)


def _valley(params: Any, distances: np.ndarray) -> np.ndarray:
    """Bright near a goal; the reward itself, a squared distance, has no bound to scale it by."""
    return 0.8 * np.exp(-(np.min(distances, axis=-1) ** 2) / 8)


_TOY: _Legend = [(GOLD, "best goal"), (PALE, "other goals"), (GREEN, "reward")]
_CLASSIC: _Legend = [(GOLD, "goals"), (GREEN, "near a goal")]

#: Name of a task -> its painter, given the width in pixels.
PAINTERS: dict[str, Callable[[int], Any]] = {
    "toy": lambda width: Goals(width, 1.0, _bumps, lambda params: params.weights, 0.12, _TOY),
    "toy_multigoal_classic": lambda width: Goals(
        width, 7.0, _valley, lambda params: np.ones(len(params.goals)), 1.0, _CLASSIC
    ),
    "pendulum": Pendulum,
}
