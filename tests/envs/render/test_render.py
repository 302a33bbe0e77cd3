"""Pictures without OpenGL: rays meet shapes where MuJoCo's own ray casting says, and pictures follow the state."""

import jax
import mujoco
import numpy as np
import pytest

import envs
from envs.isaac import TASKS as ISAAC
from envs.physics import Marker
from envs.render import renderers, scene_of
from envs.render.raster import SHAPES, Camera
from envs.render.software import Software
from envs.render.view import View, aim

SIZES = {"sphere": ".3", "capsule": ".15 .4", "ellipsoid": ".5 .2 .35", "cylinder": ".3 .25", "box": ".4 .15 .3"}
BODIES = ("hopper", "halfcheetah", "walker2d", "ant", "humanoid")
TURNED = 'pos="0.3 -0.2 0.1" euler="20 50 -70"'


def model_of(body, assets=""):
    return mujoco.MjModel.from_xml_string(f"<mujoco>{assets}<worldbody>{body}</worldbody></mujoco>")


def posed(kind):
    model = model_of(f'<geom type="{kind}" size="{SIZES[kind]}" {TURNED}/>')
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    return model, data


def drawn(model, qpos=(), **options):
    view = View(**({"distance": 3.0, "height": 0.3} | options))
    return renderers.open_renderer(model, 80, 60, view, "software").draw(np.asarray(qpos)).astype(int)


def test_all_shapes_are_tested():
    assert set(SHAPES) == set(SIZES)


@pytest.mark.parametrize("kind", SIZES)
def test_rays_meet_a_shape_where_mujoco_says_they_do(kind):
    model, data = posed(kind)
    camera = Camera(24, 18, azimuth=65.0, elevation=-25.0, fovy=30.0)
    position = camera.stand(data.geom_xpos[0], 2.2)
    rotation = data.geom_xmat[0].reshape(3, 3)
    size = model.geom_size[0].astype(np.float32)
    origin = ((position - data.geom_xpos[0]) @ rotation).astype(np.float32)
    rays = camera.rays @ rotation.astype(np.float32)
    hit = SHAPES[kind].hit(size, (origin, rays))
    geom = np.zeros(1, np.int32)
    ways = camera.rays.reshape(-1, 3).astype(float)
    expected = np.array([mujoco.mj_ray(model, data, position, way, None, 1, -1, geom) for way in ways])
    expected = expected.reshape(hit.depth.shape)
    seen = np.isfinite(hit.depth)
    assert 40 < seen.sum() < seen.size
    assert (seen == (expected >= 0)).mean() > 0.99  # a ray along the edge may go either way
    both = seen & (expected >= 0)
    np.testing.assert_allclose(hit.depth[both], expected[both], atol=2e-3)
    np.testing.assert_allclose(np.linalg.norm(hit.normal[both], axis=-1), 1.0, atol=1e-3)
    assert np.all(np.sum(hit.normal[both] * rays[both], axis=-1) < 1e-3)  # towards the viewer
    # The surface lies within its box and within the outline that its shadow is made of.
    places = origin + hit.depth[both][:, None] * rays[both]
    assert np.all(np.abs(places) <= SHAPES[kind].box(size) + 1e-3)
    towards = np.random.default_rng(0).normal(size=(50, 3))
    reach = np.sum(SHAPES[kind].support(size, towards) * towards, axis=-1)
    farthest = (places @ towards.T).max(axis=0)
    assert np.all(reach >= farthest - 1e-3)
    assert np.min(reach - farthest) < 0.02


@pytest.mark.parametrize("kind", SIZES)
def test_every_shape_is_drawn_in_its_colour_and_throws_a_shadow(kind):
    floor = '<geom type="plane" size="5 5 .1"/>'
    empty = drawn(model_of(floor))
    solid = f'<geom type="{kind}" size="{SIZES[kind]}" pos="0 0 .6" rgba="1 0 0 1"/>'
    change = drawn(model_of(floor + solid)) - empty
    red = (change[..., 0] > 0) & (change[..., 1] < 0)
    assert red.sum() > 50
    darker = (change < 0).all(axis=-1)
    assert (darker & ~red).sum() > 20
    assert np.abs(change).any(axis=-1).mean() < 0.5


def test_what_is_nearer_hides_what_is_behind():
    both = '<geom size=".3" pos="0 {} .3" rgba="1 0 0 1"/><geom size=".3" pos="0 {} .3" rgba="0 0 1 1"/>'
    middle = [drawn(model_of(both.format(*at)))[30, 40] for at in ((-0.7, 0.7), (0.7, -0.7))]
    assert middle[0][0] > middle[0][2]
    assert middle[1][0] < middle[1][2]


def test_a_shape_that_cannot_be_drawn_is_named():
    asset = '<asset><mesh name="m" vertex="0 0 0 1 0 0 0 1 0 0 0 1"/></asset>'
    with pytest.raises(ValueError, match=r"draws plane, sphere.*; the model has mesh"):
        drawn(model_of('<geom type="mesh" mesh="m"/>', asset))


def test_which_renderer(monkeypatch):
    model, view = posed("box")[0], View(3.0, 0.3)
    monkeypatch.setattr(renderers, "_gl_backend", lambda: None)
    assert isinstance(renderers.open_renderer(model, 32, 24, view, "auto"), Software)
    with pytest.raises(ValueError, match="GL renderer does not work here"):
        renderers.open_renderer(model, 32, 24, view, "gl")
    monkeypatch.setattr(renderers, "_gl_backend", lambda: "no_such_backend")
    assert isinstance(renderers.open_renderer(model, 32, 24, view, "auto"), Software)
    with pytest.raises(ValueError, match=r"GL renderer \(no_such_backend\) failed"):
        renderers.open_renderer(model, 32, 24, view, "gl")
    with pytest.raises(ValueError, match="must be one of auto, software, gl; got 'opengl'"):
        renderers.open_renderer(model, 32, 24, view, "opengl")


def started(task):
    return jax.device_get(task.env.reset(jax.random.key(0), task.params)[1])


def moved(task, state, column, by):
    row = state.row.copy().view(np.float64)
    row[task.env.engine.positions.start + column] += by
    return state._replace(row=row.view(np.uint32))


@pytest.mark.parametrize("name", BODIES)
def test_every_mujoco_task_is_drawn_without_gl_and_followed(name):
    task = envs.make(name, engine="mujoco")
    scene, state = scene_of(task, 160, "software"), started(task)
    height = {"hopper": 1, "halfcheetah": 1, "walker2d": 1}.get(name, 2)
    picture, ahead, higher, far = (
        scene.draw([s], task.params).astype(int)
        for s in (
            state,
            moved(task, state, 0, 0.25),
            moved(task, state, height, 0.3),
            moved(task, state, 0, 50.0),  # whole tiles: nothing but what is fixed to the world may tell
        )
    )
    assert picture.shape == (120, 160, 3)
    body = picture[..., 0] > picture[..., 2] + 25  # warm colours; sky and floor are cold
    assert 150 < body.sum() < 0.3 * body.size
    columns = np.nonzero(body)[1]
    assert 50 < columns.mean() < 110  # in the middle
    assert np.abs(ahead - picture).max(axis=-1).mean() > 10  # the floor passes
    assert ((ahead[..., 0] > ahead[..., 2] + 25) != body).mean() < 0.01  # the camera follows
    up = higher[..., 0] > higher[..., 2] + 25
    assert np.nonzero(up)[0].mean() < np.nonzero(body)[0].mean() - 5
    assert (np.abs(far - picture).max(axis=-1) > 40).mean() < 0.01
    assert scene.rate == pytest.approx({"hopper": 125, "walker2d": 125, "humanoid": 1 / 0.015}.get(name, 20))


@pytest.mark.parametrize("name", ISAAC)
def test_every_isaac_task_is_framed(name):
    task = envs.make(name, engine="mujoco")
    scene, state = scene_of(task, 160, "software"), started(task)
    picture = scene.draw([state], task.params).astype(int)
    scene.renderer.solids = []
    body = np.abs(scene.draw([state], task.params) - picture).max(axis=-1) > 20  # and its shadow
    assert 0.004 < body.mean() < 0.4
    rows, columns = np.nonzero(body)
    assert 40 < columns.mean() < 120
    assert 30 < rows.mean() < 90
    assert not body[[0, -1]].any()
    assert not body[:, [0, -1]].any()


@pytest.mark.parametrize(("name", "seen"), [("isaac_ingenuity", 0.001), ("isaac_allegro_hand", 0.01)])
def test_goals_that_are_no_part_of_the_model_are_drawn(name, seen):
    task = envs.make(name, engine="mujoco")
    scene, physical = scene_of(task, 160, "software"), task.env.engine.task
    with_goal, another = (
        scene.renderer.draw(physical.model.qpos0, physical.markers(np.full(physical.memory_size, x))) for x in (0.5, 1)
    )
    assert (np.abs(with_goal.astype(int) - another).max(axis=-1) > 20).mean() > seen


def test_a_camera_without_a_height_sees_torso_and_goal():
    rng, view = np.random.default_rng(0), View(1.0, None, 60.0, -12.0)
    camera = Camera(160, 120, view.azimuth, view.elevation)
    for _ in range(20):
        torso, place = rng.uniform(-5, 5, (2, 3))
        lookat, distance = aim(view, torso, [Marker("sphere", None, place, None, None)])
        pixels, depth = camera.project(np.array([torso, place]), camera.stand(lookat, distance))
        assert (depth > 0).all()
        assert (np.abs(pixels - [80, 60]) < [80, 60]).all()
    np.testing.assert_array_equal(aim(View(2.0, 0.7, ahead=0.5), np.array([1.0, 2.0, 3.0]), [])[0], [1.5, 2.0, 0.7])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["isaac_ant", "isaac_allegro_hand"])
def test_mujocos_own_renderer_shows_the_same(name):
    """Where it works; where it does not, the software renderer stands in."""
    task = envs.make(name, engine="mujoco")
    pictures = []
    for renderer in ("software", "auto"):
        scene = scene_of(task, 160, renderer)
        pictures.append(scene.draw([started(task)], task.params).reshape(30, 4, 40, 4, 3).mean(axis=(1, 3)))
        scene.close()
    assert np.corrcoef(*map(np.ravel, pictures))[0, 1] > 0.85
    assert np.abs(pictures[0] - pictures[1]).mean() < 30


@pytest.mark.parametrize(("name", "size"), [("toy", 2), ("toy_multigoal_classic", 2), ("pendulum", 1)])
def test_the_small_tasks_are_drawn(name, size):
    task = envs.make(name)
    scene, state = scene_of(task, 160), started(task)
    later = jax.device_get(task.env.step(jax.random.key(1), state, np.ones(task.env.spec.action_size), task.params)[1])
    drifted = task.apply_drift(task.params, np.full(size, 0.8 * task.channels[0].high, np.float32))
    start = scene.draw([state], task.params)
    assert start.shape == (160, 160, 3)
    assert start.dtype == np.uint8
    assert (scene.draw([state, later], task.params) != start).any()
    assert (scene.draw([state], drifted) != start).any()
    assert (scene.draw([state], task.params) == start).all()
    with pytest.raises(ValueError, match="renderer gl draws MuJoCo's tasks"):
        scene_of(task, 160, "gl")


def test_a_task_that_nothing_draws_is_refused():
    with pytest.raises(ValueError, match=r"nothing can draw task 'other'; tasks that can be drawn: toy, "):
        scene_of(envs.make("toy")._replace(name="other"), 160)
