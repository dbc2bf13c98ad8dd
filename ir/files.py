"""Atomic files and folders: written under a temporary name first, then renamed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.resources.abc import Traversable
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

from specplan.ir.errors import UsageError


def write_atomic(path: Path | str, data: str | bytes) -> None:
    """Write `data` to `path` so that a reader sees the old file or the whole new one.

    Raises:
        OSError: when the folder cannot be made or written; names `path`.
        UsageError: when `path` is a folder.
    """
    path = Path(path)
    if path.is_dir():
        raise UsageError("this is a folder", where=str(path), remedy="Give the name of a file.")
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = data.encode("utf-8") if isinstance(data, str) else data
    with _errors_of(path):
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(raw)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


@contextmanager
def _errors_of(path: Path) -> Iterator[None]:
    """Let errors of the system name what was to be written, not the temporary name beside it."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


def write_json_atomic(path: Path | str, value: Any) -> None:
    """Write `value` as indented JSON with sorted keys, atomically."""
    write_atomic(path, json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n")


def check_exists(path: Path) -> None:
    """Refuse a path at which nothing is."""
    if not path.exists():
        what = "there is no such file or folder"
        raise UsageError(what, where=str(path), remedy="Check the path.")


def read_text(
    path: Path | str, what: str = "file", remedy: str = "Check the path and its permissions."
) -> str:
    """Read a UTF-8 text file.

    Args:
        path: the file.
        what: how messages call it.
        remedy: what to do when it cannot be read.

    Raises:
        UsageError: when it is missing, a folder or no UTF-8 text; names `what` and the path.
    """
    path = Path(path)
    if path.is_dir():
        wrong = f"cannot read the {what} (it is a folder)"
        raise UsageError(wrong, where=str(path), remedy="Give the path of a file.")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        wrong = f"the {what} is not UTF-8 text (byte {error.start})"
        raise UsageError(wrong, where=str(path), remedy="Save it as UTF-8.") from error
    except OSError as error:
        raise UsageError(
            f"cannot read the {what} ({error.strerror})", where=str(path), remedy=remedy
        ) from error


def read_json(path: Path | str, what: str = "JSON file") -> Any:
    """Read a JSON document.

    Raises:
        UsageError: when the file is missing or is not JSON; names `what` and the path.
    """
    text = read_text(path, what)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"the {what} is not valid JSON ({error})",
            where=str(path),
            remedy="Make it again, or restore it from where it came.",
        ) from error


def read_document(
    path: Path | str,
    what: str,
    version: int,
    remedy: str,
    kind: str | None = None,
    older: tuple[int, ...] = (),
) -> dict[str, Any]:
    """Read a JSON object that says of itself what it is: its `schema_version` and perhaps `kind`.

    Args:
        path: the file.
        what: how messages call it.
        version: of its schema.
        remedy: what to do where it is something else.
        kind: what it must be; None where files of this schema name no kind.
        older: versions that are read too.

    Raises:
        UsageError: the file is missing, no JSON, something else or of another version.
    """
    document = read_json(path, what)
    if not isinstance(document, dict) or kind not in (None, document.get("kind")):
        raise UsageError(f"the file holds no {what}", where=str(path), remedy=remedy)
    if document.get("schema_version") not in (version, *older):
        raise UsageError(
            f"the {what} of schema version {document.get('schema_version')!r}; {version} is read",
            where=str(path),
            remedy=remedy,
        )
    return document


def stems(folder: Traversable, ending: str = ".yaml") -> tuple[str, ...]:
    """Names of the files of a folder with such an ending, without it, in order."""
    names = (entry.name for entry in folder.iterdir())
    return tuple(sorted(name.removesuffix(ending) for name in names if name.endswith(ending)))


def modules_of(package: str, folder: Iterable[str]) -> dict[str, ModuleType]:
    """The modules of a package by their names, in order; imports all.

    Args:
        package: its full name.
        folder: its `__path__`.
    """
    names = sorted(module.name for module in iter_modules(folder))
    return {name: import_module(f"{package}.{name}") for name in names}


def sha256_bytes(data: bytes) -> str:
    """Hexadecimal sha256 of `data`."""
    return hashlib.sha256(data).hexdigest()


def name_of(text: str) -> str:
    """A name for what a text says: 16 hexadecimal digits of its sha256."""
    return sha256_bytes(text.encode())[:16]


def sha256_file(path: Path | str) -> str:
    """Hexadecimal sha256 of a file's bytes."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_FILE_DIGESTS: dict[tuple[str, int, int], str] = {}


def known_sha256(path: Path) -> str:
    """`sha256_file`, remembered in this process by path, size and time of last change."""
    status = path.stat()
    key = (str(path.resolve()), status.st_size, status.st_mtime_ns)
    return _FILE_DIGESTS.get(key) or _FILE_DIGESTS.setdefault(key, sha256_file(path))


GGUF = ".gguf"


def gguf_parts(path: Path) -> tuple[Path, ...]:
    """The files of a GGUF model: all parts where the name is as `name-00001-of-00003.gguf`."""
    name, *rest = path.stem.rsplit("-", 3)
    if len(rest) != 3 or rest[1] != "of" or any(len(n) != 5 or not n.isdigit() for n in rest[::2]):
        return (path,)
    count = int(rest[2])
    return tuple(path.with_name(f"{name}-{i:05d}-of-{rest[2]}{GGUF}") for i in range(1, count + 1))


def model_digest(folder: Path | str) -> str:
    """Identity of a checkpoint: sha256 over the names and sha256 of config.json and weights.

    The weights are every `*.safetensors` file directly in the folder, in order of name; tokenizer
    files do not count. Of a GGUF model, its files.

    Raises:
        UsageError: when there is no such folder, it has no config.json or no weights, or a file is
            missing.
    """
    folder = Path(folder)
    check_exists(folder)
    if folder.suffix == GGUF and not folder.is_dir():
        for part in gguf_parts(folder):
            check_exists(part)
        return files_digest(gguf_parts(folder))
    config = folder / "config.json"
    weights = sorted(folder.glob("*.safetensors"))
    missing = "config.json" if not config.is_file() else "*.safetensors file" if not weights else ""
    if missing:
        raise UsageError(
            f"the checkpoint folder has no {missing}",
            where=str(folder),
            remedy="Point to a folder written by transformers' save_pretrained.",
        )
    return files_digest([config, *weights])


def quantized_digest(digest: str, form: str) -> str:
    """Identity of a checkpoint whose matrices are rounded to a format as it is loaded."""
    return sha256_bytes(f"{digest} {form}".encode())


def cached_digest(digest: str, form: str) -> str:
    """Identity of a model whose keys and values are rounded to a format as they are stored."""
    return sha256_bytes(f"{digest} caches {form}".encode())


def files_digest(paths: Iterable[Path]) -> str:
    """Identity of some files: sha256 over their names and sha256, in the order given."""
    return sha256_bytes("".join(f"{p.name} {known_sha256(p)}\n" for p in paths).encode())


def check_destination(folder: Path, marker: str, what: str) -> None:
    """Refuse to write a folder over anything but one of its kind or an empty one.

    Args:
        folder: where it is to be.
        marker: the file by which its kind is known.
        what: how messages call its kind.

    Raises:
        UsageError: names the folder.
    """
    if folder.is_dir() and any(folder.iterdir()) and not _is_ours(folder / marker):
        raise UsageError(
            f"the folder is not empty and holds no {what}",
            where=str(folder),
            remedy="Choose another folder for --out.",
        )
    if folder.exists() and not folder.is_dir():
        raise UsageError("this is a file", where=str(folder), remedy="Choose a folder for --out.")


def _is_ours(marker: Path) -> bool:
    """Whether a file of that name is one that specplan wrote; others use such names too."""
    try:
        document = read_json(marker)
    except UsageError:
        return False
    return isinstance(document, dict) and "schema_version" in document


@contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """An empty folder to write in, which takes the place of `folder` when all went well."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _errors_of(folder):
        staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        yield staging
        staging.chmod(0o755)
        _put_in_place(staging, folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _put_in_place(staging: Path, folder: Path) -> None:
    """Rename the finished folder to its name; an earlier one steps aside first."""
    if not folder.exists():
        staging.rename(folder)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{folder.name}.old.", dir=folder.parent))
    folder.rename(old / "replaced")
    staging.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
