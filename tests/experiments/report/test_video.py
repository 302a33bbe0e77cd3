"""`aesjax video` on a small study: the file is the requested video, and wrong requests leave no files."""

import dataclasses
import shutil
from types import SimpleNamespace

import jax
import numpy as np
import polars as pl
import pytest
from PIL import Image

import envs
from aesjax.registry import UnknownNameError
from envs.world import World
from experiments.report import video, video_output
from experiments.study import checkpoint, snapshots, store
from experiments.study.build import build_part
from experiments.study.config import config_from_json
from experiments.study.folder import claim
from experiments.study.sweep import compile_program
from tests.experiments.configs import config_of

STEPS = 3200


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A trained study without the training, which other tests compile: agents that differ from run to run."""
    directory = tmp_path_factory.mktemp("video") / "study"
    names = {"patterns": "steady,abrupt", "schedules": "aes,aes_r", "seeds": "3:4"}
    config = config_of("ppo", steps=STEPS, **names)
    own = config.settings["ppo"]
    settings = {"ppo": own | {"config": own["config"] | {"rollout": 8, "hidden": (8,)}}}
    config = dataclasses.replace(config, evaluations=5, episodes=1, settings=settings)
    claimed = claim(config, directory, resume=False)
    claimed.owner.release()
    part = build_part(config_from_json(claimed.config.to_json()), "ppo")
    place = directory / store.CHECKPOINTS / "ppo"
    state = jax.device_get(compile_program(part.program, jax.devices()[:1]).init(part.runs))
    number = np.arange(len(part.labels), dtype=np.float32)
    state = state._replace(
        agent=jax.tree.map(
            lambda x: x + 0.05 * number.reshape(-1, *[1] * (x.ndim - 1)) if x.dtype == np.float32 else x, state.agent
        )
    )
    keep = snapshots.keep_moments(directory, config, part, print)
    for chunk in range(6):  # other agents at every evaluation
        agent = jax.tree.map(lambda x, by=chunk: x + 0.01 * by if x.dtype == np.float32 else x, state.agent)
        keep(0, chunk, part.labels, state._replace(agent=agent))
    for chunk in (4, 5):
        checkpoint.save(place, config.fingerprint(), 0, chunk, state, pl.DataFrame(part.labels))
    return SimpleNamespace(directory=directory, config=config, part=part, state=state)


@pytest.fixture
def study(trained):
    return trained.directory


def ask(directory, **options):
    names = ("out", "method", "pattern", "seed", "change", "steps", "fps")
    return dict.fromkeys(names) | {"directory": directory, "width": 160} | options


def shown(monkeypatch, arguments):
    """Arguments of the command's drawing, without the drawing."""
    seen = SimpleNamespace()

    def compose(scene, title, note, panels, stride):
        seen.__dict__.update(title=title, note=note, panels=panels, stride=stride)
        return iter(())

    with monkeypatch.context() as patch:
        patch.setattr(video, "compose", compose)
        patch.setattr(video, "write_video", lambda out, pictures, fps: seen.__dict__.update(out=out, fps=fps))
        video.run(**arguments)
    return seen


def test_a_gif_shows_the_episodes_side_by_side_as_the_options_say(study, tmp_path):
    out = tmp_path / "new" / "folder" / "a.GIF"
    assert video.run(**ask(study, out=out, seed=4, method="PPO+AES-R", steps=6, fps=20, width=200)) == out
    assert [p.name for p in out.parent.iterdir()] == [out.name]
    with Image.open(out) as gif:
        assert gif.n_frames == 7
        assert gif.size[0] == 3 * 200 + 4 * 5
        assert gif.size[1] % 2 == 0
        assert gif.info["duration"] == 50
        assert gif.info["loop"] == 0
        first = np.asarray(gif.convert("RGB"), int)
        gif.seek(6)
        last = np.asarray(gif.convert("RGB"), int)
    different = np.abs(first - last).max(axis=-1) > 30
    for third in (different[:, :207], different[:, 207:412], different[:, 412:]):
        assert third[:270].any()  # the point
        assert third[-25:].any()  # the caption


def test_the_policy_of_then_is_shown_before_and_after_and_the_one_of_the_segments_end(study, monkeypatch):
    seen = shown(monkeypatch, ask(study, change=2))
    assert seen.out == study / "video" / "PPO+AES-abrupt-3.gif"  # the first pattern that changes
    assert (seen.fps, seen.stride) == (10, 1)
    before, after, end = seen.panels
    at, later = STEPS * 2 // 5, STEPS * 3 // 5
    assert (before.heading, before.policy) == (f"before change 2, step {at - 8:,}", f"policy of step {at:,}")
    assert (after.heading, after.policy) == (f"just after change 2, step {at:,}", "the same policy")
    assert (end.heading, end.policy) == (f"end of the segment, step {later - 8:,}", f"policy of step {later:,}")
    np.testing.assert_array_equal(before.states[0].position, after.states[0].position)
    assert before.drift != after.drift
    assert after.drift == end.drift  # nothing jumps in between
    assert after.drift == "goal offset ({:.2f}, {:.2f})".format(*after.params.goal_offset)
    np.testing.assert_array_equal(before.params.goals, after.params.goals)
    # The policy does not see the goals and the noise is the same, so here the ways are, too; the rewards are not.
    np.testing.assert_allclose(before.states[-1].position, after.states[-1].position, atol=1e-5)
    assert before.returns[-1] != after.returns[-1]
    assert np.any(after.states[1].position != end.states[1].position)  # another policy
    assert all(len(p.states) == len(p.returns) == 51 and p.returns[0] == 0 for p in seen.panels)
    assert seen.title == "toy   PPO+AES   abrupt, seed 3"
    assert seen.note == "a run of 3,200 steps; in these episodes drift stands still and actions have no noise"


def test_a_kept_policy_acts_like_the_agent_it_is_of(trained):
    """And holds no array that the policy does not read."""
    config, part = trained.config, trained.part
    found = snapshots.load_moment(trained.directory, config, part, 5, 2)
    whole = jax.tree.map(lambda x: x[5] + 0.02 if x.dtype == np.float32 else x[5], trained.state.agent)
    world, act = part.setup.world, part.setup.agent.act_deterministic
    obs = np.linspace(-1, 1, 4 * world.obs_size, dtype=np.float32).reshape(4, -1)
    np.testing.assert_allclose(act(found.agent, obs), act(whole, obs), atol=1e-6)
    assert found.step == 2 * STEPS // 5
    kept, leaves = snapshots.read_by(part), jax.tree.leaves(whole)
    assert len(kept) < len(leaves) / 2
    assert snapshots.load_moment(trained.directory, config, part, 5, 5) is None  # no change there
    places = sorted(p.name for p in (trained.directory / store.MOMENTS / "ppo").iterdir())
    assert places == [f"000-{chunk:05d}" for chunk in (1, 2, 3, 4)]


def sides_of(directory, trained, change):
    """The first run under abrupt drift, without playing its episodes."""
    config, part = trained.config, trained.part
    world = World(envs.make("toy"), config.vector_steps("ppo"), config.segments)
    run = next(i for i, label in enumerate(part.labels) if label["pattern"] == "abrupt")
    return video._sides(directory, config, part, run, world, "abrupt", change)


def test_a_damaged_moment_is_refused(trained, tmp_path):
    copy = shutil.copytree(trained.directory, tmp_path / "copy", ignore=shutil.ignore_patterns("video"))
    largest = max((copy / store.MOMENTS).rglob("*"), key=lambda path: path.stat().st_size if path.is_file() else 0)
    largest.write_bytes(b"x")
    with pytest.raises(ValueError, match="is missing, truncated or changed"):
        sides_of(copy, trained, 1)


def test_of_a_steady_run_one_episode_is_shown(trained, monkeypatch):
    seen = shown(monkeypatch, ask(trained.directory, pattern="steady", steps=3))
    (panel,) = seen.panels
    assert seen.title == "toy   PPO+AES   steady, seed 3"
    assert (panel.heading, panel.drift) == ("no drift", "goal offset (0.00, 0.00)")
    assert len(panel.states) == 4
    only = dataclasses.replace(trained.config, patterns=("steady",))
    assert video._choose(only, None, None, None, None)[1] == "steady"


@pytest.mark.parametrize("pattern", ["linear", "periodic"])
def test_a_gradual_drift_is_shown_where_it_went_farthest(pattern):
    world = World(envs.make("toy"), 1000)
    change = video._change(world, world.drift(pattern, 0), pattern, None)
    assert change.steps[1] == 200 * change.number
    assert 0 < change.steps[1] - change.steps[0] <= 200
    assert np.linalg.norm(change.values[1] - change.values[0]) == pytest.approx(0.5, rel=0.02)


def test_an_interrupted_study_is_shown_as_far_as_it_got(trained, tmp_path):
    copy = shutil.copytree(trained.directory, tmp_path / "copy", ignore=shutil.ignore_patterns("video"))
    newest = max((copy / store.CHECKPOINTS / "ppo").iterdir())
    shutil.rmtree(newest)
    assert [side.policy for side in sides_of(copy, trained, 4)] == [
        "policy of step 2,560",
        "the same policy",
    ]  # it ended just there
    shutil.rmtree(copy / store.MOMENTS / "ppo" / "000-00002")
    assert len(sides_of(copy, trained, 1)) == 2


def test_a_study_without_a_checkpoint_says_so(trained, tmp_path):
    ignore = shutil.ignore_patterns("video", store.CHECKPOINTS, store.MOMENTS)
    copy = shutil.copytree(trained.directory, tmp_path / "copy", ignore=ignore)
    with pytest.raises(ValueError, match="has no checkpoint of PPO\\+AES, abrupt, seed 3"):
        sides_of(copy, trained, 1)


def refused(arguments, *texts):
    before = sorted(arguments["directory"].rglob("*"))
    with pytest.raises((ValueError, UnknownNameError)) as error:
        video.run(**arguments)
    sentence = str(error.value)
    assert len(sentence.splitlines()) == 1
    for text in texts:
        assert text in sentence
    assert sorted(arguments["directory"].rglob("*")) == before


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"method": "PPO+AESR"}, "unknown method of this study 'PPO+AESR'; did you mean 'PPO+AES-R'?"),
        ({"pattern": "abrubt"}, "unknown pattern of this study 'abrubt'; did you mean 'abrupt'?"),
        ({"pattern": "steady", "change": 1}, "pattern 'steady' has no change to show; the study's others: abrupt"),
        ({"seed": 7}, "the study has no seed 7; the nearest is 4"),
        ({"change": 5}, "--change must be between 1 and 4"),
        ({"steps": 51}, "--steps must be between 1 and 50"),
        ({"fps": 0}, "--fps must be between 1 and 50"),
        ({"width": 10}, "--width must be between 160 and 1280"),
    ],
)
def test_wrong_wishes_are_refused_and_nothing_is_written(study, tmp_path, options, text):
    refused(ask(study, out=tmp_path / "a.gif", **options), text)
    assert not list(tmp_path.iterdir())


def test_wrong_files_are_refused(study, tmp_path, monkeypatch):
    refused(ask(study, out=tmp_path / "a.avi"), "must end in .gif or .mp4; got '.avi'")
    refused(ask(study, out=tmp_path / "a"), "got no suffix")
    (tmp_path / "a.gif").write_text("mine")
    refused(ask(study, out=tmp_path / "a.gif"), "a.gif exists")
    assert (tmp_path / "a.gif").read_text() == "mine"
    with pytest.raises(ValueError, match="cannot be written"):
        video_output.write_video(tmp_path / "a.gif" / "b.gif", iter(()), 10.0)
    monkeypatch.setattr(video_output, "_ffmpeg", lambda: False)
    refused(ask(study, out=tmp_path / "a.mp4"), "pip install 'aesjax[video]'")
    assert [p.name for p in tmp_path.iterdir()] == ["a.gif"]


def test_a_folder_that_is_no_study_is_refused(tmp_path):
    refused(ask(tmp_path), "holds no study: there is no config.json")
    (tmp_path / store.CONFIG).write_text('{"format": 1}')
    refused(ask(tmp_path), "cannot be used: its format is 1")


def test_a_full_disk_leaves_no_file(tmp_path):
    def pictures():
        for _ in range(20):
            yield Image.new("RGB", (16, 16))
        raise OSError("No space left on device")

    with pytest.raises(ValueError, match="No space left"):
        video_output.write_video(tmp_path / "a.gif", pictures(), 10.0)
    assert not list(tmp_path.iterdir())


def test_an_mp4_where_the_extra_is_installed(tmp_path):
    pytest.importorskip("imageio_ffmpeg", reason="the optional extra 'video'")
    video_output.write_video(tmp_path / "a.mp4", (Image.new("RGB", (64, 64), (40 * i, 0, 0)) for i in range(4)), 10.0)
    assert (tmp_path / "a.mp4").read_bytes()[4:8] == b"ftyp"
    assert [p.name for p in tmp_path.iterdir()] == ["a.mp4"]


def test_a_policy_that_diverged_is_named():
    task = envs.make("toy")
    params = jax.tree.map(lambda leaf: np.stack([leaf, leaf]), task.params)
    with pytest.raises(ValueError, match="is not finite"):
        video._roll_out(task, lambda obs: obs * np.float32(np.nan), params, 0, 3)
