from layer_wheels import builder, rootfs, store

__all__ = ["builder", "rootfs", "store"]
