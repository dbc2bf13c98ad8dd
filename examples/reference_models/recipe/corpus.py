"""The training text: the source of the Python standard library installed on this machine.

Three sections, each split *by file* (or by topic) into ``train`` and ``heldout``:

* ``stdlib``: modules of the standard library, without generated tables;
* ``tests``: the library's own test modules, when they are installed;
* ``topics``: the language reference text shipped in ``pydoc_data/topics.py`` (prose).

The split depends on nothing but the file's relative path (or the topic's name), so it is the same
on every machine; the text itself differs between Python versions, which :func:`differences` names
file by file.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import platform
import sysconfig
import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

HELDOUT_ONE_IN = 10
"""One file in ten is held out."""
TOPIC_HELDOUT_ONE_IN = 4
"""One topic in four is held out (there are few topics, and prompts come from held-out ones)."""
MAX_FILE_BYTES = 250_000
MAX_LINE_CHARS = 400
MIN_FILE_BYTES = 200
MIN_DOCSTRING_CHARS = 160

_SKIPPED_FOLDERS = {
    "site-packages", "dist-packages", "__pycache__", "encodings", "pydoc_data", "lib-dynload",
    "data", "cjkencodings", "encoded_modules", "crashers", "turtledemo", "leakers", "typinganndata",
}  # fmt: skip
_SKIPPED_FILES = {"stringprep.py", "html/entities.py", "this.py", "lib2to3/pgen2/conv.py"}
_TEST_FOLDERS = {"test", "tests", "idle_test"}


@dataclass(frozen=True)
class SourceFile:
    """One entry of ``corpus.json``: a file of the library, or a topic of its manual."""

    path: str
    section: str
    split: str
    bytes: int
    sha256: str


def stdlib_root() -> Path:
    """The folder of the running interpreter's standard library."""
    return Path(sysconfig.get_paths()["stdlib"])


def split_of(name: str, one_in: int = HELDOUT_ONE_IN) -> str:
    """``heldout`` for one name in ``one_in``, by the name's SHA-256; else ``train``."""
    digest = hashlib.sha256(name.encode("utf-8")).digest()
    return "heldout" if int.from_bytes(digest[:8], "big") % one_in == 0 else "train"


def _section(relative: str) -> str | None:
    parts = relative.split("/")
    if any(p in _SKIPPED_FOLDERS or p.startswith("config-") for p in parts[:-1]):
        return None
    if relative in _SKIPPED_FILES or parts[-1].startswith("_sysconfigdata"):
        return None
    return "tests" if any(p in _TEST_FOLDERS for p in parts[:-1]) else "stdlib"


def decode(raw: bytes) -> str | None:
    """The text of a usable module with unix line ends, or None for a table or an odd encoding."""
    if not MIN_FILE_BYTES <= len(raw) <= MAX_FILE_BYTES:
        return None
    try:
        text = raw.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
        ast.parse(text)
    except (UnicodeDecodeError, SyntaxError, ValueError):
        return None
    if "\f" in text or any(len(line) > MAX_LINE_CHARS for line in text.split("\n")):
        text = text.replace("\f", "")
        if any(len(line) > MAX_LINE_CHARS for line in text.split("\n")):
            return None
    return text


def topics() -> dict[str, str]:
    """The manual's topics, name to text (``pydoc_data.topics`` of the running interpreter)."""
    from pydoc_data import topics as module

    return dict(sorted(module.topics.items()))


def scan(root: Path | None = None, folders: tuple[str, ...] | None = None) -> list[SourceFile]:
    """List every usable file (of some folders only, if named) and topic, with hash and split."""
    root = root or stdlib_root()
    found: list[SourceFile] = []
    searched = [root] if folders is None else [root / f for f in folders]
    for path in sorted(p for folder in searched for p in folder.rglob("*.py")):
        relative = path.relative_to(root).as_posix()
        section = _section(relative)
        raw = path.read_bytes() if section else b""
        if section is None or decode(raw) is None:
            continue
        digest = hashlib.sha256(raw).hexdigest()
        found.append(SourceFile(relative, section, split_of(relative), len(raw), digest))
    for key, text in topics().items():
        name, raw = f"topics:{key}", text.encode("utf-8")
        split = split_of(name, TOPIC_HELDOUT_ONE_IN)
        digest = hashlib.sha256(raw).hexdigest()
        found.append(SourceFile(name, "topics", split, len(raw), digest))
    return found


def hash_file(path: Path) -> str:
    """SHA-256 of a file, as the list has it."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_manifest(path: Path, files: list[SourceFile]) -> None:
    """Write ``corpus.json``: one line per file, so that differences read well."""
    head = {"python": platform.python_version(), "license": "PSF-2.0"}
    rows = ",\n  ".join(json.dumps(asdict(f)) for f in files)
    body = json.dumps(head)[1:-1]
    path.write_text(f'{{{body}, "files": [\n  {rows}\n]}}\n', encoding="utf-8")


def read_manifest(path: Path) -> list[SourceFile]:
    """The files of a ``corpus.json``."""
    data = json.loads(path.read_text(encoding="utf-8"))
    return [SourceFile(**row) for row in data["files"]]


def differences(listed: list[SourceFile], present: list[SourceFile]) -> list[str]:
    """One line per file that is missing, extra, or has another hash than the listed one."""
    here = {f.path: f.sha256 for f in present}
    there = {f.path: f.sha256 for f in listed}
    lines = [f"missing here: {p}" for p in there if p not in here]
    lines += [f"not in the list: {p}" for p in here if p not in there]
    lines += [f"other content: {p}" for p in there if p in here and here[p] != there[p]]
    return sorted(lines)


def read_text(file: SourceFile, root: Path | None = None) -> str:
    """The text of one listed file or topic, as the recipe uses it."""
    if file.section == "topics":
        return topics()[file.path.removeprefix("topics:")]
    text = decode(((root or stdlib_root()) / file.path).read_bytes())
    if text is None:
        raise ValueError(f"{file.path} is not usable text")
    return text


def docstrings(source: str) -> Iterator[str]:
    """The longer docstrings of a module, cleaned of their indentation, in source order."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            doc = ast.get_docstring(node, clean=False)
            if doc is not None and len(doc) >= MIN_DOCSTRING_CHARS:
                yield inspect.cleandoc(doc) + "\n"


def _paragraphs(text: str) -> list[str]:
    return [p for p in text.split("\n\n") if p.strip()]


def documents(
    files: list[SourceFile], split: str, sections: tuple[str, ...], root: Path | None = None
) -> list[str]:
    """The documents of one split.

    Topics repeat one another's paragraphs: a train topic loses every paragraph that a held-out
    topic also has, so nothing held out is trained on.
    """
    kept: set[str] = set()
    if split == "train" and "topics" in sections:
        for file in files:
            if file.section == "topics" and file.split == "heldout":
                kept.update(p.strip() for p in _paragraphs(read_text(file, root)))
    texts = []
    for file in files:
        if file.split != split or file.section not in sections:
            continue
        text = read_text(file, root)
        if kept and file.section == "topics":
            parts = [p for p in _paragraphs(text) if p.strip() not in kept]
            text = "\n\n".join(parts) + "\n"
        texts.append(text)
    return texts


def prose_documents(files: list[SourceFile], split: str, root: Path | None = None) -> list[str]:
    """Prose of one split: its topics, then the docstrings of its library modules, without twins."""
    texts = documents(files, split, ("topics",), root)
    seen: set[str] = set()
    for source in documents(files, split, ("stdlib",), root):
        for doc in docstrings(source):
            if doc not in seen:
                seen.add(doc)
                texts.append(doc)
    return texts


def parses(text: str) -> bool:
    """Whether ``text`` is Python."""
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def functions(source: str) -> Iterator[str]:
    """The functions and methods of a module, each moved to the margin."""
    lines = source.split("\n")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            text = textwrap.dedent("\n".join(lines[first - 1 : node.end_lineno]) + "\n")
            if parses(text):
                yield text


def function_documents(files: list[SourceFile], split: str) -> list[str]:
    """The functions and methods of the library modules of one split, each a document."""
    modules = documents(files, split, ("stdlib",))
    return list(dict.fromkeys(f for source in modules for f in functions(source)))
