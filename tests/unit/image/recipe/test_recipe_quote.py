"""Nothing can be smuggled into a Dockerfile, and what a value says survives."""

from __future__ import annotations

import dataclasses
import re

import jinja2
import jinja2.nodes
import pytest
import recipe_cells
from hypothesis import given
from hypothesis import strategies as st

from builder.core import resources
from builder.core.errors import CellError
from builder.image.recipe import rendering
from builder.image.recipe.rendering import environment, only_quoted, render
from builder.image.recipe.values import RecipeSetting, RecipeStep

NASTY = (
    'a "b" \\',
    "$(reboot)",
    "`reboot`",
    "${PATH}",
    "$HOME",
    "\\$HOME",
    "x' y",
    "#",
    "<<EOF",
    "EOF",
    "\\",
    "\\\\",
    '"',
    "a=b c=d",
    " leading and trailing ",
    "{{ 7 * 7 }}",
    "ü 漢",
    "%s",
    "&& rm -rf / ;",
)
BREAKING = (
    "\n",
    "\r",
    "\r\n",
    "\0",
    "\x0b",
    "\x0c",
    "\x1b[2J",
    "\x85",
    "\u2028",
    "\u2029",
    "\u202e",
    "\ufeff",
)


def parse_dockerfile_word(text: str) -> str:
    """What a double-quoted word of a Dockerfile means.

    After ``processDoubleQuote`` in https://github.com/moby/buildkit/blob/master/frontend/dockerfile/shell/lex.go
    """
    assert text[0] == '"'
    out, position = [], 1
    while text[position] != '"':
        character = text[position]
        assert character != "$", "a variable would be put in"
        if character == "\\":
            following = text[position + 1]
            if following in '"$\\':
                position += 1
                character = following
        out.append(character)
        position += 1
    assert position == len(text) - 1, "the word ends before its text does"
    return "".join(out)


@pytest.mark.parametrize("text", NASTY)
def test_a_value_means_itself(text):
    assert parse_dockerfile_word(rendering.value(text)) == text


@given(st.text(st.characters(exclude_categories=["C", "Zl", "Zp"])))
def test_any_visible_text_means_itself(text):
    written = rendering.value(text)
    assert parse_dockerfile_word(written) == text
    assert not written.endswith("\\")  # it would continue the line
    assert len(written.splitlines()) == 1


@pytest.mark.parametrize("character", BREAKING)
@pytest.mark.parametrize(
    "check", [rendering.value, rendering.comment, rendering.index_url], ids=lambda f: f.__name__
)
def test_what_could_end_a_line_is_refused(check, character):
    with pytest.raises(CellError, match="control character"):
        check(f"https://example.invalid/{character}RUN reboot")


OF_OTHER_TYPES = {"image", "epoch", "run", "setting"}


@given(st.text(min_size=1))
def test_a_filter_gives_one_line_or_refuses(text):
    for name, check in rendering.FILTERS.items():
        if name in OF_OTHER_TYPES:
            continue
        try:
            written = check(text)
        except CellError:
            continue
        assert isinstance(written, rendering.Quoted)
        assert len(written.splitlines()) <= 1, name
        if name not in {"value", "comment", "index_url"}:
            assert re.fullmatch(r"[A-Za-z0-9_.+!=:~/-]+", written), name


@pytest.mark.parametrize("value", [None, 7, 3.1, b"x", ["x"], jinja2.Undefined()])
@pytest.mark.parametrize("name", sorted(rendering.FILTERS.keys() - OF_OTHER_TYPES))
def test_only_text_is_text(name, value):
    with pytest.raises(CellError):
        rendering.FILTERS[name](value)


@pytest.mark.parametrize(
    "change",
    [
        {"script": "cat <<'X'\nEOF\nX\n"},
        {"script": "no newline at the end"},
        {"files": (("a,readwrite", "/mnt/a"),)},
        {"files": (("a", "/mnt/a b"),)},
    ],
)
def test_a_step_stays_one_instruction(change):
    step = RecipeStep(name="one", script="true\n", makes=("one",), files=(("a", "/mnt/a"),))
    assert rendering.run(step) == (
        "RUN --network=none \\\n    --mount=type=bind,source=a,target=/mnt/a <<'EOF'\ntrue\nEOF"
    )
    with pytest.raises(CellError):
        rendering.run(dataclasses.replace(step, **change))


@pytest.mark.parametrize(
    "setting",
    [
        RecipeSetting(kind="USER", value="root\nRUN evil"),
        RecipeSetting(kind="ENV", name="A B", value="x"),
        RecipeSetting(kind="ENV", name="A", value="x\nRUN evil"),
        RecipeSetting(kind="LABEL", name="$(x)", value="x"),
        RecipeSetting(kind="CMD", value=("a\nRUN evil",)),
        RecipeSetting(kind="HEALTHCHECK", value=("a\nRUN evil",), durations=(("interval", 1),)),
        RecipeSetting(kind="HEALTHCHECK", value=("a",), durations=(("interval=1s --x", 1),)),
    ],
)
def test_a_setting_stays_one_instruction(setting):
    with pytest.raises(CellError):
        rendering.setting(setting)


@pytest.mark.parametrize("value", [None, "1", -1, 1.5, True, 1 << 40])
def test_a_date_is_a_number(value):
    with pytest.raises(CellError, match="no date"):
        rendering.epoch(value)


DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    "reference",
    [
        "ubuntu",
        "nvidia/cuda:11.8.0-base-ubuntu22.04",
        "registry.example.invalid:5000/a/b_c/d__e:x",
        "127.0.0.1:5000/nvidia/cuda:1",
        "[::1]:5000/x",
        "nvidia/cuda:1@" + DIGEST,
    ],
)
def test_image_references(reference):
    assert rendering.image(reference, DIGEST) == f"{reference.partition('@')[0]}@{DIGEST}"


@pytest.mark.parametrize(
    "reference",
    [
        "",
        "nvidia/Cuda",
        "a b",
        "a:$TAG",
        "a\nRUN x",
        "--platform=x",
        "a/",
        "/a",
        "a:",
        "a AS b",
        "${BASE}",
        "a#b",
    ],
)
def test_what_is_no_image_reference(reference):
    with pytest.raises(CellError, match="no image reference"):
        rendering.image(reference, DIGEST)


@pytest.mark.parametrize("digest", ["", "sha256:abc", "sha512:" + "a" * 64, DIGEST + " AS x", DIGEST.upper()])
def test_what_is_no_digest(digest):
    with pytest.raises(CellError, match="no digest"):
        rendering.image("ubuntu", digest)


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (rendering.FILTERS["apt_package"], "libgomp1; reboot"),
        (rendering.FILTERS["apt_package"], "-o"),
        (rendering.FILTERS["apt_package"], "a=$(x)"),
        (rendering.FILTERS["wheel_file"], "../x-1-py3-none-any.whl"),
        (rendering.FILTERS["wheel_file"], "x-1-py3-none-any.whl,target=/etc"),
        (rendering.FILTERS["wheel_file"], "x y-1-py3-none-any.whl"),
        (rendering.FILTERS["project"], "x --index-url=https://example.invalid"),
        (rendering.FILTERS["release"], "1 --hash=sha256:00"),
        (rendering.FILTERS["sha256"], "A" * 64),
        (rendering.FILTERS["python_version"], "3.9; x"),
        (rendering.FILTERS["python_version"], "3.09"),
        (rendering.FILTERS["env_name"], "A B"),
        (rendering.FILTERS["env_name"], "1A"),
        (rendering.FILTERS["label_name"], "a b"),
        (rendering.FILTERS["docker_tag"], ".a"),
        (rendering.FILTERS["docker_tag"], "a" * 129),
        (rendering.FILTERS["platform"], "linux/amd64 --x"),
        (rendering.FILTERS["compression"], "none"),
        (rendering.index_url, "file:///etc"),
        (rendering.index_url, "https://user:word@example.invalid/simple"),
        (rendering.index_url, "https://${TOKEN}.example.invalid/"),
        (rendering.index_url, "https://example.invalid/ --trusted-host x"),
    ],
)
def test_refused(check, text):
    with pytest.raises(CellError) as caught:
        check(text)
    assert caught.value.hint


def test_credentials_in_an_address_are_not_repeated():
    with pytest.raises(CellError) as caught:
        rendering.index_url("https://user:word@example.invalid/simple")
    assert "word" not in str(caught.value)


def test_a_newline_at_the_end_is_no_way_around():
    with pytest.raises(CellError):
        rendering.FILTERS["apt_package"]("libgomp1\n")


@pytest.mark.parametrize("text", NASTY)
def test_nasty_values_in_a_whole_recipe(text):
    pinned = recipe_cells.EVERYTHING
    plain = render(pinned, probe=b"", version="1").files["Dockerfile"].content.decode().splitlines()
    cell = dataclasses.replace(pinned.cell, env=(*pinned.cell.env, ("NASTY", text)))
    nasty = render(dataclasses.replace(pinned, cell=cell), probe=b"", version="1")
    lines = nasty.files["Dockerfile"].content.decode().splitlines()
    added = [line for line in lines if line not in plain and "io.rtbuild.inputs" not in line]
    assert len(added) == 1
    assert parse_dockerfile_word(added[0].removeprefix("ENV NASTY=")) == text


@pytest.mark.parametrize(
    "fields",
    [
        {"env": (("A\nRUN reboot", "x"),)},
        {"env": (("A", "x\nRUN reboot"),)},
        {"apt": ("libgomp1\nEOF\nRUN reboot",)},
        {"id": "x\nRUN reboot"},
        {"matrix": "x\nRUN reboot"},
        {"python": "3.10\nreboot"},
        {"index": ("https://example.invalid/\n--trusted-host x",)},
        {"platform": "linux/amd64\nx"},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_no_field_of_a_cell_takes_a_second_line(fields):
    pinned = recipe_cells.EVERYTHING
    with pytest.raises(CellError):
        render(
            dataclasses.replace(pinned, cell=dataclasses.replace(pinned.cell, **fields)),
            probe=b"",
            version="1",
        )


TEMPLATES = sorted(path.name for path in resources.templates().glob("*.j2"))


@pytest.mark.parametrize("template", TEMPLATES)
def test_templates_write_nothing_but_what_a_filter_gave(template):
    source = (resources.templates() / template).read_text("utf-8")
    tree = environment().parse(source)
    for output in tree.find_all(jinja2.nodes.Output):
        for node in output.nodes:
            if not isinstance(node, jinja2.nodes.TemplateData):
                assert isinstance(node, jinja2.nodes.Filter), f"line {node.lineno} writes a bare value"
    assert {node.name for node in tree.find_all(jinja2.nodes.Filter)} <= rendering.FILTERS.keys()


def test_jinja_s_own_filters_are_gone():
    assert environment().filters == dict(rendering.FILTERS)
    for forbidden in ("default", "d", "safe", "string"):
        with pytest.raises(jinja2.TemplateAssertionError):
            environment().from_string("{{ x | " + forbidden + " }}")


@pytest.mark.parametrize("value", [None, "text", 7])
def test_a_bare_value_is_a_bug(value):
    with pytest.raises(TypeError, match="no filter has checked"):
        only_quoted(value)
    with pytest.raises(TypeError, match="no filter has checked"):
        environment().from_string("{{ x }}").render(x=value)


def test_an_undefined_name_is_an_error():
    with pytest.raises(jinja2.UndefinedError):
        environment().from_string("{% if missing %}{% endif %}").render()
