# spack repo add a repository that has this file as packages/insitubatch/package.py, then spack install insitubatch; or
# spack dev-build in a clone of the project.
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
        make("install", f"PREFIX={prefix}", f"LIB_WITH={' '.join(features) or 'none'}")
