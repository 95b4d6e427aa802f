"""The result of reading texts, as a page for a terminal."""

from .page import wrapped


def render_diagnosis(document):
    """The page; every fact in it is in the document, too."""
    lines = []
    if document["program"]:
        lines += ["No cause in the environment: the program itself is at fault."]
        lines += _proof(dict(document["program"], because=[]))
    elif document["cause"] is None:
        lines += ["No cause: nothing in this text is a known signature of one."]
    elif document["equal"]:
        lines += ["%d causes fit equally: %s" % (len(document["equal"]), ", ".join(document["equal"]))]
    else:
        first = document["causes"][0]
        lines += ["%s: %s" % (first["cause"], first["title"])]
    proofs = [_proof(row) for row in document["causes"]]
    common = proofs[0] if len(proofs) > 1 and proofs.count(proofs[0]) == len(proofs) else []
    lines += common
    for row, proof in zip(document["causes"], proofs):
        lines += [""] + _one_cause(row, bool(document["equal"]), [] if common else proof)
    if document["look"]:
        lines += ["", "One look decides:" if document["causes"] else "What to do now:"]
        lines += ["  $ " + document["look"]["command"], wrapped(document["look"]["decides"], "    ")]
    if document["harmless"]:
        lines += ["", "Lines that mean nothing:"]
        for row in document["harmless"]:
            place = row["line"]
            lines.append("  %s, line %s: %s" % (place["source"], place["line"], place["text"][:80]))
            lines.append(wrapped(row["says"], "    "))
    lines += [""] + _what_was_read(document["read"])
    return "\n".join(lines) + "\n"


def _proof(row):
    """The line that proves a cause, and the meaning of it."""
    place = row["line"]
    lines = ["  %s, line %s:" % (place["source"], place["line"]), "    | " + place["text"][:240]]
    return lines + [wrapped(text) for text in [row["says"]] + row["because"] if text]


def _one_cause(row, equal, proof):
    lines = ["%s (%s)" % (row["cause"], row["how"])] if equal or row["rank"] > 0 else []
    if equal or row["rank"] > 0:
        lines.append(wrapped(row["title"]))
    lines += proof
    if row["commands"]:
        lines.append("  What to run%s:" % (", if this is it" if equal else ""))
        for command in row["commands"]:
            lines.append("    [%s] %s" % (command["where"], command["text"]))
            if command["note"]:
                lines.append(wrapped(command["note"], "        "))
    if all(command["where"] == "rtbuild" for command in row["commands"]):
        lines.append(wrapped(("Or: " if row["commands"] else "What to do: ") + row["remedy"]))
    if row["restart"]:
        lines.append("  Then restart the runtime: what is loaded stays loaded.")
    lines.append("  Source: " + row["source"])
    return lines


def _what_was_read(read):
    known = [("card", ", ".join(read["cards"][:3])), ("compute capability", read["capability"])]
    known += [("driver", read["driver"]), ("driver's CUDA", read["driver_cuda"]), ("Python", read["python"])]
    known += [("cuDNN", ", ".join(read["cudnn"][:4])), ("where", ", ".join(read["places"]))]
    names = ("torch", "tensorflow", "jax", "jaxlib", "onnxruntime", "ctranslate2", "cupy")
    known += [(name, read["packages"].get(name)) for name in names]
    lines = ["Read out of %s:" % ", ".join(read["sources"][:6])]
    lines += ["  %-18s %s" % (name, value) for name, value in known if value]
    if len(lines) == 1:
        lines.append("  neither card, driver nor versions are named in it")
    lines += [wrapped("note: " + note) for note in read["notes"]]
    lines.append("Nothing was sent anywhere, and nothing out of the text was run.")
    return lines
