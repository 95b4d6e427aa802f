"""Answers of registries: documents of bounded size, and refusals as errors with a hint."""

import requests

from builder.documents import parse_object, shown
from builder.errors import ImageMissingError, RegistryError, RegistryLoginError
from builder.net.http import explain, redact
from builder.oci.spec import Place, Reference

_LARGEST_DOCUMENT = 16 << 20
"""Bytes of a manifest or config that are read; the specification lets registries refuse those over 4 MiB."""


def read(response: requests.Response, name: Reference, place: Place) -> bytes:
    content = bytearray()
    try:
        with response:
            if response.headers.get("Content-Type", "").startswith("text/html"):
                raise no_registry(name, place, "a web page")
            for block in response.iter_content(1 << 16):
                content += block
                if len(content) > _LARGEST_DOCUMENT:
                    raise no_registry(name, place, f"more than {_LARGEST_DOCUMENT >> 20} MiB")
    except requests.RequestException as problem:
        raise RegistryError(f"{name} from {place}: {explain(problem)}", hint="try again") from problem
    return bytes(content)


def no_registry(name: Reference, place: Place, found: str) -> RegistryError:
    return RegistryError(
        f"{place} answers a question for {name} with {found}",
        hint="is it a registry? A proxy may stand in between and want a login of its own",
    )


def altered(what: str, place: Place, expected: str, found: str) -> RegistryError:
    return RegistryError(
        f"{place} gives another content for {what} than its digest says\n"
        f"  expected {expected}\n  received {found}",
        hint="nothing was kept; a proxy or mirror in between may have altered it",
    )


def refusal(response: requests.Response, name: Reference, place: Place) -> RegistryError:
    """The error for a registry's refusal, by status, with the registry's own message if there is one."""
    status = response.status_code
    with response:
        said = _own_words(response)
    login = name.host if place.mirror_of is None else place.host
    if response.headers.get("Content-Type", "").startswith("text/html") and status < 500:
        return no_registry(name, place, f"a web page (HTTP {status})")
    if status == 404:
        hint = "check the name and the tag"
        if name.repository.endswith("nvidia/cuda"):
            hint = (
                "NVIDIA deletes the tags of CUDA releases that have ended, half a year later: take a newer "
                "tag, a mirror that kept it (--registry-mirror), or rootfs:debian/<suite> and CUDA's wheels"
            )
        # Only the specification's own error document says it for certain: a gateway answers 404, too.
        kind = ImageMissingError if said else RegistryError
        return kind(f"{name} does not exist in {place}{said}", hint=hint)
    if status in (401, 403):
        return RegistryLoginError(
            f"{place} does not show {name} without a login, or it does not exist{said}",
            hint=f"check the name; if it is private: docker login {login}",
        )
    if status == 429:
        return RegistryError(
            f"{place} has had too many requests from this address{said}",
            hint=f"wait, or docker login {login} for a higher limit, or use a mirror (--registry-mirror)",
        )
    what = "has a problem of its own" if status >= 500 else "refuses"
    return RegistryError(
        f"{place} {what}: HTTP {status} {response.reason} for {name}{said}", hint="try again later"
    )


def _own_words(response: requests.Response) -> str:
    """``errors[0].message`` if the answer is the specification's error document."""
    try:
        if int(response.headers.get("Content-Length", "0")) > _LARGEST_DOCUMENT:
            return ""
        first = parse_object(response.content)["errors"][0]
        words = first.get("message") or first.get("code") or ""
    except (requests.RequestException, ValueError, LookupError, TypeError, AttributeError):
        return ""
    return f" ({shown(redact(str(words)))})" if words else ""
