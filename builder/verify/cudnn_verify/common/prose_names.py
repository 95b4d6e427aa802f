"""Names that releases of a package lost or brought, where somebody names one in words beside an error and
leaves out the error's own line.
"""

import re
from itertools import islice

from .name_changes import change_told, name_change
from .remedies import Remedies
from .tables import names_roots

_ERROR = re.compile(r"\b(?:Import|Attribute|ModuleNotFound|Name)Error\b")
_DOTTED = re.compile(r"(?<![\w./\\-])([a-z]\w*(?:\.\w+)+)(?![\w/\\])")
_CLASS = re.compile(r"(?<![\w.])([A-Z][a-z]\w{10,})\b")
_NEAR, _MOST = 400, 40
"""Characters around the error in which a name is looked for, and how many are asked of the table."""


def name_in_prose(facts, detail):
    """The sentence on a name that the release of its package which a text names lacks; sets the detail's
    ``prose``, which :func:`~name_changes.asked_names` gives.
    """
    text = facts.trace.text
    error = _ERROR.search(text)
    if error is None:
        return None
    near = text[max(0, error.start() - _NEAR) : error.end() + _NEAR]
    roots = {root for roots in names_roots().values() for root in roots}
    dotted = (found.group(1).rpartition(".")[::2] for found in _DOTTED.finditer(near))
    dotted = [row for row in dotted if row[0].partition(".")[0] in roots]
    asked = dotted + [(None, found.group(1)) for found in _CLASS.finditer(near)]
    for pair in islice(dict.fromkeys(asked), _MOST):
        told = dict(detail, prose=pair)
        change = name_change(Remedies(facts, told))
        if change and change.here:
            detail["prose"] = pair
            return change_told(change)
    return None
