"""The Vulkan driver that LiteRT's GPU delegate computes with, on machines without a GPU as well."""

import os
import pathlib
import sys

from export.errors import RuntimeMissing

CHOSEN = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES")
DRIVERS = ("/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/etc/vulkan/icd.d")
# Each with SwiftShader, a Vulkan in software, and the loader that finds it.
BROWSERS = ("/usr/lib/chromium", "/opt/google/chrome", "/usr/lib/chromium-browser")
SOFTWARE, LOADER = "vk_swiftshader_icd.json", "libvulkan.so.1"


def vulkan_environment() -> dict[str, str]:
    """Returns the variables of a process that computes with Vulkan.

    None where the machine has drivers, the user chose one, or the system is not Linux and has
    its own way to a GPU. Otherwise those of the software Vulkan that Chromium brings along.

    Raises:
        RuntimeMissing: if there is neither.
    """
    own = any(any(pathlib.Path(folder).glob("*.json")) for folder in DRIVERS)
    if sys.platform != "linux" or own or any(os.environ.get(name) for name in CHOSEN):
        return {}
    for browser in map(pathlib.Path, BROWSERS):
        if (browser / SOFTWARE).is_file() and (browser / LOADER).is_file():
            return {
                "VK_ICD_FILENAMES": str(browser / SOFTWARE),
                "LD_PRELOAD": str(browser / LOADER),
            }
    raise RuntimeMissing(
        "Expected a Vulkan driver. There is none in /usr/share/vulkan/icd.d: install the GPU's, or "
        "Chromium, whose software Vulkan gives the same numbers (apt-get install chromium)."
    )
