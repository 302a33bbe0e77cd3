"""Definitions that a user's object rests on: sources of functions and classes, and values of constants.

Names are followed through the user's modules. Installed packages, this repository, C code, files that the code reads
and environment variables are not seen.
"""

import ast
import hashlib
import inspect
import re
import sys
import sysconfig
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import MethodType, ModuleType
from typing import Any

import numpy as np

_REPOSITORY = ("aesjax", "agents", "envs", "experiments")
_MAIN = ("__main__", "__mp_main__")
_LONGEST = 1000  # characters of a constant; of a longer one the SHA-256 is stored


def definitions(name: str, *roots: Any) -> dict[str, str]:
    """Sources and constants that objects rest on, by "module:name"; the text of a root that is no code by ``name``."""
    reached = _Definitions()
    for root in roots:
        if inspect.isclass(root) or inspect.isfunction(root):
            reached.define(root)
        else:
            reached.add(name, _short(reached.text(root)))
    return {key: text for key, text in reached.parts.items() if key not in reached.state}


class _Definitions:
    def __init__(self) -> None:
        self.parts: dict[str, str] = {}
        self.state: set[str] = set()  # globals that functions assign
        self._defined: list[Any] = []
        self._open: list[Any] = []  # objects whose text is being made

    def add(self, key: str, text: str) -> None:
        """Add a text; two functions of one name share a key."""
        known = self.parts.get(key, text)
        self.parts[key] = text if known == text else f"{known}\n{text}"

    def define(self, code: Any) -> str:
        """Add a function or class and all that it reaches; returns its key."""
        main = Path(getattr(sys.modules["__main__"], "__file__", None) or "__main__").stem
        module = main if code.__module__ in _MAIN else code.__module__  # as another process imports a script
        key = f"{module}:{code.__qualname__}"
        if any(code is other for other in self._defined):
            return key
        self._defined.append(code)
        try:
            source = inspect.getsource(code)
        except (OSError, TypeError):  # defined at a prompt: equal to itself only
            source = repr(code)
        self.add(key, source)
        if _is_users(code):
            self._follow(code, module, source)
        return key

    def _follow(self, code: Any, module: str, source: str) -> None:
        """Add the definitions and constants that the user's code names."""
        try:
            nodes = list(ast.walk(ast.parse(textwrap.dedent(source))))
        except SyntaxError:  # part of an expression, such as a lambda
            nodes = [ast.Name(name) for name in getattr(getattr(code, "__code__", None), "co_names", ())]
        scope = _scope(code, nodes)
        for node in nodes:
            if isinstance(node, ast.Global):
                self.state |= {f"{module}:{name}" for name in node.names}
            name, value = _named(node, module, scope)
            if value is not None and not isinstance(value, ModuleType):
                text = self.text(value)
                if text.rpartition(":")[2] != name.rpartition(":")[2]:  # a constant, or another name of a definition
                    self.add(name, _short(text))
        for base in getattr(code, "__mro__", ()):
            self.text(base)

    def text(self, value: Any) -> str:
        """Text of a value, equal for equal values; adds the user's functions and classes in it."""
        value = inspect.unwrap(value) if callable(value) else value
        function = inspect.isroutine(value) and not isinstance(value, MethodType)  # a method also has its object
        closed = getattr(value, "__closure__", None) if function else None
        if inspect.isclass(value) or function:
            if _is_users(value):
                return self.define(value)
            if inspect.isclass(value) or not closed:
                return f"{value.__module__}:{value.__qualname__}"
        if value is None or isinstance(value, bool | int | float | complex | str | bytes):
            return repr(value)
        if any(value is other for other in self._open):
            return "..."
        self._open.append(value)
        try:
            if closed:  # a function of a package, such as those of an optax transformation
                return f"{value.__module__}:{value.__qualname__}{self.text(inspect.getclosurevars(value).nonlocals)}"
            if hasattr(value, "__array__"):
                array: Any = np.asarray(value)
                return f"{array.dtype}{array.tolist()}"
            if isinstance(value, set | frozenset):
                return f"{{{', '.join(sorted(map(self.text, value)))}}}"
            if isinstance(value, Mapping):
                parts: Any = tuple(value.items())
            elif isinstance(value, tuple | list):
                parts = value if type(value) in (tuple, list) else (type(value), *value)
            else:
                parts = value.__reduce_ex__(4)
            return f"({', '.join(self.text(tuple(p) if isinstance(p, Iterator) else p) for p in parts)})"
        except Exception:  # it cannot be pickled
            return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
        finally:
            self._open.pop()


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else hashlib.sha256(text.encode()).hexdigest()


def _is_users(code: Any) -> bool:
    """Whether a function or class is the user's: neither of this repository, nor installed, nor of Python."""
    file = getattr(getattr(code, "__code__", None), "co_filename", None)
    return _is_users_module(getattr(code, "__module__", None) or "", file)


def _is_users_module(module: str, file: str | None = None) -> bool:
    file = file or getattr(sys.modules.get(module), "__file__", None)
    if module in _MAIN or file is None or module.partition(".")[0] in _REPOSITORY:
        return module in _MAIN
    path = Path(file)
    installed = path.is_relative_to(sysconfig.get_path("stdlib")) or {"site-packages", "dist-packages"} & {*path.parts}
    return path.is_absolute() and not installed


def _scope(code: Any, nodes: list[Any]) -> dict[str, Any]:
    """Names that a function or class may use: globals, variables of outer functions, and its own imports."""
    scope = dict(getattr(code, "__globals__", None) or getattr(sys.modules.get(code.__module__), "__dict__", {}))
    with suppress(TypeError, ValueError):  # a class, or a variable without a value
        scope |= inspect.getclosurevars(code).nonlocals
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            first = (getattr(node, "module", None) or node.names[0].name).partition(".")[0]
            with suppress(ImportError, ValueError):
                if getattr(node, "level", 0) or _is_users_module(first, getattr(find_spec(first), "origin", None)):
                    exec(compile(ast.Module([node], []), "import", "exec"), scope)
    return scope


def _named(node: ast.AST, module: str, scope: Mapping[str, Any]) -> tuple[str, Any]:
    """Name and value of a global, or of an attribute of the user's module; the value is None for other nodes."""
    if isinstance(node, ast.Name):
        return f"{module}:{node.id}", scope.get(node.id)
    owner = _named(node.value, module, scope)[1] if isinstance(node, ast.Attribute) else None
    if isinstance(node, ast.Attribute) and isinstance(owner, ModuleType) and _is_users_module(owner.__name__):
        return f"{owner.__name__}:{node.attr}", vars(owner).get(node.attr)
    return "", None
