"""Who may use an image, and where: publications and their audit, the catalogue, clusters, Colab."""
