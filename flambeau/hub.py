"""`torch.hub`: models from a folder or a GitHub repository that has a `hubconf.py`; checkpoints.

Loading a repository runs its code. One that was not used before has to be confirmed, see
`trust_repo`.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import re
import shutil
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlparse
from urllib.request import Request, urlopen

import flambeau as torch
from flambeau.ir.lock import fork_safe_lock

__all__ = [
    "download_url_to_file",
    "get_dir",
    "help",
    "list",
    "load",
    "load_state_dict_from_url",
    "set_dir",
]

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")  # model-8a3f1c2b.pth
_TRUSTED_REPO_OWNERS = (
    "facebookresearch",
    "facebookincubator",
    "pytorch",
    "fairinternal",
)
ENV_GITHUB_TOKEN = "GITHUB_TOKEN"
ENV_TORCH_HOME = "TORCH_HOME"
ENV_XDG_CACHE_HOME = "XDG_CACHE_HOME"
DEFAULT_CACHE_DIR = "~/.cache"
VAR_DEPENDENCY = "dependencies"
MODULE_HUBCONF = "hubconf.py"
READ_DATA_CHUNK = 128 * 1024

_hub_dir: str | None = None
_importing_hubconf = fork_safe_lock(level=1)


class tqdm:  # noqa: N801 - replaces the package's class
    """A progress bar in text, where the package `tqdm` is not installed."""

    def __init__(
        self,
        total: int | None = None,
        disable: bool = False,
        unit: str | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        self.total, self.disable, self.n = total, disable, 0

    def update(self, n: int) -> None:
        """Counts."""
        self.n += n
        if self.disable:
            return
        share = f"{100 * self.n / self.total:.1f}%" if self.total else f"{self.n} bytes"
        sys.stderr.write(f"\r{share}")
        sys.stderr.flush()

    def close(self) -> None:
        """Ends the line."""
        if not self.disable:
            sys.stderr.write("\n")

    def __enter__(self) -> tqdm:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _progress_bar() -> Any:
    try:
        from tqdm import tqdm as installed
    except ImportError:
        return tqdm
    return installed


def _get_torch_home() -> str:
    cache = os.path.join(os.getenv(ENV_XDG_CACHE_HOME, DEFAULT_CACHE_DIR), "torch")
    return os.path.expanduser(os.getenv(ENV_TORCH_HOME, cache))


def get_dir() -> str:
    """Where repositories and checkpoints are stored: `set_dir`, `$TORCH_HOME/hub`, or the cache."""
    return _hub_dir if _hub_dir is not None else os.path.join(_get_torch_home(), "hub")


def set_dir(d: str | os.PathLike[str]) -> None:
    """Sets where repositories and checkpoints are stored."""
    global _hub_dir
    _hub_dir = os.path.expanduser(d)


# -------------------------------------------------------------------------------------------------
# Downloads


def _headers() -> dict[str, str]:
    return {"User-Agent": "torch.hub"}


def download_url_to_file(
    url: str, dst: str, hash_prefix: str | None = None, progress: bool = True
) -> None:
    """Downloads a file; it appears under its name when it is complete.

    Args:
        url: its address, `file:` and `https:` among others.
        dst: the path.
        hash_prefix: first digits of its SHA-256.
        progress: shows a bar on standard error.

    Raises:
        RuntimeError: another hash; the file is deleted.
    """
    dst = os.path.expanduser(dst)
    digest = hashlib.sha256()
    with urlopen(Request(url, headers=_headers())) as source:
        length = source.headers.get("Content-Length")
        total = int(length) if length else None
        handle, partial = tempfile.mkstemp(
            prefix=os.path.basename(dst) + ".", suffix=".partial", dir=os.path.dirname(dst) or "."
        )
        try:
            with os.fdopen(handle, "wb") as target, _progress_bar()(
                total=total, disable=not progress, unit="B", unit_scale=True, unit_divisor=1024
            ) as bar:  # fmt: skip
                while chunk := source.read(READ_DATA_CHUNK):
                    target.write(chunk)
                    digest.update(chunk)
                    bar.update(len(chunk))
            _check_hash(digest.hexdigest(), hash_prefix)
            os.chmod(partial, 0o666 & ~_umask())
            shutil.move(partial, dst)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.remove(partial)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _check_hash(digest: str, prefix: str | None) -> None:
    if prefix is not None and digest[: len(prefix)] != prefix:
        raise RuntimeError(
            f'invalid hash value (expected "{prefix}", got "{digest}")\n'
            "hint: the file is not the one that was published; download it again"
        )


def _is_legacy_zip_format(filename: str) -> bool:
    """Whether a file is an archive of one pickled checkpoint, and not a checkpoint itself."""
    if not zipfile.is_zipfile(filename):
        return False
    with zipfile.ZipFile(filename) as archive:
        names = archive.namelist()
    return not any(name.endswith(("/version", "/data.pkl", ".data/version")) for name in names)


def _legacy_zip_load(filename: str, model_dir: str, map_location: Any, weights_only: bool) -> Any:
    with zipfile.ZipFile(filename) as archive:
        members = archive.infolist()
        if len(members) != 1:
            raise RuntimeError(
                "[load_state_dict_from_url] Only one file(not dir) is allowed in the zipfile\n"
                f"hint: {filename} has {len(members)}"
            )
        archive.extractall(model_dir)
        path = os.path.join(model_dir, members[0].filename)
    return torch.load(path, map_location=map_location, weights_only=weights_only)


def load_state_dict_from_url(
    url: str,
    model_dir: str | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = False,
) -> Any:
    """A checkpoint by its address; downloaded once, then read from its folder.

    Args:
        url: its address.
        model_dir: the folder; `<get_dir()>/checkpoints` when None.
        map_location: of `torch.load`.
        progress: shows a bar on standard error.
        check_hash: the file name holds the first digits of its SHA-256: `model-<digits>.pth`.
        file_name: name in the folder; the address's last part when None.
        weights_only: of `torch.load`.
    """
    if os.getenv("TORCH_MODEL_ZOO"):
        warnings.warn("TORCH_MODEL_ZOO is deprecated, please use env TORCH_HOME", stacklevel=2)
    folder = os.path.join(get_dir(), "checkpoints") if model_dir is None else model_dir
    os.makedirs(folder, exist_ok=True)
    name = os.path.basename(urlparse(url).path) if file_name is None else file_name
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        sys.stderr.write(f'Downloading: "{url}" to {path}\n')
        match = HASH_REGEX.search(name) if check_hash else None
        download_url_to_file(url, path, match[1] if match else None, progress=progress)
    if _is_legacy_zip_format(path):
        return _legacy_zip_load(path, folder, map_location, weights_only)
    return torch.load(path, map_location=map_location, weights_only=weights_only)


# -------------------------------------------------------------------------------------------------
# Repositories of GitHub


def _git_archive_link(repo_owner: str, repo_name: str, ref: str) -> str:
    return f"https://github.com/{repo_owner}/{repo_name}/zipball/{ref}"


def _read_url(url: Any) -> str:
    with urlopen(url) as response:
        return str(response.read().decode(response.headers.get_content_charset("utf-8")))


def _parse_repo_info(github: str) -> tuple[str, str, str]:
    """Owner, name and branch or tag of "owner/name" or "owner/name:ref"."""
    info, _, ref = github.partition(":")
    owner, _, name = info.partition("/")
    if not name:
        raise ValueError(
            f"[hub] {github!r} does not name a repository\nhint: 'owner/name' or 'owner/name:ref'"
        )
    return owner, name, ref or _default_branch(owner, name)


def _default_branch(owner: str, name: str) -> str:
    try:
        with urlopen(f"https://github.com/{owner}/{name}/tree/main/"):
            return "main"
    except HTTPError as error:
        if error.code == 404:
            return "master"
        raise
    except URLError as error:
        for ref in ("main", "master"):
            if os.path.exists(f"{get_dir()}/{owner}_{name}_{ref}"):
                return ref
        raise RuntimeError(
            "It looks like there is no internet connection and the repo could not be found in the "
            f"cache ({get_dir()})\nhint: pass a local folder and source='local'"
        ) from error


def _validate_not_a_forked_repo(repo_owner: str, repo_name: str, ref: str) -> None:
    """Checks that a branch or tag is one of the repository's own: links also find forks'."""
    headers = {"Accept": "application/vnd.github.v3+json"}
    token = os.environ.get(ENV_GITHUB_TOKEN)
    if token is not None:
        headers["Authorization"] = f"token {token}"
    for kind in ("branches", "tags"):
        page = 0
        while True:
            page += 1
            prefix = f"https://api.github.com/repos/{repo_owner}/{repo_name}/{kind}"
            entries = json.loads(
                _read_url(Request(f"{prefix}?per_page=100&page={page}", headers=headers))
            )
            if not entries:
                break
            if any(e["name"] == ref or e["commit"]["sha"].startswith(ref) for e in entries):
                return
    raise ValueError(
        f"Cannot find {ref} in https://github.com/{repo_owner}/{repo_name}. If it's a commit from "
        "a forked repo, please call hub.load() with forked repo directly."
    )


def _check_repo_is_trusted(
    repo_owner: str, repo_name: str, owner_name_branch: str, trust_repo: Any
) -> None:
    """Prompts, records the answer or raises, before code of a repository runs."""
    path = Path(get_dir()) / "trusted_list"
    path.touch(exist_ok=True)
    owner_name = f"{repo_owner}_{repo_name}"
    trusted = {line.strip() for line in path.read_text().splitlines()}
    is_trusted = (
        owner_name in trusted
        or repo_owner in _TRUSTED_REPO_OWNERS
        or (trust_repo == "check" and (Path(get_dir()) / owner_name_branch).is_dir())
    )
    if trust_repo not in (True, False, "check", None):
        raise ValueError(f"[hub] trust_repo={trust_repo!r}\nhint: True, False or 'check'")
    if trust_repo is False or (trust_repo in ("check", None) and not is_trusted):
        answer = input(
            f"The repository {owner_name} does not belong to the list of trusted repositories and "
            "as such cannot be downloaded. Do you trust this repository and wish to add it to the "
            "trusted list of repositories (y/N)?"
        )
        if answer.lower() not in ("y", "yes"):
            raise Exception("Untrusted repository.")  # noqa: TRY002 - PyTorch's type
    if owner_name not in trusted and not (trust_repo == "check" and is_trusted):
        with path.open("a") as file:
            file.write(owner_name + "\n")


def _safe_extract_zip(archive: zipfile.ZipFile, extract_to: str) -> None:
    """Extracts members that stay inside of the folder.

    Raises:
        ValueError: a member's path leads out.
    """
    root = os.path.realpath(extract_to)
    for member in archive.infolist():
        target = os.path.realpath(os.path.join(root, member.filename))
        if target != root and not target.startswith(root + os.sep):
            raise ValueError(
                f"[hub] {member.filename!r} leads out of the archive's folder\n"
                "hint: the archive is not what it should be"
            )
    archive.extractall(root)


def _get_cache_or_reload(
    github: str,
    force_reload: bool,
    trust_repo: Any,
    calling_fn: str = "load",
    verbose: bool = True,
    skip_validation: bool = False,
) -> str:
    """The folder of a repository, downloaded where it is not there yet."""
    os.makedirs(get_dir(), exist_ok=True)
    owner, name, ref = _parse_repo_info(github)
    stem = "_".join([owner, name, ref.replace("/", "_")])
    folder = os.path.join(get_dir(), stem)
    _check_repo_is_trusted(owner, name, stem, trust_repo)
    if not force_reload and os.path.exists(folder):
        if verbose:
            sys.stderr.write(f"Using cache found in {folder}\n")
        return folder
    if not skip_validation:
        _validate_not_a_forked_repo(owner, name, ref)
    url = _git_archive_link(owner, name, ref)
    sys.stdout.write(f'Downloading: "{url}" to {folder}.zip\n')
    with tempfile.TemporaryDirectory(dir=get_dir()) as scratch:
        path = os.path.join(scratch, "archive.zip")
        download_url_to_file(url, path, progress=False)
        with zipfile.ZipFile(path) as archive:
            top = archive.namelist()[0].split("/")[0]
            _safe_extract_zip(archive, scratch)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.move(os.path.join(scratch, top), folder)
    return folder


# -------------------------------------------------------------------------------------------------
# hubconf.py


@contextlib.contextmanager
def _add_to_sys_path(path: str) -> Iterator[None]:
    sys.path.insert(0, path)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(path)


def _import_module(name: str, path: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"[hub] {path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _check_module_exists(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def _check_dependencies(m: Any) -> None:
    missing = [
        name for name in getattr(m, VAR_DEPENDENCY, None) or () if not _check_module_exists(name)
    ]
    if missing:
        raise RuntimeError(f"Missing dependencies: {', '.join(missing)}\nhint: install them")


def _load_attr_from_module(module: Any, func_name: str) -> Any:
    return getattr(module, func_name, None)


def _load_entry_from_hubconf(m: Any, model: str) -> Any:
    if not isinstance(model, str):
        raise ValueError("Invalid input: model should be a string of function name")
    _check_dependencies(m)
    function = _load_attr_from_module(m, model)
    if function is None or not callable(function):
        raise RuntimeError(f"Cannot find callable {model} in hubconf\nhint: see torch.hub.list")
    return function


def _hubconf(folder: str) -> Any:
    with _importing_hubconf, _add_to_sys_path(folder):
        return _import_module(MODULE_HUBCONF, os.path.join(folder, MODULE_HUBCONF))


def list(  # noqa: A001 - PyTorch's name
    github: str,
    force_reload: bool = False,
    skip_validation: bool = False,
    trust_repo: Any = "check",
    verbose: bool = True,
) -> Any:
    """Names of a repository's models.

    Args:
        github: "owner/name", or "owner/name:branch".
        force_reload: downloads it again.
        skip_validation: does not query GitHub whether the branch is the repository's own.
        trust_repo: True runs its code without a prompt, False always prompts, "check" prompts the
            first time.
        verbose: says when the stored repository is used.
    """
    folder = _get_cache_or_reload(
        github, force_reload, trust_repo, "list", verbose=verbose, skip_validation=skip_validation
    )
    conf = _hubconf(folder)
    return [name for name in dir(conf) if callable(getattr(conf, name)) and name[0] != "_"]


def help(  # noqa: A001 - PyTorch's name
    github: str,
    model: str,
    force_reload: bool = False,
    skip_validation: bool = False,
    trust_repo: Any = "check",
) -> Any:
    """The docstring of a repository's model; see `list` for the arguments."""
    folder = _get_cache_or_reload(
        github, force_reload, trust_repo, "help", skip_validation=skip_validation
    )
    return _load_entry_from_hubconf(_hubconf(folder), model).__doc__


def load(
    repo_or_dir: str,
    model: str,
    *args: Any,
    source: str = "github",
    trust_repo: Any = "check",
    force_reload: bool = False,
    verbose: bool = True,
    skip_validation: bool = False,
    **kwargs: Any,
) -> Any:
    """A model of a repository: what the function of that name in its `hubconf.py` returns.

    Args:
        repo_or_dir: "owner/name", "owner/name:branch", or a folder.
        model: the function.
        args, kwargs: its arguments.
        source: "github" or "local".
        trust_repo, force_reload, verbose, skip_validation: see `list`.

    Raises:
        ValueError: another source.
        RuntimeError: no such function, or its dependencies are not installed.
    """
    source = source.lower()
    if source not in ("github", "local"):
        raise ValueError(
            f'Unknown source: "{source}". Allowed values: "github" | "local".\nhint: use one'
        )
    folder = repo_or_dir
    if source == "github":
        folder = _get_cache_or_reload(
            repo_or_dir,
            force_reload,
            trust_repo,
            "load",
            verbose=verbose,
            skip_validation=skip_validation,
        )
    return _load_local(folder, model, *args, **kwargs)


def _load_local(hubconf_dir: str, model: str, *args: Any, **kwargs: Any) -> Any:
    with _importing_hubconf, _add_to_sys_path(hubconf_dir):
        conf = _import_module(MODULE_HUBCONF, os.path.join(hubconf_dir, MODULE_HUBCONF))
        return _load_entry_from_hubconf(conf, model)(*args, **kwargs)
