"""Settings that Colab's page needs, for every Jupyter, in both families of options: jupyter_server, with
notebook 7 and JupyterLab on it, reads ``ServerApp``; notebook 6 reads ``NotebookApp``.

https://research.google.com/colaboratory/local-runtimes.html, googlecolab/colabtools#5302, #5751.
"""

import os
from importlib.util import find_spec

from rtbuild_runtime.settings import COLAB, LOOPBACK, port

c = get_config()  # noqa: F821 - traitlets puts it here

families = [c.ServerApp]
if find_spec("notebook") and find_spec("notebook.notebookapp"):
    families.append(c.NotebookApp)  # where it is not read, later Jupyters warn about each option three times

work = os.environ.get("RTBUILD_WORK", "/content")
for app in families:
    app.ip = os.environ.get("RTBUILD_BIND", LOOPBACK)
    app.port = port()
    app.port_retries = 0
    app.open_browser = False
    app.allow_origin = COLAB
    app.allow_credentials = True
    # Only 127.0.0.1 and localhost as the name of this server: a page that has its own name resolve to
    # 127.0.0.1 is turned away, though the container listens on all of its interfaces.
    app.allow_remote_access = False
    # The image's user is not root. Where someone asks for root it is rootless Docker's, or Podman's, who is
    # nobody outside.
    app.allow_root = True
    extension = {"rtbuild_runtime.guard": True}
    if app is c.ServerApp:
        app.root_dir, app.jpserver_extensions = work, extension
    else:
        app.notebook_dir, app.nbserver_extensions = work, extension

c.NotebookApp.tornado_settings = {"ws_ping_timeout": 30000}  # its own default is more than Tornado takes
c.Application.log_level = "WARN"  # below it, Jupyter prints the address with the token
