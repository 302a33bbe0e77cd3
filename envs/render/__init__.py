"""Pictures of a task's states, for people to look at.

`scene_of` finds the painter of a task: `plane` draws the small ones, `renderers` any MuJoCo model, with OpenGL or, in
`software` and `raster`, without. Importing this package imports no renderer.
"""

from envs.render.scene import RENDERERS, Scene, scene_of

__all__ = ["RENDERERS", "Scene", "scene_of"]
