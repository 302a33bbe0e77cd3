"""Pictures of a task's states, for people to look at.

`scene_of` finds the painter of a task: `plane` draws the small ones, MuJoCo's own renderer any of its models.
"""

from envs.render.scene import Scene, scene_of

__all__ = ["Scene", "scene_of"]
