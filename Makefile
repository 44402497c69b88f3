# make demo and make test do everything on a fresh machine, dependencies included; make help lists the rest.
VERSION  = $(shell sed -n 's/^\#define INSITU_VERSION "\(.*\)"/\1/p' insitubatch.h)
API      = $(shell sed -n 's/^  INSITU_API = \([0-9]*\),.*/\1/p' insitubatch.h)
PREFIX  ?= /usr/local
CC      ?= cc
CXX     ?= c++
CFLAGS  ?= -O1 -g1
BUILD   ?= build
JOBS    ?= $(shell nproc 2>/dev/null || echo 1)

# What of the header is there only with a macro, and the libraries it takes: for all but the examples.
FEATURES     = -DINSITU_WITH_ZLIB -DINSITU_WITH_LIBDEFLATE -DINSITU_WITH_BZIP2 -DINSITU_WITH_SNAPPY -DINSITU_WITH_OPENSSL
FEATURE_LIBS = -lz -ldeflate -lbz2 -lsnappy -lcrypto

# Of indentation that misleads, clang warns, and the compile checks: gcc looks up a line of the file for each statement, which is
# half the time of compiling the header without optimization.
WARN       = -Wall -Wextra -Wno-misleading-indentation
TEST_FLAGS = -std=gnu11 -D_GNU_SOURCE -I. -Itests -Itests/support -Itests/cudasim $(FEATURES) $(WARN)
LIBS       = -luring -lcurl -llz4 -lzstd $(FEATURE_LIBS) -lpthread -lm
TEST_LIBS  = -lcmocka $(LIBS)
# clang -O0 builds the sanitizers' programs in a fifth of gcc -O1's time, and sees more; gcc defines these macros by itself
SAN_CC    ?= clang
ASAN       = -O0 -g1 -Wmisleading-indentation -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all \
  -D__SANITIZE_ADDRESS__=1
TSAN       = -O0 -g1 -fno-omit-frame-pointer -fsanitize=thread -D__SANITIZE_THREAD__=1
VALGRIND   = valgrind -q --error-exitcode=99 --leak-check=full --errors-for-leak-kinds=definite --fair-sched=yes
# A test that needs one more library than the others: LIBS_test_NAME = -lNAME
LIBS_test_blosc = -lblosc
LIBS_test_grids = -lblosc
LIBS_test_grib = $(shell CC='$(CC)' tools/optional)
LIBS_test_index = $(filter-out -DINSITU_WITH_ECCODES, $(LIBS_test_grib))
LIBS_test_part = -lblosc
LIBS_test_parts = -lblosc
LIBS_test_part_reads = -lblosc
LIBS_test_random = -lblosc
LIBS_test_random_cuda = -lblosc
LIBS_test_scan = -lblosc

DEMO     = examples/02_train_winds.c
EXAMPLES = $(basename $(notdir $(wildcard examples/*.c examples/*.cpp examples/*.cu examples/*.f90)))
FUZZERS  = $(basename $(notdir $(wildcard tests/fuzz/fuzz_*.c)))
# The longest come first, so that none runs alone at the end
LONG_TESTS = test_remote test_part_reads test_fault test_shard test_disk test_http_reads test_random test_kept test_maps test_tool \
  test_tool_data test_plan test_part
TESTS    = $(LONG_TESTS) $(filter-out $(LONG_TESTS), $(basename $(notdir $(wildcard tests/*/test_*.c))))
# Those without threads, and those that the backend of reads may make a difference to
PURE_TESTS = test_blosc test_box test_codec test_codec_core test_codec_zlib test_coro test_cudasim test_document test_http \
  test_kerchunk test_map test_moments test_order test_part test_plan test_receipt test_rule test_select test_server test_sign \
  test_text test_time test_timeline test_tune test_zarr
IO_TESTS = $(filter-out $(PURE_TESTS) test_tool test_tool_data test_tool_pictures test_tool_runs test_tool_virtual \
	test_grib test_index, $(TESTS))
TSAN_TESTS = $(filter-out test_tool_remote, $(IO_TESTS)) test_coro test_cudasim test_server
# What .ci/run gives to the thread sanitizer of these: a program for each way that threads meet. The others look at values that come
# on the same ways: test_remote on those of test_http_reads and test_cloud, test_diskcache on those of test_disk, test_cuda on those
# of test_device. Under a sanitizer a loop over the ways a loader can run goes through two of the four, the next loop through the
# others; with TEST_ALL_MODES=1 in the environment each goes through all.
TSAN_SLICE = test_call test_cloud test_coro test_cudasim test_decoded test_device test_disk test_fault test_http_reads test_kept \
  test_launch test_loader test_memory test_memory_store test_poison test_reactor test_read test_receipts test_ring test_scan \
  test_sequences test_server test_steps test_stores test_stress test_trace
# A sanitizer has little to see in a simulation of servers, which is arithmetic alone and takes long.
ASAN_TESTS = $(filter-out test_tune, $(TESTS))
# The others of IO_TESTS go through all backends by themselves, where INSITU_IO does not name one
ONE_BACKEND_TESTS = test_memory test_stores test_tool_remote
# Those that only a compile of their own can make: with other macros than the others, or nothing of the header
ALONE_TESTS = test_codec_core test_codec_zlib test_coro test_cudasim test_grib test_opmath test_opmath_scalar test_server \
  test_timeline
# Those that call only what is public, which is all that their files say: they are linked with the implementation
LINKED_TESTS := $(filter-out $(ALONE_TESTS), $(basename $(notdir $(shell grep -L INSITU_IMPLEMENTATION tests/*/test_*.c))))
CUDA_TESTS = test_cudasim test_cuda test_device test_random_cuda
# Those that also call what is private: they include declarations alone, and are linked with an object that shows them all
INSIDE_TESTS = $(filter-out $(LINKED_TESTS) $(ALONE_TESTS), $(TESTS))
CUDA_PROGRAMS = $(foreach d,$(BUILD) $(BUILD)/asan $(BUILD)/tsan,$(addprefix $(d)/,$(CUDA_TESTS) gpu_simulated))
# Valgrind is for what it alone sees, memory that was never set: in parsers, codecs, coroutines and the loader's paths. Not the
# command, which runs in a process of its own; not the cache on disk, which kills many; nothing after a fault that is caught, where
# Valgrind goes on with stale registers; and not programs whose bytes go through the same code as others', and which mostly wait or
# look at lifetimes: AddressSanitizer does that as well; nor test_codec without its libraries, which only refuses more; nor pure
# arithmetic, whose references are long doubles, which Valgrind cuts to 64 bits.
VG_TESTS = $(filter-out $(CUDA_TESTS) test_memory test_tool test_tool_data test_tool_pictures \
  test_tool_runs test_tool_remote test_tool_virtual test_index test_disk \
  test_check test_dlpack test_refs test_remote test_remote_oom test_sequences test_server test_codec_core test_codec_zlib \
  test_order test_plan test_time test_tune test_moments test_opmath test_opmath_scalar, $(TESTS))
# What .ci/run gives to Valgrind of these: parsers, codecs, coroutines, and a program for each way of a loader. All are for who has
# touched more.
VG_SLICE = test_kept test_codec test_coro test_filter test_grids test_http test_icechunk test_json test_kerchunk test_list \
  test_loader test_map test_ops test_part test_reactor test_ring test_select test_strings test_zarr
HEADERS  = insitubatch.h examples/08_extension_codecs.c $(wildcard tests/*/*.h tests/cudasim/*)
# Programs are built side by side: their names tell nothing of the folder that they come from.
vpath %.c tests/fuzz tests/interop tests/stores $(sort $(dir $(wildcard tests/*/test_*.c)))

.PHONY: all help demo gallery examples tools test test-asan test-fallback test-valgrind test-tsan test-aarch64 test-model fuzz bench
.PHONY: conformance test-interop test-random test-stores test-cuda test-cuda-toolkit test-gpu compile-checks lint lib install
.PHONY: clean test-consumers test-containers test-libtorch test-mpi test-bindings
.PHONY: test-faulty bench-against bench-peers deps-build deps-test deps-ci programs programs-asan programs-tsan
.PHONY: programs-valgrind programs-fuzz
.DELETE_ON_ERROR:

all: deps-test
	@$(MAKE) --no-print-directory -j$(JOBS) examples tools

help:
	@echo 'make demo            train a small forecaster on the observed winds in examples/data'
	@echo 'make gallery         compile and run the examples, on data made for them, and compare what they print'
	@echo 'make test            build and run the tests'
	@echo 'make all             build the examples into $(BUILD)/examples and the command $(BUILD)/insitu'
	@echo 'make tools           build the command $(BUILD)/insitu'
	@echo 'make test-fallback   the tests over epoll instead of io_uring'
	@echo 'make test-faulty     objects that are replaced while faulty servers send them: N= cases (1000) of SEED='
	@echo 'make test-asan       the tests under the address and undefined-behaviour sanitizers, over io_uring and epoll'
	@echo 'make test-tsan       the tests under the thread sanitizer, over io_uring and epoll'
	@echo 'make test-valgrind   the tests under Valgrind, over epoll'
	@echo 'make test-cuda       uploads to CUDA devices over a simulated runtime: plain and under both sanitizers'
	@echo 'make test-gpu        on a machine with a GPU: uploads on the real driver, their bandwidth and overlap; GPU="--only graphs"'
	@echo 'make test-aarch64    the machine-dependent tests, cross-built for aarch64, under qemu'
	@echo 'make test-model      the epoch order against the normative model, where that and python3 are at hand'
	@echo 'make test-random     random archives and configurations against a small model; SEED=, N=, SAN=asan, DEVICES=1'
	@echo 'make test-interop    reads what zarr-python, tensorstore, GDAL and netCDF write: thousands of arrays; SEED=, ONLY=, FEWER=3'
	@echo 'make test-stores     reads from real servers of HTTP, S3, Google and Azure, started on this machine; ONLY="nginx radosgw"'
	@echo 'make test-consumers  programs that use what make install installs: pkg-config, CMake, Meson, cc; exported symbols'
	@echo 'make test-containers an epoch without io_uring, on a read-only root, with few descriptors, in control groups'
	@echo 'make test-libtorch   installs libtorch, and trains a network of its for a few epochs (examples/17_libtorch.cpp)'
	@echo 'make test-mpi        trains under mpirun: the same losses on 1, 2 and 4 ranks, and after a kill; OpenMPI'
	@echo 'make test-bindings   Fortran, Rust and Julia, whose files tools/make_bindings writes: compared, layouts, programs that run'
	@echo 'make test-cuda-toolkit  compiles with the real CUDA, its own or the package index'"'"'s, and runs; no GPU is needed'
	@echo 'make conformance     reads the archives, numcodecs fixtures and blosc chunks under DIR=, and compares'
	@echo 'make fuzz            libFuzzer on all that reads input from outside, FUZZ_SECONDS (30) each'
	@echo 'make bench           throughput as a share of the bare loop, decoders, planning; BENCH=--full: every row'
	@echo 'make bench-against   the same rows, beside the header of an older commit: BASE=COMMIT; BENCH as above'
	@echo 'make bench-peers     beside insitubatch for Python, tensorstore, zarrs, zarr-beluga and xbatcher, by hand, hours;'
	@echo '                     ROUNDS=, ONLY="local/*/pairs", PEERS="zarrs", TUNE=1, QUICK=1: a look; writes $(BUILD)/peers/page.html'
	@echo 'make compile-checks  the header in every supported mode, on gcc and clang; as systems with gcc 11, liburing 2.1, curl 7.76'
	@echo '                     or musl build it; each example by its first line, in a folder of its own'
	@echo 'make lint            layout, names, format'
	@echo 'make lib             libinsitubatch.so.$(API) and libinsitubatch.a, in $(BUILD)/lib; LIB_WITH="ZLIB BZIP2", LIB_WITH=none'
	@echo 'make install         header, libraries, pkg-config and CMake files, bin/insitu, under DESTDIR and PREFIX ($(PREFIX))'
	@echo 'make clean           remove $(BUILD)'

deps-build deps-test deps-ci: deps-%:
	@tools/deps $*

# ---- examples: each is compiled by the command in its own first line ------------------------------------------------------------

# EXAMPLE_FLAGS stand behind those of a command; never behind the demo's, which trains.
compile_example = EXAMPLE_FLAGS='$(if $(filter $(DEMO),$<),,$(EXAMPLE_FLAGS))' tools/compile-example $< $@

examples: $(EXAMPLES:%=$(BUILD)/examples/%)

$(BUILD)/examples/%: examples/%.c insitubatch.h tools/compile-example
	@mkdir -p $(@D)
	@CC='$(CC)' $(compile_example)
$(BUILD)/examples/%: examples/%.cpp examples/insitubatch.hpp insitubatch.h tools/compile-example
	@mkdir -p $(@D)
	@CXX='$(CXX)' CC='$(CC)' $(compile_example)
$(BUILD)/examples/%: examples/%.f90 examples/bindings/insitubatch.f90 insitubatch.h tools/compile-example
	@mkdir -p $(@D)
	@CC='$(CC)' $(compile_example)
# Where the CUDA toolkit is: NVCC names its compiler, which is else looked for. No GPU is needed to build it, nor to run it.
$(BUILD)/examples/%: examples/%.cu insitubatch.h tools/compile-example
	@mkdir -p $(@D)
	@NVCC='$(NVCC)' CXX='$(CXX)' CC='$(CC)' $(compile_example)

demo: deps-build
	@$(MAKE) --no-print-directory $(DEMO:examples/%.c=$(BUILD)/examples/%)
	$(DEMO:examples/%.c=$(BUILD)/examples/%)

# All but what needs a GPU, MPI or libtorch, the demo, and what is no program: see tests/gallery/run
GALLERY = $(filter-out 02_% 06_% 08_% 15_% 16_% 17_%,$(EXAMPLES))
$(BUILD)/make_gallery: tools/make_gallery.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -std=c11 $(WARN) -O2 -o $@ $< $(LDFLAGS) -lm
gallery: deps-build
	@$(MAKE) --no-print-directory -j$(JOBS) $(GALLERY:%=$(BUILD)/examples/%) $(BUILD)/make_gallery
	@$(BUILD)/make_gallery '$(BUILD)/gallery'
	@tests/gallery/run '$(BUILD)'

# ---- the command ----------------------------------------------------------------------------------------------------------------

tools: deps-test
	@$(MAKE) --no-print-directory $(BUILD)/insitu
# $(call tool,COMPILER,FLAGS). Libraries for files of other formats, where they are there: see tools/optional
tool = mkdir -p $(@D) && $(1) $(CPPFLAGS) -std=c11 -I. $(FEATURES) -DTOOL_WITH_BLOSC $(WARN) $(2) -o $@ $< $(filter %.o,$^) \
  $(LDFLAGS) $$(CC='$(1)' tools/optional) -lblosc $(LIBS)
TOOL_FLAGS ?= -O2 -g1
TOOL_FILES = tools/insitu.c insitubatch.h examples/08_extension_codecs.c $(wildcard tools/insitu/*.h) tools/optional
$(BUILD)/insitu: $(TOOL_FILES)
	$(call tool,$(CC),$(TOOL_FLAGS))

# ---- tests ----------------------------------------------------------------------------------------------------------------------

# Test programs at once: two more than there are cores, since many wait, where TEST_JOBS does not tell
RUN = TEST_JOBS="$${TEST_JOBS:-$$(($(JOBS) + 2))}" tests/run
# $(call build_and,PROGRAMS,COMMAND): where a program does not compile, the others run all the same; it fails in any case
build_and = $(MAKE) --no-print-directory -k -j$(JOBS) $(1); built=$$?; $(2) && [ $$built = 0 ]

# $(call build,COMPILER,FLAGS): one test program. Most hold the whole implementation: -O1 compiles in half the time of -O2, which
# the examples, the command and the benchmarks are built with.
build = $(1) $(CPPFLAGS) $(TEST_FLAGS) $(2) -o $@ $< $(filter %.o,$^) $(LDFLAGS) $(LIBS_test_$*) $(TEST_LIBS)
object = mkdir -p $(@D) && $(1) $(CPPFLAGS) $(TEST_FLAGS) $(2) -DINSITU_IMPLEMENTATION -x c -c -o $@ $<

# The implementation, as a user's program holds it
$(BUILD)/insitubatch.o: insitubatch.h
	$(call object,$(CC),$(CFLAGS))
# The same, with its private functions seen from outside: tests/support/inside.awk tells. gcc sees less of each value's way there.
INSIDE = awk -v folder=tests/support/ -f tests/support/inside.awk
$(BUILD)/inside/insitubatch.c: insitubatch.h tests/support/inside.awk
	@mkdir -p $(@D)
	@$(INSIDE) -v mode=object $< >$@
$(BUILD)/inside.o $(BUILD)/inside_cuda.o: $(BUILD)/inside/insitubatch.c
	$(call object,$(CC),$(CFLAGS) -Wno-maybe-uninitialized)
# Most of what these tests run is in one object: optimized, it takes a minute more to compile, and they a third of the time.
$(BUILD)/asan/inside.o: private ASAN := $(subst -O0,-O1,$(ASAN))
$(BUILD)/asan/inside.o $(BUILD)/asan/inside_cuda.o: $(BUILD)/inside/insitubatch.c
	$(call object,$(SAN_CC),$(ASAN))
$(BUILD)/tsan/inside.o $(BUILD)/tsan/inside_cuda.o: $(BUILD)/inside/insitubatch.c
	$(call object,$(SAN_CC),$(TSAN))
%/inside_cuda.o: private FEATURES += -DINSITU_WITH_CUDA
# Two programs run this object, and test_grib is one: optimized, they take three times as long to compile. What else they hold is in
# the other objects, which are optimized.
$(BUILD)/inside_cuda.o $(BUILD)/test_grib: private CFLAGS += -O0
# What such a test includes as insitubatch.h
.PRECIOUS: $(BUILD)/inside/%/insitubatch.h
$(BUILD)/inside/%/insitubatch.h: %.c $(HEADERS) tests/support/inside.awk
	@mkdir -p $(@D)
	@$(INSIDE) -v mode=header insitubatch.h $< >$@
$(BUILD)/inside/gpu_simulated/insitubatch.h: tests/device/gpu.c $(HEADERS) tests/support/inside.awk
	@mkdir -p $(@D)
	@$(INSIDE) -v mode=header insitubatch.h $< >$@

$(BUILD)/inside/insitu/insitubatch.h: $(TOOL_FILES) tests/support/inside.awk
	@mkdir -p $(@D)
	@$(INSIDE) -v mode=header insitubatch.h $< >$@

# The command that tests run calls what is private, too: it is linked with the same object.
INSIDE_TOOL = $(TOOL_FILES) $(BUILD)/inside/insitu/insitubatch.h
$(BUILD)/linked/insitu: $(INSIDE_TOOL) $(BUILD)/inside.o
	$(call tool,$(CC),$(CFLAGS) -I$(BUILD)/inside/insitu)
$(BUILD)/asan/linked/insitu: $(INSIDE_TOOL) $(BUILD)/asan/inside.o
	$(call tool,$(SAN_CC),$(ASAN) -I$(BUILD)/inside/insitu)

# Of these, one is linked with devices.
host = $(filter-out test_random_cuda, $(LINKED_TESTS))
$(host:%=$(BUILD)/%): $(BUILD)/insitubatch.o
# $(call inside,FOLDER,TEST)
define inside
$(1)/$(2): private TEST_FLAGS := -I$(BUILD)/inside/$(2) $$(TEST_FLAGS)
$(1)/$(2): $(1)/inside$(if $(filter test_cuda test_device gpu_simulated,$(2)),_cuda).o $(BUILD)/inside/$(2)/insitubatch.h
endef
$(foreach d,$(BUILD) $(BUILD)/asan $(BUILD)/tsan,$(foreach t,$(INSIDE_TESTS) gpu_simulated,$(eval $(call inside,$(d),$(t)))))
$(host:%=$(BUILD)/asan/%): $(BUILD)/asan/inside.o
$(host:%=$(BUILD)/tsan/%): $(BUILD)/tsan/inside.o
$(foreach d,$(BUILD) $(BUILD)/asan $(BUILD)/tsan,$(eval $(d)/test_random_cuda: $(d)/inside_cuda.o tests/loader/test_random.c))
# Of the header, these compile only what they call.
alone = $(filter-out test_coro, $(ALONE_TESTS))
$(foreach d,$(BUILD) $(BUILD)/asan $(BUILD)/tsan,$(alone:%=$(d)/%)) $(BUILD)/native/test_box: \
  TEST_FLAGS += -DINSITU_STATIC -Wno-unknown-warning-option -Wno-unused-function -Wno-maybe-uninitialized
$(BUILD)/test_%: test_%.c $(HEADERS)
	@mkdir -p $(@D)
	$(call build,$(CC),$(CFLAGS))
# With all that the compiler knows of this machine: results stay the same bits
$(BUILD)/native/test_%: test_%.c $(HEADERS)
	@mkdir -p $(@D)
	$(call build,$(CC),$(CFLAGS) -O3 -march=native)
$(BUILD)/asan/test_%: test_%.c $(HEADERS)
	@mkdir -p $(@D)
	$(call build,$(SAN_CC),$(ASAN))
$(BUILD)/tsan/test_%: test_%.c $(HEADERS)
	@mkdir -p $(@D)
	$(call build,$(SAN_CC),$(TSAN))
$(foreach d,$(BUILD) $(BUILD)/asan $(BUILD)/tsan,$(d)/test_codec_core $(d)/test_codec_zlib): tests/unit/test_codec.c
$(foreach d,$(BUILD) $(BUILD)/asan $(BUILD)/tsan,$(d)/test_opmath_scalar): tests/unit/test_opmath.c
$(BUILD)/probe_uring: tests/probe_uring.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -o $@ $< $(LDFLAGS) -luring

# What takes longest to compile comes first
programs: $(BUILD)/linked/insitu $(BUILD)/insitubatch.o $(BUILD)/inside.o $(TESTS:%=$(BUILD)/%) $(BUILD)/native/test_box \
  $(BUILD)/probe_uring
programs-asan: $(BUILD)/asan/inside.o $(ASAN_TESTS:%=$(BUILD)/asan/%) $(BUILD)/asan/linked/insitu $(BUILD)/probe_uring
programs-valgrind: $(BUILD)/linked/insitu $(VG_TESTS:%=$(BUILD)/%)
programs-tsan: $(BUILD)/tsan/inside.o $(TSAN_TESTS:%=$(BUILD)/tsan/%) $(BUILD)/probe_uring

test: deps-test
	@$(call build_and,programs,$(RUN) $(TESTS:%=$(BUILD)/%) $(BUILD)/native/test_box)

test-fallback: deps-test
	@$(MAKE) --no-print-directory -j$(JOBS) programs
	@INSITU_IO=epoll $(RUN) $(IO_TESTS:%=$(BUILD)/%)

# Objects that are replaced while they are read, from servers that break off: N cases of SEED; see tests/remote/faulty.h
N ?= 1000
SEED ?= 1
test-faulty: deps-test
	@$(MAKE) --no-print-directory $(BUILD)/test_http_reads
	@FAULTY_N=$(N) FAULTY_SEED=$(SEED) $(BUILD)/test_http_reads test_faulty

test-asan: deps-ci
	@$(call build_and,programs-asan,{ $(BUILD)/probe_uring; export TEST_TIMEOUT=900; $(RUN) $(ASAN_TESTS:%=$(BUILD)/asan/%); } \
	  && INSITU_IO=epoll $(RUN) $(ONE_BACKEND_TESTS:%=$(BUILD)/asan/%))

test-tsan: deps-ci
	@$(call build_and,programs-tsan,{ $(BUILD)/probe_uring; export TEST_TIMEOUT=900; \
	  STRESS_WALKS=15 $(RUN) $(TSAN_TESTS:%=$(BUILD)/tsan/%); } \
	  && INSITU_IO=epoll $(RUN) $(addprefix $(BUILD)/tsan/,$(filter $(ONE_BACKEND_TESTS), $(TSAN_TESTS))))

# No GPU: what orders uploads with a trainer's streams, lifetimes and errors, over a simulated runtime (tests/cudasim)
test-cuda: deps-ci
	@$(MAKE) --no-print-directory -j$(JOBS) $(CUDA_PROGRAMS)
	@$(RUN) $(CUDA_PROGRAMS)
# The program of make test-gpu, only to see that it is right itself: what it prints is of no GPU.
$(BUILD)/gpu_simulated: tests/device/gpu.c tools/bench/bench_summary.h $(HEADERS)
	@mkdir -p $(@D)
	$(call build,$(CC),$(CFLAGS))
$(BUILD)/asan/gpu_simulated: tests/device/gpu.c tools/bench/bench_summary.h $(HEADERS)
	@mkdir -p $(@D)
	$(call build,$(SAN_CC),$(ASAN))
$(BUILD)/tsan/gpu_simulated: tests/device/gpu.c tools/bench/bench_summary.h $(HEADERS)
	@mkdir -p $(@D)
	$(call build,$(SAN_CC),$(TSAN))

# Over epoll: Valgrind does not see what the kernel writes through a ring. TEST_VALGRIND skips what Valgrind itself gets wrong.
test-valgrind: deps-ci
	@$(call build_and,programs-valgrind,INSITU_IO=epoll TEST_VALGRIND=1 STRESS_WALKS=5 FAULTY_N=15 TEST_TIMEOUT=900 \
	  TEST_WRAPPER='$(VALGRIND)' $(RUN) $(VG_TESTS:%=$(BUILD)/%))

# Random archives and configurations against an independent model: SEED to SEED + N - 1. DEVICES=1: with arrays on simulated CUDA
# devices; SAN=asan or tsan; CASES=-v tells each.
SEED ?= 1
N    ?= 5000
SAN  ?=
random = $(BUILD)/$(addsuffix /,$(SAN))test_random$(if $(DEVICES),_cuda)
test-random: deps-test
	@$(MAKE) --no-print-directory $(random) $(BUILD)/linked/insitu
	@$(random) --seed $(SEED) --n $(N) $(CASES)

# Cross-built and under emulation: byte order of results, the order's golden files, the coroutine switch, all codecs and stores
AARCH64_TESTS ?= test_coro test_order test_box test_text test_codec test_zarr test_stores test_ops \
  test_opmath test_opmath_scalar
test-aarch64: deps-ci
	@FLAGS='$(filter-out -I%,$(TEST_FLAGS)) -O1 -DINSITU_NO_CURL' LIBS='$(filter-out -lcurl,$(TEST_LIBS))' ALONE='$(ALONE_TESTS)' \
	  tests/compile/aarch64.sh $(BUILD)/aarch64 $(AARCH64_TESTS)

# Against the normative model, on random geometries; MODEL is order.py of the design, which the repository does not carry.
MODEL ?= ../shared/model/order.py
test-model: deps-test
	@if [ ! -f '$(MODEL)' ]; then echo 'test-model: skipped, there is no $(MODEL); name the model with MODEL='; \
	  elif ! command -v python3 >/dev/null; then echo 'test-model: skipped, the model needs python3'; \
	  else $(MAKE) --no-print-directory $(BUILD)/linked/insitu && \
	  sh tests/interop/order_vs_model.sh '$(MODEL)' 300 $(BUILD)/linked/insitu; fi

# What other implementations wrote: under DIR, and thousands of small arrays written anew (SEED, ONLY; tests/interop/run tells). Not
# among the tests above: they need Python packages to compare with or to write.
others = mkdir -p $(@D) && $(CC) $(CPPFLAGS) $(TEST_FLAGS) $(CFLAGS) -o $@ $< $(filter %.o,$^) $(LDFLAGS) -lblosc $(TEST_LIBS)
# They include declarations alone, as the tests do that call what is private. $(call other,PROGRAM,NAME)
define other
$(1): private TEST_FLAGS := -I$(BUILD)/inside/$(2) $$(TEST_FLAGS)
$(1): $(BUILD)/inside.o $(BUILD)/inside/$(2)/insitubatch.h
endef
$(eval $(call other,$(BUILD)/conformance,conformance))
$(eval $(call other,$(BUILD)/interop/read,read))
$(eval $(call other,$(BUILD)/stores/check,check))
$(BUILD)/conformance: tests/interop/conformance.c tools/insitu/common.h $(HEADERS)
	$(others)
$(BUILD)/interop/read: tests/interop/read.c $(HEADERS)
	$(others)
conformance: deps-test
	@$(MAKE) --no-print-directory $(BUILD)/conformance $(BUILD)/linked/insitu
	@tests/interop/conformance.sh '$(BUILD)' '$(DIR)'
# Without optimization: it takes a third of the time to compile, and reads small files.
$(BUILD)/interop/files: private CFLAGS += -O0
$(BUILD)/interop/files: tests/interop/files.c $(HEADERS)
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(TEST_FLAGS) $(CFLAGS) -o $@ $< $(LDFLAGS) $$(CC='$(CC)' tools/optional) $(TEST_LIBS)
test-interop: deps-ci
	@$(MAKE) --no-print-directory $(BUILD)/interop/read $(BUILD)/interop/files $(BUILD)/linked/insitu
	@CC='$(CC)' tests/interop/run '$(BUILD)'
	@$(if $(ONLY),,tests/interop/run-files '$(BUILD)')
	@$(if $(ONLY),,tests/interop/run-icechunk '$(BUILD)')

# Real servers on this machine: one that cannot be had is skipped, and said so.
$(BUILD)/stores/check: tests/stores/check.c tools/insitu/common.h $(HEADERS)
	$(others)
test-stores: deps-test
	@tools/deps stores || echo 'test-stores: goes on with the servers that are there'
	@$(MAKE) --no-print-directory $(BUILD)/stores/check $(BUILD)/linked/insitu $(BUILD)/probe_uring
	@tests/stores/run '$(BUILD)'

# Programs in empty folders that use what make install puts somewhere, and an update of the shared library under one of them
test-consumers: deps-ci
	@CC='$(CC)' CXX='$(CXX)' tests/consumers/run '$(BUILD)'

# An epoch under what containers and clusters set: seccomp, read-only roots, few descriptors, control groups
$(BUILD)/containers/confine: tests/containers/confine.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -std=gnu11 -D_GNU_SOURCE $(WARN) -O1 -o $@ $< $(LDFLAGS)
$(BUILD)/containers/epoch: tests/containers/epoch.c insitubatch.h $(BUILD)/insitubatch.o
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -std=gnu11 -I. $(WARN) -O1 -o $@ $< $(BUILD)/insitubatch.o $(LDFLAGS) $(LIBS)
test-containers: deps-test
	@$(MAKE) --no-print-directory $(BUILD)/containers/confine $(BUILD)/containers/epoch
	@tests/containers/run '$(BUILD)'

# Examples of several processes and of other languages; what is not there is skipped, and said so
test-mpi: deps-ci
	@$(MAKE) --no-print-directory $(BUILD)/examples/15_mpi
	@tests/mpi/run '$(BUILD)'
test-bindings: deps-ci
	@$(MAKE) --no-print-directory $(BUILD)/insitubatch.o
	@CC='$(CC)' LIBS='$(LIBS)' tests/bindings/run '$(BUILD)'

# The dataset over DLPack that libtorch trains from, on the CPU. Not in CI: libtorch is large.
test-libtorch: deps-test
	@tools/deps torch
	@$(MAKE) --no-print-directory $(BUILD)/examples/17_libtorch
	$(BUILD)/examples/17_libtorch

# The real headers, runtimes and nvcc of CUDA, on a machine with or without a GPU: the machine's own, or the package index's.
test-cuda-toolkit: deps-ci
	@CC='$(CC)' CXX='$(CXX)' tests/cuda/check.sh '$(BUILD)'

# On a machine with a GPU, what no simulation shows: the real driver, bandwidth, overlap. GPU='--only bandwidth' and the like: see
# tests/device/gpu.c. Skipped, and said so, where there is no toolkit or no device.
$(BUILD)/gpu: tests/device/gpu.c tools/bench/bench_summary.h tests/cuda/toolkit.sh $(HEADERS)
	@mkdir -p $(@D)
	@tests/cuda/toolkit.sh '$(BUILD)' >'$@.toolkits'
	@tail -n 1 '$@.toolkits' | { IFS='|' read -r version include lib nvcc && echo "$@: CUDA $$version" && \
	  $(CC) $(CPPFLAGS) $(filter-out -Itests/cudasim,$(TEST_FLAGS)) "-I$$include" -O2 -o $@ $< $(LDFLAGS) $(TEST_LIBS) \
	  "-L$$lib" "-Wl,-rpath,$$lib" -lcudart; }
test-gpu: deps-test
	@if ! tests/cuda/toolkit.sh '$(BUILD)' >/dev/null; then echo 'test-gpu: skipped, there is no CUDA toolkit'; \
	  else $(MAKE) --no-print-directory $(BUILD)/gpu && \
	  { $(BUILD)/gpu --commit "$$(git describe --always --dirty 2>/dev/null || echo unknown)" $(GPU) || [ $$? = 77 ]; }; fi

# libFuzzer targets for all that reads input from outside, FUZZ_SECONDS each: from the seeds in tests/corpus and tests/data, and
# what earlier runs found (build/corpus). FUZZ=fuzz_url runs only that one. FUZZ_RUNS=20000 runs so many inputs instead, nearly the
# same ones each time where build/corpus is empty; use_cmp would make them depend on where the program was loaded.
FUZZ_SECONDS ?= 30
FUZZ_FOR = $(if $(FUZZ_RUNS),-seed=1 -use_cmp=0 -reload=0 -runs=$(FUZZ_RUNS),-max_total_time=$(FUZZ_SECONDS))
FUZZ ?= $(FUZZERS)
# All are linked with one object, which is instrumented as they are. For a few runs, optimization costs more than it saves.
FUZZ_FLAGS = $(TEST_FLAGS) $(if $(FUZZ_RUNS),-O0,-O1) -g1 -fsanitize=address,undefined
$(BUILD)/fuzz/inside.o: $(BUILD)/inside/insitubatch.c
	@mkdir -p $(@D)
	clang $(FUZZ_FLAGS) -fsanitize=fuzzer-no-link -DINSITU_IMPLEMENTATION -c -o $@ $<
$(BUILD)/fuzz_inventory $(BUILD)/fuzz_netcdf3 $(BUILD)/fuzz_receipt $(BUILD)/fuzz_trace: $(wildcard tools/insitu/*.h)
# Of the functions that the command's parts share, these call a few.
$(BUILD)/fuzz_receipt $(BUILD)/fuzz_trace: private FUZZ_FLAGS += -Wno-unused-function -Wno-unneeded-internal-declaration
$(BUILD)/fuzz_%: tests/fuzz/fuzz_%.c $(BUILD)/fuzz/inside.o $(BUILD)/inside/fuzz_%/insitubatch.h $(HEADERS)
	@mkdir -p $(@D)
	clang -I$(BUILD)/inside/fuzz_$* $(FUZZ_FLAGS) -fsanitize=fuzzer -o $@ $< $(BUILD)/fuzz/inside.o $(LIBS)
programs-fuzz: $(FUZZ:%=$(BUILD)/%)
fuzz: deps-ci
	@$(MAKE) --no-print-directory -j$(JOBS) programs-fuzz
	@tests/fuzz/fuzz_seeds.sh $(BUILD)/seeds
	@for f in $(FUZZ); do mkdir -p $(BUILD)/corpus/$$f $(BUILD)/seeds/$$f && \
	  { $(BUILD)/$$f $(FUZZ_FOR) -verbosity=0 -print_final_stats=1 -artifact_prefix=$(BUILD)/ \
	  $(BUILD)/corpus/$$f $(BUILD)/seeds/$$f tests/corpus/$$f >$(BUILD)/$$f.log 2>&1 || { cat $(BUILD)/$$f.log; exit 1; }; } && \
	  echo "$$f: $$(sed -n 's/^stat::number_of_executed_units: //p' $(BUILD)/$$f.log) inputs"; done

# A server of a folder over HTTP for benchmarks, and a bare receiver to measure it with: its first comment says how.
$(BUILD)/server: tests/support/server.c tests/support/server.h
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -std=gnu11 -D_GNU_SOURCE $(WARN) -O2 -o $@ $< $(LDFLAGS) -lpthread

# Shares of the bare loop, a consumer, decoders, planning; BENCH=--full, BENCH='--only cold --json' and
# the like: see tools/bench/bench.c
$(BUILD)/bench: tools/bench/bench.c $(wildcard tools/bench/*.h) tests/support/server.h insitubatch.h
	@mkdir -p $(@D)
	$(CC) $(TEST_FLAGS) -O2 -o $@ $< -lblosc $(LIBS)
bench: deps-ci
	@$(MAKE) --no-print-directory $(BUILD)/bench
	$(BUILD)/bench $(BENCH)

# Requests in flight to a remote store, found by the loader, beside the best fixed number: its first comment says how
$(BUILD)/bench_tuned: tools/bench/bench_tuned.c $(wildcard tools/bench/*.h) tests/support/server.h insitubatch.h
	@mkdir -p $(@D)
	$(CC) $(TEST_FLAGS) -Itools/bench -O2 -o $@ $< $(LIBS)

# The same rows, this header and the one of a commit in turns in one process: make bench-against BASE=COMMIT
BASE ?= HEAD
bench-against: deps-ci
	@CC='$(CC)' BUILD='$(BUILD)' FEATURES='$(FEATURES)' LIBS='$(LIBS)' tools/bench/bench-against '$(BASE)' $(BENCH)

# Beside the loaders that people would use instead, installed into $(BUILD)/peers by exact versions: tools/peers/bench tells
$(BUILD)/peers/ours: tools/peers/ours.c insitubatch.h
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -std=gnu11 -D_GNU_SOURCE -I. $(FEATURES) $(WARN) -O2 -o $@ $< $(LDFLAGS) $(LIBS)
$(BUILD)/peers/bare: tools/peers/bare.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -std=gnu11 -D_GNU_SOURCE $(WARN) -O2 -o $@ $< $(LDFLAGS) -lcurl
$(BUILD)/peers/bare_local: tools/peers/bare_local.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) -std=gnu11 -D_GNU_SOURCE $(WARN) -O2 -o $@ $< $(LDFLAGS) -lblosc -lpthread
bench-peers: deps-test
	@$(MAKE) --no-print-directory $(addprefix $(BUILD)/peers/,ours bare bare_local) $(BUILD)/server
	@tools/peers/install '$(BUILD)'
	@ONLY='$(ONLY)' PEERS='$(PEERS)' ROUNDS='$(ROUNDS)' QUICK='$(QUICK)' TUNE='$(TUNE)' tools/peers/bench '$(BUILD)'

compile-checks: deps-ci
	@CC='$(CC)' CXX='$(CXX)' tests/compile/compile_checks.sh
	@CC='$(CC)' tests/compile/old_systems.sh
	@tests/compile/first_lines.sh

lint:
	@tools/lint --self-test
	@tools/lint

# ---- installing -----------------------------------------------------------------------------------------------------------------

# Header, libraries, pkg-config and CMake files and the command, under DESTDIR and PREFIX. Nothing that only tests need is installed
# for it. What the machine has of the optional libraries is used (tools/features), unless LIB_WITH names some, as in
# LIB_WITH='ZLIB BZIP2', or LIB_WITH=none.
LIB_WITH ?=
lib: deps-build
	@mkdir -p $(BUILD)/lib
	@CC='$(CC)' CPPFLAGS='$(CPPFLAGS)' LDFLAGS='$(LDFLAGS)' tools/features $(LIB_WITH) >$(BUILD)/lib/features.new
	@cmp -s $(BUILD)/lib/features.new $(BUILD)/lib/features || mv $(BUILD)/lib/features.new $(BUILD)/lib/features
	@$(MAKE) --no-print-directory -j$(JOBS) $(BUILD)/lib/libinsitubatch.so $(BUILD)/lib/libinsitubatch.a
	@. $(abspath $(BUILD)/lib/features) && echo "$(BUILD)/lib: libinsitubatch.so.$(API) and libinsitubatch.a $(VERSION)" $$features

LIB_CFLAGS ?= -O2 -g
$(BUILD)/lib/features:
	@$(MAKE) --no-print-directory lib
$(BUILD)/lib/insitubatch.o: insitubatch.h $(BUILD)/lib/features
	. $(abspath $(BUILD)/lib/features) && $(CC) $(CPPFLAGS) -std=gnu11 -D_GNU_SOURCE $$features $(WARN) -DNDEBUG -fPIC \
	  -fvisibility=hidden '-DINSITU_DEF=extern __attribute__((visibility("default")))' -DINSITU_IMPLEMENTATION $(LIB_CFLAGS) \
	  -x c -c -o $@ $<
$(BUILD)/lib/libinsitubatch.a: $(BUILD)/lib/insitubatch.o
	rm -f $@ && ar rcs $@ $<
$(BUILD)/lib/libinsitubatch.so: $(BUILD)/lib/insitubatch.o
	. $(abspath $(BUILD)/lib/features) && $(CC) $(LDFLAGS) -shared -Wl,-z,defs -Wl,-soname,libinsitubatch.so.$(API) \
	  -o $(BUILD)/lib/libinsitubatch.so.$(API) $< -luring -lcurl -llz4 -lzstd $$libs -lpthread -lm
	ln -sf libinsitubatch.so.$(API) $@
$(BUILD)/lib/insitu: tools/insitu.c insitubatch.h examples/08_extension_codecs.c $(wildcard tools/insitu/*.h) $(BUILD)/lib/features
	. $(abspath $(BUILD)/lib/features) && $(CC) $(CPPFLAGS) -std=c11 -I. $$features $(WARN) -DNDEBUG $(LIB_CFLAGS) -o $@ $< \
	  $(LDFLAGS) -luring -lcurl -llz4 -lzstd -lz $$libs -lpthread -lm

install: lib
	@$(MAKE) --no-print-directory $(BUILD)/lib/insitu
	install -d '$(DESTDIR)$(PREFIX)/bin' '$(DESTDIR)$(PREFIX)/include' '$(DESTDIR)$(PREFIX)/lib/pkgconfig' \
	  '$(DESTDIR)$(PREFIX)/lib/cmake/insitubatch'
	install -m 755 '$(BUILD)/lib/insitu' '$(DESTDIR)$(PREFIX)/bin/insitu'
	install -m 644 insitubatch.h '$(DESTDIR)$(PREFIX)/include/insitubatch.h'
	install -m 644 '$(BUILD)/lib/libinsitubatch.a' '$(DESTDIR)$(PREFIX)/lib/libinsitubatch.a'
	install -m 755 '$(BUILD)/lib/libinsitubatch.so.$(API)' '$(DESTDIR)$(PREFIX)/lib/libinsitubatch.so.$(API)'
	ln -sf libinsitubatch.so.$(API) '$(DESTDIR)$(PREFIX)/lib/libinsitubatch.so'
	@. $(abspath $(BUILD)/lib/features) && for f in pkgconfig/insitubatch.pc pkgconfig/insitubatch-static.pc \
	  pkgconfig/insitubatch-header.pc cmake/insitubatch/insitubatchConfig.cmake cmake/insitubatch/insitubatchConfigVersion.cmake; do \
	  tools/packaging/fill "tools/packaging/$${f##*/}.in" '$(PREFIX)' '$(VERSION)' '$(API)' "$$libs" >"$(BUILD)/lib/$${f##*/}" && \
	  echo install -m 644 "$(BUILD)/lib/$${f##*/}" '$(DESTDIR)$(PREFIX)/lib'/$$f && \
	  install -m 644 "$(BUILD)/lib/$${f##*/}" '$(DESTDIR)$(PREFIX)/lib'/$$f || exit 1; done

clean:
	rm -rf '$(BUILD)'
