"""What a rendered Dockerfile asks for beyond the wheels, and what of it needs an engine."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from builder.errors import CellError
from builder.layers.dockerfile import read_ending
from builder.layers.finish import layer_keys
from builder.recipe.quote import value

GOLDEN = Path(__file__).parents[2] / "golden" / "recipe"
NASTY = "a \"b\" $HOME ${PATH} `id` $(id) \\ \\\\ 'x' #c <<EOF ü <&> \\"

HEAD = """\
# A comment
ARG SOURCE_DATE_EPOCH=1
FROM scratch AS base
ADD rootfs.tar /
FROM base AS installer
RUN --mount=type=secret,id=ca,target=/run/secrets/ca <<'EOF'
anything FROM here
EOF
FROM base AS wheels
COPY --link --from=installer /out/ /
"""
STEPS = """\
FROM wheels AS additions
RUN --network=none <<'EOF'
# no comment of the Dockerfile's
mkdir -p /out/one /out/two-parts
cat <<'PYTHON' > /out/one/file
EOF of something else
PYTHON
EOF
RUN --network=none \\
    --mount=type=bind,source=cudnn-verify,target=/mnt/cudnn-verify \\
    --mount=type=bind,source=expect.json,target=/mnt/expect.json <<'EOF'
install /mnt/cudnn-verify /out/probe/
EOF
"""
END = """\
FROM wheels AS runtime
COPY --link --from=additions /out/one/ /
COPY --link --from=additions /out/probe/ /
"""


def test_steps_copies_and_settings() -> None:
    text = HEAD + STEPS + END + f'ENV NASTY={value(NASTY)}\nCMD ["bash", "-l"]\nLABEL a.b={value("c d")}\n'
    ending = read_ending(text)
    first, second = ending.steps
    assert first.script.startswith("# no comment of the Dockerfile's\n")
    assert first.script.endswith("PYTHON\n")
    assert first.makes == {"one", "two-parts"}
    assert second.files == (("cudnn-verify", "/mnt/cudnn-verify"), ("expect.json", "/mnt/expect.json"))
    assert ending.copies == ("one", "probe")
    env, command, label = ending.settings
    assert (env.name, env.value) == ("NASTY", NASTY)
    assert command.value == ["bash", "-l"]
    assert command.said == 'CMD ["bash" "-l"]'
    assert label.said == "LABEL a.b=c d"
    assert json.dumps(env.said)


def test_a_step_that_looks_at_others_needs_them() -> None:
    more = "RUN --network=none <<'EOF'\nfind /out/one > /out/list/all\nEOF\n"
    ending = read_ending(HEAD + STEPS + more + END)
    first, probe, last = ending.steps
    assert ending.steps_of("list") == (first, last)
    assert ending.steps_of("probe") == (probe,)


def test_a_health_check_in_the_words_of_go() -> None:
    text = 'HEALTHCHECK --interval=30s --timeout=90s --start-period=3600s \\\n    CMD ["a b", "-c"]\n'
    (check,) = read_ending(HEAD + STEPS + END + text).settings
    assert check.durations == (("Interval", 30), ("Timeout", 90), ("StartPeriod", 3600))
    assert check.said == r"""HEALTHCHECK &{["CMD" "a b" "-c"] "30s" "1m30s" "1h0m0s" "0s" '\x00'}"""


@pytest.mark.parametrize("golden", sorted(GOLDEN.glob("*/Dockerfile")), ids=lambda path: path.parent.name)
def test_every_rendered_recipe_is_read_or_refused_for_apt(golden: Path) -> None:
    text = golden.read_text()
    if "AS system" in text:
        with pytest.raises(CellError, match="in stage system"):
            read_ending(text)
    else:
        assert {"bytecode", "environment", "probe"} <= set(read_ending(text).copies)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("--network=none <<'EOF'\n# no", "<<'EOF'\n# no", "RUN"),
        ("--mount=type=bind,source=expect.json,target=/mnt/expect.json", "--mount=type=secret,id=ca", "RUN"),
        ("FROM wheels AS additions", "FROM system AS additions", "FROM system AS additions"),
        ("AS additions\n", "AS additions\nARG SOURCE_DATE_EPOCH\n", "ARG SOURCE_DATE_EPOCH"),
        ("COPY --link --from=additions /out/one/ /", "COPY --chown=1:1 --from=additions /out/one/ /", "COPY"),
        ("COPY --link --from=additions /out/one/ /", "RUN apt-get update", "RUN apt-get update"),
        ("COPY --link --from=additions /out/one/ /", "CMD bash", "CMD bash"),
        ("COPY --link --from=additions /out/one/ /", "STOPSIGNAL 9", "STOPSIGNAL 9"),
        ("FROM wheels AS runtime", "FROM wheels AS extra\nRUN true\nFROM wheels AS runtime", "RUN"),
    ],
)
def test_what_needs_an_engine_is_named(old: str, new: str, named: str) -> None:
    text = HEAD + STEPS + END
    assert old in text
    with pytest.raises(CellError, match="cannot be done without an engine") as caught:
        read_ending(text.replace(old, new, 1))
    assert named in caught.value.message
    assert "--engine none" in (caught.value.hint or "")


def test_steps_that_look_at_one_another_make_layers_of_their_own() -> None:
    ending = read_ending((GOLDEN / "colab" / "Dockerfile").read_text())
    assert ending.copies == ("bytecode", "environment", "probe", "profile", "writable")
    recipe = SimpleNamespace(
        files={},
        cell=SimpleNamespace(options=SimpleNamespace(compression="zstd")),
    )
    keys = layer_keys(recipe, ending, (), ())  # type: ignore[arg-type]
    assert len(set(keys.values())) == len(ending.copies)
