"""In-toto statements, and those of a registry that is not trusted: sizes, digests, subjects are checked; and
their signatures, by cosign.

A statement is a predicate about digests:
https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md. A document that two parsers could read
in two ways (a key twice, NaN) is refused. Documents with a wrong digest, about another image, or that are no
statements are put aside with the reason. The reader has to consider that a registry can withhold evidence,
and that anyone with write access can attach unsigned evidence.

cosign makes the envelope, signs it, stores it beside the image and checks it; nothing of that is done here:
https://docs.sigstore.dev/cosign/verifying/attestation/. Tried with cosign 2.5. Secrets never stand on a
command line: the key's password comes from ``COSIGN_PASSWORD``, an identity token from the CI's own
variables, the registry's login from Docker's config.json; cosign reads all three itself.
"""

import base64
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, Self

from builder.core.digests import canonical_json
from builder.core.documents import MalformedError, parse_json, redact
from builder.core.errors import (
    CellError,
    CommandError,
    EvidenceError,
    ImageMissingError,
    MissingToolError,
    UsageError,
)
from builder.core.items import item
from builder.sources.oci import Descriptor, Kept, Reference, Registry, referrers, tag_of

MEDIA_TYPE = "application/vnd.in-toto+json"
PREDICATE_ANNOTATION = "in-toto.io/predicate-type"
"""BuildKit's name: https://github.com/moby/buildkit/blob/master/docs/attestations/attestation-storage.md"""

TYPE = "https://in-toto.io/Statement/v1"
_TYPES = frozenset({TYPE, "https://in-toto.io/Statement/v0.1"})
"""cosign 2 still writes v0.1 around the predicate; the fields used here are the same in both."""

TEST_RESULT = "https://in-toto.io/attestation/test-result/v0.1"
CYCLONEDX = "https://cyclonedx.org/bom"
PROVENANCE = "https://slsa.dev/provenance/v1"


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A predicate about images. ``subjects`` are digests, ``sha256:…``."""

    subjects: tuple[str, ...]
    predicate_type: str
    predicate: Mapping[str, Any]
    name: str = field(default="", compare=False)
    """The subject's name, for readers only."""

    @property
    def content(self) -> bytes:
        name = {"name": self.name} if self.name else {}
        subjects = [{**name, "digest": {"sha256": text.removeprefix("sha256:")}} for text in self.subjects]
        whole = {"_type": TYPE, "subject": subjects, "predicateType": self.predicate_type}
        return canonical_json({**whole, "predicate": self.predicate})


def parse_statement(content: bytes) -> Statement:
    """Raises EvidenceError for anything but a statement about sha256 digests that has one reading."""
    try:
        document = parse_json(content, strict=True)
    except MalformedError as error:
        raise EvidenceError(str(error)) from error
    if not isinstance(document, dict) or str(document.get("_type")) not in _TYPES:
        raise EvidenceError("it is no in-toto statement")
    match document:
        case {"subject": list(subjects), "predicateType": str(kind), "predicate": dict(predicate)}:
            return Statement(subjects=tuple(map(_digest, subjects)), predicate_type=kind, predicate=predicate)
        case _:
            raise EvidenceError("it is an in-toto statement without subject, type or predicate")


def _digest(subject: object) -> str:
    match subject:
        case {"digest": {"sha256": str(text)}} if re.fullmatch("[0-9a-f]{64}", text):
            return f"sha256:{text}"
    raise EvidenceError("it is an in-toto statement about something without a sha256 digest")


MOST = 256
"""Greatest number of statements that are read, from the end of the list."""
LARGEST = 16 << 20
"""Bytes of one statement."""
_LARGEST_IN_ALL = 64 << 20
_BUNDLE = "application/vnd.dev.sigstore.bundle"
"""The media type of cosign 3's attachments: https://docs.sigstore.dev/about/bundle/"""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A statement about the image. ``digest`` is its artifact's, empty if only cosign has it."""

    statement: Statement
    digest: str
    signed: bool = False


@dataclass(frozen=True, kw_only=True)
class Refused:
    digest: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Gathered:
    pieces: tuple[Piece, ...]
    refused: tuple[Refused, ...]
    kept: Kept
    signatures: bool
    """True if cosign signed something, whoever the signer was."""
    unread: int = 0
    """The number of statements that could not be read, and may speak against the image."""


def gather(registry: Registry, image: Reference) -> Gathered:
    """The statements that are attached to an image, which is named by digest.

    Raises RegistryError if the registry does not list the attached documents.
    """
    listing = referrers(registry, image)
    pieces: list[Piece] = []
    refused: list[Refused] = []
    unread = int(not listing.complete)
    if not listing.complete:
        refused.append(Refused(digest="", reason="the registry did not list all attached documents"))
    if listing.left_out:
        refused.append(Refused(digest="", reason=f"{listing.left_out} entries of the list were not read"))
    wanted = [d for d in listing.descriptors if d.artifact_type in (MEDIA_TYPE, None)]
    left = _LARGEST_IN_ALL
    for number, descriptor in enumerate(wanted):
        if number < len(wanted) - MOST or left <= 0:
            reason = f"more than {MOST} statements, or {_LARGEST_IN_ALL >> 20} MiB, are attached"
            refused.append(Refused(digest=descriptor.digest, reason=reason))
            continue
        try:
            with item(descriptor.digest):
                statement, size = _read(registry, image, descriptor)
        except CellError as error:
            refused.append(Refused(digest=descriptor.digest, reason=error.message))
            unread += not isinstance(error, (EvidenceError, ImageMissingError))
            continue
        left -= size
        pieces.append(Piece(statement=statement, digest=descriptor.digest))
    bundles = any((d.artifact_type or "").startswith(_BUNDLE) for d in listing.descriptors)
    # cosign 2's own tag: https://github.com/sigstore/cosign/blob/main/specs/SIGNATURE_SPEC.md
    tagged = registry.digest_of(image.tagged(f"{tag_of(image.digest or '')}.att")) is not None
    return Gathered(
        pieces=tuple(pieces),
        refused=tuple(refused),
        kept=listing.kept,
        unread=unread,
        signatures=bundles or tagged,
    )


def _read(registry: Registry, image: Reference, descriptor: Descriptor) -> tuple[Statement, int]:
    match registry.manifest(image.at(descriptor.digest)).document:
        case {"subject": {"digest": str(subject)}, "layers": [{"digest": str(digest), "size": int(size)}]}:
            pass
        case _:
            raise EvidenceError("its manifest is not that of one document about an image")
    if subject != image.digest:
        raise EvidenceError(f"it is attached to {subject}, which is another image")
    if not 0 < size <= LARGEST:
        raise EvidenceError(f"its manifest gives {size} bytes; up to {LARGEST >> 20} MiB are read")
    content = registry.blob(image, digest)
    if len(content) != size:
        raise EvidenceError(f"it has {len(content)} bytes, and its manifest says {size}")
    statement = parse_statement(content)
    if statement.subjects != (image.digest,):
        raise EvidenceError(f"it is a statement about {', '.join(statement.subjects) or 'nothing'}")
    return statement, size


TIMEOUT = 180.0
"""Seconds for one call: a key service or a transparency log may be slow."""
_LARGEST_OUTPUT = 64 << 20
_GITHUB = "https://github.com"
_NOTHING = re.compile(
    r"no (matching )?attestations|no signatures found|MANIFEST_UNKNOWN|none of the attestations"
)

_LARGEST_BUNDLE = 64 << 10
"""Greatest length of a bundle, in characters."""


@dataclass(frozen=True, kw_only=True)
class Signer:
    """The signer: the holder of ``key``, else the identity of the CI that runs this, by its token."""

    key: str | None = None
    """A key's file, or a key service's URI (``awskms://…``): private to sign, public to verify."""


@dataclass(frozen=True, kw_only=True)
class Verifier(Signer):
    """The accepted signer: a public key, or an identity and its issuer."""

    public: bytes | None = None
    """The key itself, if ``key`` names a private one."""
    identity: str | None = None
    issuer: str | None = None

    def __str__(self) -> str:
        return f"key {self.key}" if self.key else f"{self.identity} ({self.issuer})"

    def arguments(self) -> list[str]:
        if self.key:  # sigstore's public log has signatures of identities alone
            return ["--key", self.key, "--insecure-ignore-tlog=true", "--private-infrastructure=true"]
        return ["--certificate-identity", self.identity or "", "--certificate-oidc-issuer", self.issuer or ""]


def ci_identity(environment: Mapping[str, str]) -> tuple[str, str] | None:
    """The identity that this CI's token would give a signature, and its issuer; None if that is not known.

    For GitHub, whose certificates name the workflow's file and ref
    (https://github.com/sigstore/fulcio/blob/main/docs/oidc.md#github). Where one workflow calls another, they
    name the called one and GitHub's variable the caller: all is then signed again.
    """
    workflow = environment.get("GITHUB_WORKFLOW_REF")
    if environment.get("GITHUB_ACTIONS") != "true" or not workflow:
        return None
    if environment.get("GITHUB_SERVER_URL", _GITHUB) != _GITHUB:
        return None
    return f"{_GITHUB}/{workflow}", "https://token.actions.githubusercontent.com"


@dataclass(frozen=True, kw_only=True)
class Signed:
    """Statements whose signature cosign has verified; or why there are none."""

    statements: tuple[Statement, ...]
    reason: str = ""
    present: bool = True
    """False if cosign found nothing to verify."""


@dataclass(frozen=True, kw_only=True)
class Cosign:
    program: str

    @classmethod
    def find(cls) -> Self:
        """Raises MissingToolError."""
        program = shutil.which("cosign")
        if program is None:
            hint = "install cosign 2.4 or newer (Debian 13: apt-get install cosign), or do without"
            raise MissingToolError("cosign is not installed; it makes and checks the signatures", hint=hint)
        return cls(program=program)

    def sign(self, image: str, statement: Statement, signer: Signer) -> None:
        """Sign the predicate and store the envelope beside the image, which is named by digest.

        Raises CommandError if cosign refuses.
        """
        with tempfile.TemporaryDirectory(prefix="rtbuild-sign-") as folder:
            predicate = Path(folder) / "predicate.json"
            predicate.write_bytes(canonical_json(statement.predicate))
            words = ["attest", "--yes", "--type", statement.predicate_type, "--predicate", str(predicate)]
            done = self._run([*words, *_signing(signer), image])
        _refuse_failure(f"cosign did not sign the evidence of {image}", done, signer.key)

    def sign_text(self, text: bytes, signer: Signer) -> str:
        """A signature that stands beside ``text``, as cosign's own JSON. Raises CommandError."""
        with tempfile.TemporaryDirectory(prefix="rtbuild-sign-") as folder:
            blob, bundle = Path(folder) / "text", Path(folder) / "bundle"
            blob.write_bytes(text)
            words = ["sign-blob", "--yes", "--bundle", str(bundle), *_signing(signer), str(blob)]
            _refuse_failure("cosign did not sign", self._run(words), signer.key)
            return bundle.read_text("utf-8")

    def verify_text(self, text: bytes, signature: str, verifier: Verifier) -> str:
        """Why the signature does not hold; empty if it does. Never raises over a bad one."""
        with tempfile.TemporaryDirectory(prefix="rtbuild-sign-") as folder:
            blob, bundle = Path(folder) / "text", Path(folder) / "bundle"
            blob.write_bytes(text)
            bundle.write_text(signature, "utf-8")
            if verifier.public is not None:
                (Path(folder) / "key").write_bytes(verifier.public)
                verifier = replace(verifier, key=f"{folder}/key")
            done = self._run(["verify-blob", "--bundle", str(bundle), *verifier.arguments(), str(blob)])
        return _why_not(done)

    def public_key(self, key: str) -> bytes:
        """The public half of a private key. Raises CommandError."""
        done = self._run(["public-key", "--key", key])
        _refuse_failure(f"cosign cannot read the key {key}", done, key)
        return bytes(done.stdout)

    def verify(self, image: str, predicate_type: str, verifier: Verifier) -> Signed:
        """The statements of that type about the image whose signature holds. Never raises over a bad one."""
        words = ["verify-attestation", "--type", predicate_type, "--output", "json"]
        done = self._run([*words, *verifier.arguments(), image])
        if said := _why_not(done):
            return Signed(statements=(), reason=said, present=_NOTHING.search(said) is None)
        try:
            lines = [line for line in done.stdout.splitlines() if line.strip()]
            statements = [_payload(parse_json(line, strict=True)) for line in lines]
        except (EvidenceError, MalformedError) as error:
            return Signed(statements=(), reason=f"what cosign verified is no statement: {error}")
        return Signed(statements=tuple(s for s in statements if s.predicate_type == predicate_type))

    def _run(self, words: Sequence[str]) -> CompletedProcess[Any]:
        """The end of a command: its output as bytes, its complaints as text without credentials."""
        command = [self.program, *words]
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            try:
                done = subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    timeout=TIMEOUT,
                    check=False,
                    env={**os.environ, "COSIGN_YES": "true"},  # the answer to every question at a terminal
                )
            except subprocess.TimeoutExpired:
                return CompletedProcess(command, -1, b"", f"no end within {TIMEOUT:.0f} s")
            out.seek(0)
            err.seek(0)
            content = out.read(_LARGEST_OUTPUT + 1)
            if len(content) > _LARGEST_OUTPUT:
                return CompletedProcess(command, -1, b"", "it printed without end")
            said = redact(err.read(1 << 20).decode("utf-8", "replace"))
        return CompletedProcess(command, done.returncode, content, said)


def check_signatures(
    gathered: Gathered, cosign: Cosign, image: str, verifier: Verifier, kinds: tuple[str, ...]
) -> tuple[Gathered, tuple[str, ...]]:
    """The pieces with ``signed`` set on those that cosign verified, and why other kinds are not signed.

    A statement that cosign verified and no referrer repeats is evidence, too: a registry cannot hide it by
    withholding one of the two.
    """
    signed: list[Statement] = []
    reasons = []
    digest = image.rpartition("@")[2]
    for kind in kinds:
        found = cosign.verify(image, kind, verifier)
        signed += [statement for statement in found.statements if statement.subjects == (digest,)]
        if not found.statements:
            reasons.append(f"{kind}: {found.reason}" if found.present else f"{kind}: not signed")
    pieces = [replace(piece, signed=piece.statement in signed) for piece in gathered.pieces]
    for statement in signed:
        if statement not in [piece.statement for piece in pieces]:
            pieces.append(Piece(statement=statement, digest="", signed=True))
    done = replace(gathered, pieces=tuple(pieces), signatures=gathered.signatures or bool(signed))
    return done, tuple(reasons)


@dataclass(frozen=True, kw_only=True)
class People:
    """The keys whose signature counts. Threads may share an instance.

    Each text that is signed names its kind: a signature on one kind is not valid for another.
    """

    keys: tuple[Verifier, ...]
    _known: dict[tuple[bytes, str], str] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def named(cls, keys: Sequence[str], option: str) -> Self | None:
        """The owners of public keys, given as files or key services' URIs; None without any.

        Raises UsageError for an empty name or a file that is not there, and MissingToolError without cosign.
        """
        for key in keys:
            if "://" not in key and not Path(key).is_file():
                raise UsageError(f"{option} {key!r}: there is no such file", hint="name a cosign.pub")
        if not keys:
            return None
        Cosign.find()
        return cls(keys=tuple(Verifier(key=key) for key in keys))

    @classmethod
    def holding(cls, signer: Signer) -> Self:
        """The owner of a private key. Raises CommandError if it cannot be read, and MissingToolError."""
        key = str(signer.key)
        return cls(keys=(Verifier(key=key, public=Cosign.find().public_key(key)),))

    def who(self, text: bytes, signature: str) -> str:
        """The signer of ``text``; empty if none did."""
        if not signature or len(signature) > _LARGEST_BUNDLE:
            return ""
        if (text, signature) not in self._known:
            cosign = Cosign.find()
            signed = (str(key) for key in self.keys if not cosign.verify_text(text, signature, key))
            self._known[text, signature] = next(signed, "")
        return self._known[text, signature]


def _signing(signer: Signer) -> list[str]:
    """The options of a signer. Without a token cosign would wait for a code typed into a browser."""
    if signer.key is None:
        return ["--tlog-upload=true", "--fulcio-auth-flow=token"]
    return ["--tlog-upload=false", "--key", signer.key]


def _payload(envelope: Any) -> Statement:
    """The statement in an envelope (https://github.com/secure-systems-lab/dsse) that cosign has verified."""
    fields = envelope if isinstance(envelope, dict) else {}
    if fields.get("payloadType") != MEDIA_TYPE:
        raise EvidenceError("it is no envelope around an in-toto statement")
    try:
        return parse_statement(base64.b64decode(str(fields.get("payload")), validate=True))
    except ValueError as error:
        raise EvidenceError("its payload is not base64") from error


def _refuse_failure(message: str, done: CompletedProcess[Any], key: str | None) -> None:
    if done.returncode != 0:
        raise CommandError(
            message,
            command=done.args,
            returncode=done.returncode,
            tail=done.stderr.splitlines()[-10:],
            hint=_hint(done.stderr, key),
        )


def _hint(stderr: str, key: str | None) -> str:
    if key is None:
        needed = "an identity token (GitHub: permissions: id-token: write)"
        return f"without --key the CI's own identity signs: its job needs {needed}"
    if "password" in stderr.lower() or "decrypt" in stderr.lower():
        return "the password of the key belongs into COSIGN_PASSWORD (empty for a key without one)"
    if "401" in stderr or "UNAUTHORIZED" in stderr:
        return "cosign takes the registry's login from Docker's config.json: docker login"
    return "run the command to see it happen"


def _why_not(done: CompletedProcess[Any]) -> str:
    """cosign's own last word, without its ``Error:`` and ``main.go:69:`` around it; empty if all is well."""
    if done.returncode == 0:
        return ""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("Error: ") for line in lines if line.startswith("Error: ")]
    return (errors or lines or [""])[-1][:400] or f"exit status {done.returncode}"
