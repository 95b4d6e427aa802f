"""The only place that talks to Docker: :class:`builder.engine.engine.Engine`."""
