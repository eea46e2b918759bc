"""Every test run has a kernel cache of its own, so that no test passes on yesterday's kernels, and no measured plans."""
import os
import tempfile

_folder = tempfile.TemporaryDirectory()
os.environ["FLASH_CACHE_DIR"] = _folder.name
os.environ["FLASH_RECORDS"] = "none"
