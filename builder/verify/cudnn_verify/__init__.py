"""``cudnn-verify``: says whether cuDNN works here and, if not, which one cause is to blame.

These modules are put together into one file by :mod:`builder.image.recipe.probe_file`. They run inside
images, on Colab and on bare machines: standard library only, Python 3.6 and later, nothing of rtbuild's
imported.
"""
