"""lit configuration: every .mlir below test/ is a test, run with our and LLVM's tools on PATH."""

import os
import shutil
import sys

import lit.formats

config.name = "flash"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir"]
config.excludes = ["Inputs", "Integration", "Unit", "golden"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(config.flash_build, "test")

path = [os.path.join(config.flash_build, "bin"), config.llvm_tools, os.environ.get("PATH", "")]
config.environment["PATH"] = os.pathsep.join(path)
config.environment["FILECHECK_OPTS"] = "-enable-var-scope"

config.substitutions.append(("%plugin", os.path.join(config.flash_build, "lib", "FlashPlugin.so")))
config.substitutions.append(("%python", sys.executable))

ptxas = shutil.which("ptxas") or shutil.which("ptxas", path="/usr/local/cuda/bin")
if ptxas:
    config.available_features.add("ptxas")
    config.substitutions.append(("%ptxas", ptxas))
