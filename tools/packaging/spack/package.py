# There is no archive to download yet: spack builds a clone of the project. In a package repository of yours (spack repo create),
# as insitubatch/package.py under its packages/:
#   spack dev-build -d CLONE insitubatch@0.1.0        or, in an environment: spack develop -p CLONE insitubatch@0.1.0
# Tried with spack 0.23.0.dev0 of June 2024 (dev-build with gcc 12; its repository had no package c, which the trial added): the
# defaults, and +snappy+bzip2 with liburing and lz4 in a prefix of their own and the system's headers hidden. Compiler and
# libraries were Debian 12's, as externals. Not tried: spack 1.0 and later, whose import below is only looked up in the packages
# of July 2026; and libraries that spack builds.
try:
    from spack_repo.builtin.build_systems.makefile import MakefilePackage  # spack 1.0 and later
except ImportError:
    pass  # before, spack.package has it

from spack.package import *


class Insitubatch(MakefilePackage):
    """Shuffled, split-aware training batches straight out of Zarr archives, from C: one header, a library and a command."""

    license("MIT")
    version("0.1.0")

    variant("zlib", default=True, description="gzip and zlib codecs, deflated zip members")
    variant("libdeflate", default=True, description="the same codecs at twice the speed")
    variant("bzip2", default=False, description="the bz2 codec")
    variant("snappy", default=False, description="snappy inside blosc")
    variant("openssl", default=False, description="service accounts of Google Cloud")

    depends_on("c", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("liburing@2.1:")
    depends_on("curl@7.76:")
    depends_on("lz4")
    depends_on("zstd")
    depends_on("zlib-api")  # the command writes with it
    depends_on("libdeflate", when="+libdeflate")
    depends_on("bzip2", when="+bzip2")
    depends_on("snappy", when="+snappy")
    depends_on("openssl", when="+openssl")
    conflicts("platform=darwin")
    conflicts("platform=windows")

    def build(self, spec, prefix):
        pass  # make install builds

    def install(self, spec, prefix):
        names = ("zlib", "libdeflate", "bzip2", "snappy", "openssl")
        features = [name.upper() for name in names if f"+{name}" in spec]
        # -o: tools/deps is left out, which would ask the system's package manager for what it does not find
        make("install", "-o", "deps-build", f"PREFIX={prefix}", f"LIB_WITH={' '.join(features) or 'none'}")
