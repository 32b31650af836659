"""The data sets of pre-training."""

UPSTREAM = {"jft": "JFT-300M", "imagenet21k": "ImageNet-21k", "imagenet2012": "ImageNet"}
# Section 4.1.
UPSTREAM_IMAGES = {"jft": 303e6, "imagenet21k": 14e6}
