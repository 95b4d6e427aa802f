"""What stands in for what a machine of the tests lacks.

=====================  ====================================================================================
``http_server``        an HTTP server whose answers are values; the servers below answer with it
``registry``           an OCI registry in memory, which can lie
``unreliable``         a proxy in front of a registry, which fails where a test wants it to
``package_index``      a package index of made-up wheels
``python_mirror``      a mirror of python-build-standalone with this machine's CPythons
``kubernetes``         a Kubernetes API server for the real kubectl
``engine``             a Docker Engine without containers; what runs in one prints what a test says
``cosign``             cosign without the program; anybody can make its signatures
``docker_on_a_node``   the docker client on a node of the tests' cluster
``small_image``        an image of a few bytes, and what a T4 would have the probe say of it
``project``            a matrix, its lock, staged images and reports, as a user has them
=====================  ====================================================================================

The C libraries that stand in for a driver and for cuDNN lie in ``tests/faults/doubles``. Tests import from
here by ``from doubles.registry import RegistryDouble``; pytest's setting ``pythonpath`` leads to it. No
report made with a double can be published: it names a digest that only a registry of the tests has.
"""
