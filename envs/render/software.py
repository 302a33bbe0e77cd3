"""MuJoCo models drawn in NumPy, for machines that have neither a screen nor a GL library."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from envs.physics import Marker
from envs.physics.fields import physics_library
from envs.render.raster import NEAR, SHAPES, Camera, Shape, checker
from envs.render.view import FOVY, View, aim


class _Solid(NamedTuple):
    """A shape where it is now."""

    shape: Shape
    size: np.ndarray  # (3,)
    centre: np.ndarray  # (3,)
    rotation: np.ndarray  # (3, 3)
    colour: np.ndarray  # (3,)


class Software:
    """Ray casting in NumPy: exact silhouettes and intersections, a light from above, shadows, a chequered floor."""

    LIGHT = np.array([-0.35, -0.45, 0.82]) / np.linalg.norm([-0.35, -0.45, 0.82])  # towards the light
    SKY = (np.array([120.0, 160.0, 205.0]), np.array([226.0, 234.0, 240.0]))  # top and horizon
    TILES = (np.array([0.93, 1.0, 0.97]), np.array([0.66, 0.75, 0.76]))  # factors on the colour of the floor
    TILE = 0.5  # metres
    FOG = 14.0  # metres at which the floor is half horizon
    OVERSAMPLING = 2
    SHADOW = 0.62  # brightness in a shadow
    EDGE = np.linspace(0, 2 * np.pi, 20, endpoint=False)  # directions in which the outline of a shadow is found

    def __init__(self, model: Any, width: int, height: int, view: View) -> None:
        mujoco = physics_library()
        self.model, self.data, self.view, self.size = model, mujoco.MjData(model), view, (width, height)
        self.camera = Camera(width * self.OVERSAMPLING, height * self.OVERSAMPLING, view.azimuth, view.elevation, FOVY)
        self.move = mujoco.mj_kinematics
        self.floors, self.solids = [], []
        unknown = set()
        for geom in range(model.ngeom):
            kind = mujoco.mjtGeom(model.geom_type[geom]).name.removeprefix("mjGEOM_").lower()
            if model.geom_group[geom] > 2 or self._colour(geom)[3] == 0:  # what MuJoCo's viewer does not show either
                continue
            if kind == "plane":
                self.floors.append(geom)
            elif kind in SHAPES:
                self.solids.append((geom, SHAPES[kind], self._colour(geom)[:3]))
            else:
                unknown.add(kind)
        if unknown:
            known = ", ".join(["plane", *SHAPES])
            raise ValueError(f"the software renderer draws {known}; the model has {', '.join(sorted(unknown))}")
        self._floor: dict[tuple[int, float], tuple[np.ndarray, ...]] = {}
        slope = np.clip(np.linspace(0, 2.2, self.camera.height), 0, 1)[:, None, None] * np.ones((self.camera.width, 1))
        self.sky = _packed(self.SKY[0] * (1 - slope) + self.SKY[1] * slope)

    def _colour(self, geom: int) -> np.ndarray:
        """(4,) in [0, 1]; as in MuJoCo a material counts where the geom has no colour of its own."""
        colour, material = self.model.geom_rgba[geom], self.model.geom_matid[geom]
        return self.model.mat_rgba[material] if material >= 0 and np.all(colour == [0.5, 0.5, 0.5, 1.0]) else colour

    def draw(self, qpos: np.ndarray, markers: Sequence[Marker] = ()) -> np.ndarray:
        """Picture (height, width, 3) uint8 of the model at positions (nq,), and of ``markers``."""
        from PIL import Image

        self.data.qpos[:] = qpos
        self.move(self.model, self.data)
        lookat, distance = aim(self.view, self.data.xpos[min(1, self.model.nbody - 1)], markers)
        position = self.camera.stand(lookat, distance)
        solids = [_Solid(s, self.model.geom_size[geom], *self._pose(geom), c) for geom, s, c in self.solids]
        solids += [_Solid(SHAPES[m.kind], *map(np.asarray, m[1:5])) for m in markers]
        picture = self.sky.copy()
        depth = np.full(picture.shape, np.inf, np.float32)
        for geom in self.floors:
            self._draw_floor(picture, depth, geom, position, solids)
        for solid in solids:
            self._draw_solid(picture, depth, solid, position)
        whole = Image.frombuffer("RGBX", picture.shape[::-1], picture, "raw", "RGBX", 0, 1)
        return np.asarray(whole.reduce(self.OVERSAMPLING))[..., :3]

    def close(self) -> None:
        """Nothing is held."""

    def _pose(self, geom: int) -> tuple[np.ndarray, np.ndarray]:
        return self.data.geom_xpos[geom], self.data.geom_xmat[geom].reshape(3, 3)

    def _draw_floor(
        self, picture: np.ndarray, depth: np.ndarray, geom: int, position: np.ndarray, solids: Sequence[_Solid]
    ) -> None:
        """An endless plane, seen from the side its normal points to."""
        centre, rotation = self._pose(geom)
        origin = (position - centre) @ rotation
        if origin[2] <= NEAR:
            return
        at = (geom, round(float(origin[2]), 6))
        if at not in self._floor:  # the camera keeps its height, so this happens once
            self._floor = {key: value for key, value in self._floor.items() if key[0] != geom}
            self._floor[at] = self._floor_seen(geom, rotation, origin[2])
        distance, x, y, *tiles = self._floor[at]
        seen = distance < depth
        odd = checker(x + np.float32(origin[0]), y + np.float32(origin[1]), self.TILE)
        shade = self._shadows(centre, rotation, position, solids)
        lit, dim = (np.where(odd, dark, bright) for bright, dark in (tiles[:2], tiles[2:]))
        np.copyto(picture, np.where(shade, dim, lit), where=seen)
        np.copyto(depth, distance, where=seen)

    def _floor_seen(self, geom: int, rotation: np.ndarray, height: float) -> tuple[np.ndarray, ...]:
        """Depth, x and y (in the plane, from below the camera) of the floor at every pixel, and its colours there: on
        both kinds of tiles, in the light and in a shadow."""
        local = self.camera.rays @ rotation.astype(np.float32)
        down = np.minimum(local[..., 2], -1e-6)
        distance = np.where(local[..., 2] < -1e-4, -height / down, np.inf).astype(np.float32)
        near = np.where(np.isfinite(distance), distance, 1e4).astype(np.float32)
        fog = (near / (near + self.FOG))[..., None] ** 1.5
        # Tiles smaller than a pixel would flicker: they fade into their mean.
        flat = np.clip(near * self.camera.scale / np.abs(down) / self.TILE, 0, 1)[..., None]
        base = 255 * self._colour(geom)[:3]
        middle = (self.TILES[0] + self.TILES[1]) / 2
        tiles = [base * (tile * (1 - flat) + middle * flat) * (1 - fog) + self.SKY[1] * fog for tile in self.TILES]
        colours = (_packed(tile * share) for share in (1.0, self.SHADOW) for tile in tiles)
        return distance, near * local[..., 0], near * local[..., 1], *colours

    def _shadows(
        self, centre: np.ndarray, rotation: np.ndarray, position: np.ndarray, solids: Sequence[_Solid]
    ) -> np.ndarray:
        """(height, width) bool: pixels of a plane that the light does not reach."""
        from PIL import Image, ImageDraw

        mask = Image.new("1", (self.camera.width, self.camera.height))
        pen = ImageDraw.Draw(mask)
        lx, ly, lz = self.LIGHT @ rotation
        if lz > 0:
            flat = np.stack([np.cos(self.EDGE), np.sin(self.EDGE)], axis=-1)
            # A point's shadow goes as far in direction u as the point goes in this one:
            towards = np.concatenate([flat, -(flat @ [[lx], [ly]]) / lz], axis=-1) @ rotation.T
            for shape, size, place, own, _ in solids:
                points = shape.support(size, towards @ own) @ own.T + place
                points = (points - centre) @ rotation
                if points[:, 2].max() <= 0:
                    continue
                points = points - np.maximum(points[:, 2:], 0) / lz * [[lx, ly, lz]]
                pixels, far = self.camera.project(points @ rotation.T + centre, position)
                if far.min() > NEAR:
                    pen.polygon([(x, y) for x, y in pixels.tolist()], fill=1)
        return np.asarray(mask)

    def _draw_solid(self, picture: np.ndarray, depth: np.ndarray, solid: _Solid, position: np.ndarray) -> None:
        shape, size, centre, rotation, colour = solid
        size = size.astype(np.float32)
        corners = (np.indices((2, 2, 2)).reshape(3, -1).T * 2 - 1) * shape.box(size)
        window = self.camera.window(corners @ rotation.T + centre, position)
        if window is None:
            return
        turn = rotation.astype(np.float32)
        rays = self.camera.rays[window] @ turn
        hit = shape.hit(size, (((position - centre) @ rotation).astype(np.float32), rays))
        seen = hit.depth < depth[window]
        if not seen.any():
            return
        rows, columns = np.nonzero(seen)
        normal, rays = hit.normal[rows, columns], rays[rows, columns]
        light = np.clip(normal @ (self.LIGHT @ rotation).astype(np.float32), 0, 1)
        facing = np.clip(-np.einsum("ni,ni->n", normal, rays) / np.linalg.norm(rays, axis=-1), 0, 1)
        # Darkest where the surface turns away: an outline that keeps limbs of one colour apart.
        shine = (0.38 + 0.5 * light + 0.22 * facing) * (0.3 + 0.7 * np.clip(facing / 0.35, 0, 1))
        pixels = np.clip(255 * colour.astype(np.float32) * shine[:, None] + 30 * light[:, None] ** 8, 0, 255)
        picture[window][rows, columns] = _packed(pixels)
        depth[window][rows, columns] = hit.depth[rows, columns]


def _packed(colours: np.ndarray) -> np.ndarray:
    """(...) uint32 of (..., 3) in [0, 255]: a pixel is one number, which is moved faster than three."""
    red, green, blue = np.moveaxis(colours.astype(np.uint32), -1, 0)
    return red | green << 8 | blue << 16
