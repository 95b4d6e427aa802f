"""Settings of every notebook's kernel, and of ``ipython``."""

c = get_config()  # noqa: F821 - traitlets puts it here

c.InteractiveShellApp.extensions = ["rtbuild_runtime.magics"]
