# swarr.cu: `make help` lists the targets.
#
# Variables: CUDA=0, MPI=0 build without nvcc, MPI where they are installed; CUDA_ARCHS="80 90" (or all) names the cards to compile for;
# SANITIZE=1 adds address and undefined-behaviour checks; OPT, CXX, BUILD (objects) and BIN (programs) as usual.

CXX := $(if $(filter default,$(origin CXX)),g++,$(CXX))
NVCC ?= nvcc
CUDA ?= $(if $(shell command -v $(NVCC) 2>/dev/null),1,0)
# The cards in this machine, or the oldest that is supported (newer ones then compile its PTX when a program starts).
CUDA_ARCHS ?= $(or $(sort $(subst .,,$(shell nvidia-smi --query-gpu=compute_cap --format=csv$(comma)noheader 2>/dev/null))),80)
NEWEST_ARCH = $(lastword $(sort $(filter 1__,$(subst compute_,,$(shell $(NVCC) --list-gpu-arch)))))
BUILD ?= build
BIN ?= .

# No fast-math: results are compared bit for bit. -ffp-contract=off: every fused multiply-add is written out.
OPT ?= -O3 -march=native
# -fno-tree-slp-vectorize: GCC 12 with AVX-512 miscompiles short sums of doubles (dev/LOG.md); kernels name their vectors.
FLAGS := $(OPT) -ffp-contract=off -fno-math-errno -fno-tree-slp-vectorize -fopenmp -Wall -Wextra -Wno-psabi
ifeq ($(SANITIZE),1)
# Left out of undefined: what address finds too; those checks double the time to compile.
FLAGS += -g1 -fsanitize=address,undefined -fno-sanitize=null,alignment,vptr,object-size,nonnull-attribute,returns-nonnull-attribute \
    -fno-sanitize-recover=undefined -fno-omit-frame-pointer
endif
CXXFLAGS := -std=c++17 -I. -Iswarr $(FLAGS)

# Ranks on several CPUs or machines. The compiler's wrapper says where MPI lies; C's, since nothing here needs more.
MPI ?= $(if $(shell command -v mpicc 2>/dev/null),1,0)
ifeq ($(MPI),1)
MPI_WRAPPER := $(shell mpicc -show)
CXXFLAGS += -DSWARR_MPI -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX $(patsubst -I%,-isystem%,$(filter -I%,$(MPI_WRAPPER)))
LIBS := $(filter -L% -l% -Wl%,$(MPI_WRAPPER))
endif

PROGRAMS := train_gpt_swa sft rl_cispo eval locality tokenizer
# Under sanitizers without the tests that only drive programs.
TESTS := $(patsubst test/%.cpp,$(BUILD)/test/%.o,$(filter-out $(if $(filter 1,$(SANITIZE)),%_program.cpp %_comm.cpp %_download.cpp),$(wildcard test/*.cpp)))
BENCHES := $(patsubst dev/bench/%.cpp,$(BUILD)/bench/%,$(filter-out %/bench_gpu.cpp,$(wildcard dev/bench/bench_*.cpp)))

# The programs are C++ with or without CUDA. With it they also see the launchers (SWARR_CUDA) and are linked with the
# kernels, which nvcc compiles once. The run-time is linked shared and PTX is embedded uncompressed, so that dev/cusim
# can execute the kernels without a GPU.
comma := ,
ifeq ($(CUDA),1)
CUDA_HOME ?= $(abspath $(dir $(shell command -v $(NVCC)))..)
GENCODE := $(foreach a,$(if $(filter all,$(CUDA_ARCHS)),80 86 89 90 $(NEWEST_ARCH),$(CUDA_ARCHS)),-gencode arch=compute_$(a)$(comma)code=[sm_$(a)$(comma)compute_$(a)])
COMPILE_KERNELS = $(NVCC) -std=c++17 -O3 -Iswarr -DSWARR_CUDA $(GENCODE) --threads 2 -lineinfo --no-compress \
    -Xcompiler $(subst $() ,$(comma),$(strip $(filter-out -fsanitize% -fno-sanitize%,$(FLAGS)))) -MMD -MP -MF $(@:.o=.d)
CUDA_FLAGS := -DSWARR_CUDA -I$(CUDA_HOME)/include
CUDA_LIBS := -L$(CUDA_HOME)/lib64 -lcudart -lcublasLt -lnccl -Wl,-rpath,$(CUDA_HOME)/lib64
KERNELS := $(BUILD)/kernels.o
endif

# All processors, unless -j says otherwise.
ifeq ($(MAKELEVEL)$(filter -j%,$(MAKEFLAGS)),0)
MAKEFLAGS += -j$(shell nproc)
endif

.PHONY: all help test demo demo-smoke programs bench clean format mutations
all: check-deps programs

help:
	@echo "make            build all programs: $(PROGRAMS)"
	@echo "make demo       the paper in miniature, a few minutes; SEED=n for another seed"
	@echo "make test       install what is missing (apt), build, run every test"
	@echo "make test-gpu   on a machine with a GPU: its results beside cusim's"
	@echo "make test-cuda  the CUDA device's tests, on the CPU under cusim"
	@echo "make bench      measure speed against this machine's own ceilings"
	@echo "make bench-gpu  on a machine with a GPU: the 1.5B shape in nine minutes, and PyTorch's attention beside it"
	@echo "make mutations  break the code on purpose, one fault at a time, and expect the tests to notice"
	@echo "make format     clang-format all sources"
	@echo "make clean      remove everything that make builds"
	@echo "variables: CUDA=$(CUDA) MPI=$(MPI) CUDA_ARCHS=\"$(CUDA_ARCHS)\" SANITIZE=$(or $(SANITIZE),0) OPT=\"$(OPT)\""

.PHONY: check-deps install-deps
check-deps:
	@CXX="$(CXX)" dev/deps.sh check
install-deps:
	@CXX="$(CXX)" dev/deps.sh install

programs: $(addprefix $(BIN)/,$(PROGRAMS))

$(BIN)/%: $(BUILD)/%.o $(KERNELS)
	@mkdir -p $(@D)
	$(CXX) $(FLAGS) $^ $(CUDA_LIBS) $(LIBS) -o $@

$(BIN)/tokenizer: $(BUILD)/tokenizer.o
	@mkdir -p $(@D)
	$(CXX) $(FLAGS) $^ -o $@

$(BUILD)/%.o: %.cu Makefile | check-deps
	@mkdir -p $(@D)
	$(CXX) -x c++ $(CXXFLAGS) $(CUDA_FLAGS) -MMD -MP -c $< -o $@

$(BUILD)/kernels.o: swarr/kernels.cu Makefile | check-deps
	@mkdir -p $(@D)
	$(COMPILE_KERNELS) -c $< -o $@

$(BUILD)/tokenizer.o: tokenizer.cpp Makefile | check-deps
	@mkdir -p $(@D)
	$(CXX) $(CXXFLAGS) -MMD -MP -c $< -o $@

test: install-deps
	@$(MAKE) --no-print-directory run-tests
	@$(MAKE) --no-print-directory test-cuda

.PHONY: run-tests
run-tests: programs $(BUILD)/test/all
	SWARR_BIN=$(BIN) $(BUILD)/test/all $(TEST_ARGS)

# Catch2 3 has its main function in a library; version 2 makes it in test/main.cpp.
CATCH_LIBS := $(if $(wildcard /usr/include/catch2/catch_all.hpp),-lCatch2Main -lCatch2)
$(BUILD)/test/all: $(TESTS)
	$(CXX) $(FLAGS) $^ $(CATCH_LIBS) $(LIBS) -o $@

$(BUILD)/test/%.o: test/%.cpp Makefile | check-deps
	@mkdir -p $(@D)
	$(CXX) $(CXXFLAGS) -Itest -MMD -MP -c $< -o $@

# The CUDA device, on a GPU (test-gpu) or on the CPU by cusim (test-cuda).
CUDA_TESTS := $(patsubst test/cuda/%.cpp,$(BUILD)/test/cuda/%.o,$(wildcard test/cuda/*.cpp))
$(BUILD)/test/cuda/%.o: test/cuda/%.cpp Makefile | check-deps
	@mkdir -p $(@D)
	$(CXX) $(subst -O3,-O1,$(CXXFLAGS)) $(CUDA_FLAGS) -Itest -MMD -MP -c $< -o $@
$(BUILD)/test/cuda/all: $(CUDA_TESTS) $(BUILD)/test/main.o $(KERNELS)
	$(CXX) $(FLAGS) $^ $(CATCH_LIBS) $(CUDA_LIBS) $(LIBS) -o $@

.PHONY: test-cuda
ifeq ($(CUDA),1)
test-cuda: cusim programs $(BUILD)/test/cuda/all $(BUILD)/demo/demo
	@export CUSIM_QUIET=1 CUSIM_CHECK=race,init LD_LIBRARY_PATH=build/cusim SWARR_BIN=$(BIN); test="$(BUILD)/test/cuda/all"; \
	echo "$$test (two processes, race and init checks)"; \
	$$test "[cuda][program],[cuda][comm],[cuda][generate]" & first=$$!; $$test "[cuda]~[program]~[comm]~[generate]" && wait $$first
	CUSIM_QUIET=1 LD_LIBRARY_PATH=build/cusim $(BUILD)/demo/demo --bin $(BIN) --tiny --device cuda >$(BUILD)/demo/tiny_cuda.log || { tail -n 40 $(BUILD)/demo/tiny_cuda.log; exit 1; }
else
test-cuda:
	@echo "skipped: test-cuda (no nvcc, so there is nothing to run under cusim)"
endif

# The paper in miniature: dev/demo.cpp drives the programs above.
SEED ?= 1
demo: install-deps
	@$(MAKE) --no-print-directory programs $(BUILD)/demo/demo
	$(BUILD)/demo/demo --bin $(BIN) --seed $(SEED)

demo-smoke: programs $(BUILD)/demo/demo
	$(BUILD)/demo/demo --bin $(BIN) --smoke

$(BUILD)/demo/demo: dev/demo.cpp Makefile | check-deps
	@mkdir -p $(@D)
	$(CXX) $(CXXFLAGS) -MMD -MP $< -o $@

bench: check-deps $(BENCHES)
	@for b in $(BENCHES); do echo "== $$b"; $$b || exit 1; done
	@$(MAKE) --no-print-directory bench-cusim

# On a machine with a GPU: what cusim stands in for, by the real thing, results compared.
.PHONY: test-gpu
test-gpu: programs $(BUILD)/test/cuda/all test-gpu-cusim
	SWARR_BIN=$(BIN) $(BUILD)/test/cuda/all $(TEST_ARGS)

$(BUILD)/bench/%: dev/bench/%.cpp Makefile
	@mkdir -p $(@D)
	$(CXX) $(CXXFLAGS) -Idev/bench -MMD -MP $< -o $@

# One card in nine minutes. bench-gpu-toy: the same program under cusim, a few tokens of everything.
.PHONY: bench-gpu bench-gpu-toy
$(BUILD)/bench/bench_gpu: dev/bench/bench_gpu.cpp $(KERNELS) Makefile
	@mkdir -p $(@D)
	$(CXX) $(CXXFLAGS) $(CUDA_FLAGS) -I. -MMD -MP $< $(KERNELS) $(CUDA_LIBS) -o $@
bench-gpu: $(BUILD)/bench/bench_gpu
	$< --out $(BUILD)/bench/bench_gpu.json --peers "python3 dev/bench/bench_gpu_peers.py"
ifeq ($(CUDA),1)
bench-gpu-toy: cusim $(BUILD)/bench/bench_gpu
	CUSIM_QUIET=1 LD_LIBRARY_PATH=build/cusim $(BUILD)/bench/bench_gpu --toy --out $(BUILD)/bench/bench_gpu_toy.json
else
bench-gpu-toy:
	@echo "skipped: bench-gpu-toy (no nvcc)"
endif

# Fuzz targets need clang's libFuzzer (Debian: clang, libclang-rt-14-dev).
$(BUILD)/fuzz/%: dev/fuzz/%.cpp Makefile
	@mkdir -p $(@D)
	clang++ -std=c++17 -I. -Iswarr -O1 -g -march=native -ffp-contract=off -Wno-psabi -fsanitize=fuzzer,address,undefined \
	    -fno-sanitize-recover=undefined $< -o $@

mutations:
	dev/mutations.sh

format:
	clang-format -i $$(git ls-files '*.h' '*.cuh' '*.cu' '*.cpp')

clean:
	rm -rf build $(PROGRAMS)

-include $(wildcard dev/cusim/cusim.mk)
-include $(shell test -d $(BUILD) && find $(BUILD) -name '*.d')
.SECONDARY:
