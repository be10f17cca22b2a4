"""The environment of commands that the agent runs: an allowlist, since any name can hold a secret."""

import fnmatch
from collections.abc import Iterable, Mapping

from hermes_core.own_commands import MARKER
from hermes_core.secrets import holds_secret

_NAMES = frozenset((
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TERM", "COLORTERM",
    "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CI", "TMPDIR", "TMP", "TEMP", "HOSTNAME",
    "EDITOR", "VISUAL", "PAGER", "HERMES_HOME",
    # the network
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO", "PIP_CERT", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL",
    "UV_INDEX_URL", "UV_DEFAULT_INDEX", "NPM_CONFIG_REGISTRY", "GOPROXY", "GOPRIVATE", "GONOSUMDB",
    # toolchains
    "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "CONDA_EXE", "PYENV_ROOT", "PYENV_VERSION",
    "PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONIOENCODING", "PYTHONUTF8",
    "PIPX_HOME", "POETRY_HOME", "UV_CACHE_DIR", "UV_PYTHON", "JAVA_HOME", "JDK_HOME", "MAVEN_HOME",
    "M2_HOME", "GRADLE_HOME", "GRADLE_USER_HOME", "ANDROID_HOME", "ANDROID_SDK_ROOT", "SDKMAN_DIR",
    "GOPATH", "GOROOT", "GOBIN", "GOCACHE", "GOMODCACHE", "GOFLAGS", "CARGO_HOME", "CARGO_TARGET_DIR",
    "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "RUSTFLAGS", "NVM_DIR", "NVM_BIN", "NODE_PATH", "NODE_ENV",
    "NODE_OPTIONS", "VOLTA_HOME", "PNPM_HOME", "BUN_INSTALL", "DENO_DIR", "FNM_DIR", "COREPACK_HOME",
    "GEM_HOME", "GEM_PATH", "RBENV_ROOT", "BUNDLE_PATH", "DOTNET_ROOT", "ASDF_DIR", "ASDF_DATA_DIR",
    "MISE_DATA_DIR", "NIX_PATH", "NIX_PROFILES", "NIX_SSL_CERT_FILE", "LOCALE_ARCHIVE",
    "LD_LIBRARY_PATH", "PKG_CONFIG_PATH", "CMAKE_PREFIX_PATH", "MANPATH", "CC", "CXX", "CFLAGS",
    "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "MAKEFLAGS", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES",
    "GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL",
))  # fmt: skip
_BEGINNINGS = ("LC_", "XDG_", "HOMEBREW_")
_ENDINGS = ("_PROXY", "_proxy")


def of_commands(environment: Mapping[str, str], more: Iterable[str] = ()) -> dict[str, str]:
    """Return what commands get of an environment; `more` are names that a person allows besides."""
    patterns = tuple(more)
    return {
        name: value
        for name, value in environment.items()
        if (_is_allowed(name) and not holds_secret(name, value))
        or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    } | {MARKER: "1"}


def _is_allowed(name: str) -> bool:
    return name in _NAMES or name.startswith(_BEGINNINGS) or name.endswith(_ENDINGS)
