"""What the module of an import statement is: files of the project, or something external."""

from __future__ import annotations

from posixpath import normpath

from substrate.graph.parse import Import
from substrate.graph.resolve.project_view import ProjectView

_JS_ENDINGS = (
    *(b"", b".ts", b".tsx", b".d.ts", b".js", b".jsx", b".mjs", b".cjs", b".json"),
    *(b"/index.ts", b"/index.tsx", b"/index.js", b"/index.jsx", b"/index.mjs"),
)
_PYTHON_ENDINGS = (b".py", b"/__init__.py", b".pyi", b"/__init__.pyi")
_RUST_ENDINGS = (b".rs", b"/mod.rs")
_RUST_ROOTS = (b"lib.rs", b"main.rs")
#: An imported package means all of its files; this bounds very large generated packages.
_MOST_FILES = 64

FAMILIES = {
    "Python": "python",
    "JavaScript": "js", "TypeScript": "js", "TSX": "js",
    "Go": "go", "Rust": "rust", "Java": "java", "C": "c", "C++": "c", "Ruby": "ruby",
}  # fmt: skip


def find_module(view: ProjectView, path: bytes, family: str, found: Import) -> list[bytes]:
    """The project's files that the import names; empty if it is external. Not for Python."""
    finder = _FINDERS.get(family)
    return finder(view, path, found) if finder else []


def _first(view: ProjectView, base: bytes, endings: tuple[bytes, ...]) -> list[bytes]:
    for ending in endings:
        if base + ending and view.has(base + ending):
            return [base + ending]
    return []


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _join(directory: bytes, rest: bytes) -> bytes:
    return directory + b"/" + rest if directory and rest else directory or rest


def _directory(path: bytes) -> bytes:
    return path.rpartition(b"/")[0]


# -- Python ---------------------------------------------------------------------------------------


class PythonModules:
    """Files by dotted names. Answers are cached: every directory asks the same roots for `os`."""

    def __init__(self, view: ProjectView) -> None:
        self._view = view
        self._roots: dict[bytes, list[bytes]] = {}
        self._below: dict[bytes, dict[bytes, list[bytes]]] = {}

    def find(self, path: bytes, module: str, level: int) -> list[bytes]:
        view, directory = self._view, _directory(path)
        inner = _encode(module.replace(".", "/"))
        if level:
            for _ in range(level - 1):
                directory = _directory(directory)
            if not inner:
                package = (b"/__init__.py", b"/__init__.pyi")
                return _first(view, directory, package) if directory else []
            return _first(view, _join(directory, inner), _PYTHON_ENDINGS)
        if not view.may_have_module(inner.rpartition(b"/")[2]):
            return []
        if directory not in self._roots:
            self._roots[directory] = self._roots_above(directory)
        for root in self._roots[directory]:
            below = self._below.setdefault(root, {})
            hit = below.get(inner)
            if hit is None:
                hit = below[inner] = _first(view, _join(root, inner), _PYTHON_ENDINGS)
            if hit:
                return hit
        if b"/" in inner:  # a package whose root is not above us: tools/x importing lib/pkg/mod
            for ending in _PYTHON_ENDINGS:
                candidates = view.ending(inner + ending)
                if len(candidates) == 1:
                    return candidates
        return []

    def _roots_above(self, directory: bytes) -> list[bytes]:
        """Where an absolute import may start: directories above that are not packages."""
        roots = []
        while directory:
            if not self._view.has(directory + b"/__init__.py"):
                roots.append(directory)
            directory = _directory(directory)
        return [*roots, b"", b"src", b"lib", b"python"]


# -- JavaScript -----------------------------------------------------------------------------------


def _js(view: ProjectView, path: bytes, found: Import) -> list[bytes]:
    module = found.module
    if module.startswith("."):
        base = _encode(
            normpath(f"./{_directory(path).decode('utf-8', 'surrogateescape')}/{module}")
        )
        base = b"" if base == b"." else base
    elif module.startswith(("@/", "~/")):
        base = b"src/" + _encode(module[2:])
    else:
        return []
    if base.startswith(b".."):
        return []
    hit = _first(view, base, _JS_ENDINGS)
    if not hit and base.endswith((b".js", b".jsx", b".mjs")):
        # TypeScript imports name the file that the compiler will write.
        hit = _first(view, base.rpartition(b".")[0], (b".ts", b".tsx"))
    return hit


# -- Go, Java -------------------------------------------------------------------------------------


def _go(view: ProjectView, path: bytes, found: Import) -> list[bytes]:
    directory = _directory(path)
    while True:
        manifest = _join(directory, b"go.mod")
        outline = view.outline(manifest)
        if outline is not None:
            break
        if not directory:
            return []
        directory = _directory(directory)
    module = outline.package
    if found.module != module and not found.module.startswith(module + "/"):
        return []
    inside = _encode(found.module[len(module) + 1 :])
    files = view.inside(_join(directory, inside))
    return [f for f in files if f.endswith(b".go") and not f.endswith(b"_test.go")][:_MOST_FILES]


def _java(view: ProjectView, path: bytes, found: Import) -> list[bytes]:
    name = found.names[0][0]
    if found.level:  # import static com.x.Type.member
        return _java_type(view, found.module)
    if name != "*":
        return _java_type(view, f"{found.module}.{name}")
    inner = _encode(found.module.replace(".", "/"))
    hits: list[bytes] = []
    above = path
    while above:
        above = _directory(above)
        hits = [p for p in view.inside(_join(above, inner)) if p.endswith(b".java")]
        if hits:
            break
    return hits[:_MOST_FILES]


def _java_type(view: ProjectView, name: str) -> list[bytes]:
    while name:
        hits = view.ending(_encode(name.replace(".", "/")) + b".java")
        if hits:
            return hits[:1]
        name = name.rpartition(".")[0]  # a nested type: its file is the outer one's
        if name.rpartition(".")[2][:1].islower():
            break
    return []


# -- Rust -----------------------------------------------------------------------------------------


def _rust(view: ProjectView, path: bytes, found: Import) -> list[bytes]:
    name = found.names[0][0] if found.names else ""
    parts = [part for part in found.module.split("::") if part]
    if name and name != "*":
        parts.append(name)
    if not parts:
        return []
    base = _rust_base(view, path, parts)
    if base is None:
        return []
    directory, rest = base
    # The longest path that is a file; what follows are items in it.
    for count in range(len(rest), 0, -1):
        hit = _first(view, _join(directory, _encode("/".join(rest[:count]))), _RUST_ENDINGS)
        if hit and hit[0] != path:
            return hit
    if rest == parts:
        return []
    return [f for f in _rust_self(view, directory) if f != path]


def _rust_self(view: ProjectView, directory: bytes) -> list[bytes]:
    """The file whose submodules are in `directory`."""
    for name in (*_RUST_ROOTS, b"mod.rs"):
        if view.has(_join(directory, name)):
            return [_join(directory, name)]
    return [directory + b".rs"] if directory and view.has(directory + b".rs") else []


def _rust_base(view: ProjectView, path: bytes, parts: list[str]) -> tuple[bytes, list[str]] | None:
    stem = path.rpartition(b"/")[2]
    directory = _directory(path)
    own = directory if stem in (*_RUST_ROOTS, b"mod.rs") else path.removesuffix(b".rs")
    first = parts[0]
    if first == "self":
        return own, parts[1:]
    if first == "super":
        up, rest = _directory(own), parts[1:]
        while rest and rest[0] == "super":
            up, rest = _directory(up), rest[1:]
        return up, rest
    if first == "crate":
        root = directory
        while root and not any(view.has(_join(root, name)) for name in _RUST_ROOTS):
            root = _directory(root)
        return root, parts[1:]
    # Another crate of the same workspace, or a module beside us (`use util::x` after `mod util`).
    crate = _encode(first)
    for name in (crate, crate.replace(b"_", b"-")):
        hits = view.ending(name + b"/src/lib.rs")
        if len(hits) == 1:
            return _directory(hits[0]), parts[1:]
    return (own, parts) if _first(view, _join(own, crate), _RUST_ENDINGS) else None


# -- C, Ruby --------------------------------------------------------------------------------------


def _c(view: ProjectView, path: bytes, found: Import) -> list[bytes]:
    name = _encode(found.module)
    directory = _directory(path)
    if found.level:
        near = _encode(normpath(_join(directory, name).decode("utf-8", "surrogateescape")))
        if view.has(near):
            return [near]
    while True:
        for root in (directory, _join(directory, b"include"), _join(directory, b"src")):
            if view.has(_join(root, name)):
                return [_join(root, name)]
        if not directory:
            break
        directory = _directory(directory)
    candidates = view.ending(name) if found.level or b"/" in name else []
    return candidates if len(candidates) == 1 else []


def _ruby(view: ProjectView, path: bytes, found: Import) -> list[bytes]:
    name = _encode(found.module.removesuffix(".rb")) + b".rb"
    if found.level:
        joined = _join(_directory(path), name).decode("utf-8", "surrogateescape")
        near = normpath(joined).encode("utf-8", "surrogateescape")
        return [near] if view.has(near) else []
    for root in (b"lib", b"", b"app"):
        if view.has(_join(root, name)):
            return [_join(root, name)]
    candidates = view.ending(b"lib/" + name)
    return candidates if len(candidates) == 1 else []


_FINDERS = {
    "js": _js,
    "go": _go,
    "java": _java,
    "rust": _rust,
    "c": _c,
    "ruby": _ruby,
}
