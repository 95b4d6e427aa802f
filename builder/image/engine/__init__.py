"""The only place that talks to Docker: :class:`builder.image.engine.engine.Engine`."""
