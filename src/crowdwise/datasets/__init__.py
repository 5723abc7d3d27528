"""Public data sets: found on disk or downloaded, checked, and returned as numpy arrays.

>>> from crowdwise import datasets
>>> "cifar10n" in datasets.names()
True
>>> datasets.load("digits")
Dataset 'digits': image, 10 classes
  train   1,347 x 8 x 8 uint8
  test    450 x 8 x 8 uint8
  licence CC BY 4.0
"""

from crowdwise.datasets.base import DATASETS, Dataset, is_here, load, names
from crowdwise.datasets.download import fetch
from crowdwise.datasets.image_folder import ImageFolder
from crowdwise.datasets.transforms import prepare

__all__ = ["DATASETS", "Dataset", "ImageFolder", "fetch", "is_here", "load", "names", "prepare"]
