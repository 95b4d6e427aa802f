"""Where the parts come from: registries, package indexes, Debian archives, and the network below them."""
