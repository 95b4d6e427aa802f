"""A lock as a build context: a Dockerfile and all that it needs, which plain ``docker build`` accepts."""
