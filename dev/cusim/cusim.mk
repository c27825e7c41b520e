# cusim.mk: CUDA without a GPU. Included by the top Makefile, or on its own: make -f dev/cusim/cusim.mk cusim
#
#   cusim        build/cusim/lib{cudart,cublas,cublasLt}.so.13, libnccl.so.2
#   test-cusim   builds and runs its tests under it (needs nvcc)
#   bench-cusim  its speed
#   test-gpu-cusim  the same programs on a GPU, results compared
#   cusim-unit   only the unit tests; with CUSIM_SANITIZE=1 CUSIM_OUT=build/cusim-asan under sanitizers
#
# Run any nvcc executable (built with CUSIM_NVCCFLAGS) by LD_LIBRARY_PATH=build/cusim ./program

CUSIM := dev/cusim
CUSIM_OUT ?= build/cusim
comma := ,
NVCC ?= nvcc
CUSIM_NVCC := $(shell command -v $(NVCC) 2>/dev/null)
CUDA_HOME ?= $(if $(CUSIM_NVCC),$(abspath $(dir $(CUSIM_NVCC))..),/usr/local/cuda)

# Optimised even for debug builds: the interpreter's speed is the tests' speed. No contraction: one PTX instruction rounds
# as it says. No trapping: nothing looks at the exception flags, and loops with comparisons vectorise. AVX2 is required.
CUSIM_ARCH ?= x86-64-v3
CUSIM_CXXFLAGS := -std=c++17 -O3 -march=$(CUSIM_ARCH) -ffp-contract=off -fno-math-errno -fno-trapping-math -fPIC -fvisibility=hidden \
    -Wall -Wextra -g1 -I$(CUDA_HOME)/include -MMD -MP $(if $(CUSIM_SANITIZE),-O1 -fsanitize=address$(comma)undefined)
# What an executable needs to run under cusim: PTX as plain text, the shared runtime, line numbers.
CUSIM_NVCCFLAGS := -std=c++17 -lineinfo -gencode arch=compute_80,code=compute_80 --no-compress -cudart shared

cusim_objects = $(patsubst $(CUSIM)/%.cpp,$(CUSIM_OUT)/obj/%.o,$(wildcard $(1)))
CUSIM_CORE_OBJ := $(call cusim_objects,$(CUSIM)/*.cpp $(CUSIM)/ptx/*.cpp $(CUSIM)/exec/*.cpp)
CUSIM_RT_OBJ := $(call cusim_objects,$(CUSIM)/rt/*.cpp)
CUSIM_GEMM_OBJ := $(call cusim_objects,$(CUSIM)/blas/*.cpp)
CUSIM_BLAS_OBJ := $(call cusim_objects,$(CUSIM)/blas/v2/*.cpp)
CUSIM_LT_OBJ := $(call cusim_objects,$(CUSIM)/blas/lt/*.cpp)
CUSIM_NCCL_OBJ := $(call cusim_objects,$(CUSIM)/nccl/*.cpp)
CUSIM_LIBS := $(addprefix $(CUSIM_OUT)/,libcudart.so.13 libcublas.so.13 libcublasLt.so.13 libnccl.so.2)

.PHONY: cusim
ifeq ($(CUSIM_NVCC),)
cusim:
	@echo "skipped: cusim (no nvcc, so there is nothing to run under it)"
else
cusim: $(CUSIM_LIBS)
endif

$(CUSIM_OUT)/obj/%.o: $(CUSIM)/%.cpp
	@mkdir -p $(dir $@)
	$(CXX) $(CUSIM_CXXFLAGS) -c $< -o $@

# These change the rounding mode.
$(CUSIM_OUT)/obj/exec/float.o $(CUSIM_OUT)/obj/exec/convert.o: CUSIM_CXXFLAGS += -frounding-math

# $(call cusim_link,SONAME,FOLDER,VERSION NAME): a library under its real name, with stubs for the functions it lacks.
define cusim_link
	$(CUSIM)/unknown_api.sh $(CUDA_HOME)/lib64/$(1) $(2) $(filter %.o,$^) > $(CUSIM_OUT)/obj/unknown_$(1).c
	$(CC) -O1 -fPIC -fvisibility=hidden -fno-builtin -w -c $(CUSIM_OUT)/obj/unknown_$(1).c -o $(CUSIM_OUT)/obj/unknown_$(1).o
	echo '$(3) { global: *; };' > $(CUSIM_OUT)/obj/$(1).map
	$(CXX) -shared -o $@ $(filter %.o %.so.13,$^) $(CUSIM_OUT)/obj/unknown_$(1).o -Wl,-soname,$(1) \
	    -Wl,--version-script,$(CUSIM_OUT)/obj/$(1).map
endef

$(CUSIM_OUT)/libcudart.so.13: $(CUSIM_CORE_OBJ) $(CUSIM_RT_OBJ)
	$(call cusim_link,libcudart.so.13,rt,libcudart.so.13)
$(CUSIM_OUT)/libcublas.so.13: $(CUSIM_BLAS_OBJ) $(CUSIM_GEMM_OBJ) $(CUSIM_OUT)/libcudart.so.13
	$(call cusim_link,libcublas.so.13,blas/v2,libcublas.so.13)
$(CUSIM_OUT)/libcublasLt.so.13: $(CUSIM_LT_OBJ) $(CUSIM_GEMM_OBJ) $(CUSIM_OUT)/libcudart.so.13
	$(call cusim_link,libcublasLt.so.13,blas/lt,libcublasLt.so.13)
$(CUSIM_OUT)/libnccl.so.2: $(CUSIM_NCCL_OBJ) $(CUSIM_GEMM_OBJ) $(CUSIM_OUT)/libcudart.so.13
	$(call cusim_link,libnccl.so.2,nccl,)

# ---- tests -------------------------------------------------------------------------------------------------------------
# Unit tests are linked with the interpreter itself; test programs are made by nvcc and run under the libraries.
CUSIM_UNIT_OBJ := $(call cusim_objects,$(CUSIM)/test/*.cpp)
CUSIM_PROGRAMS := $(notdir $(basename $(wildcard $(CUSIM)/examples/*.cu $(CUSIM)/test/*/*.cu)))
CUSIM_BIN := $(CUSIM_OUT)/bin
CUSIM_CATCH := $(if $(wildcard /usr/include/catch2/catch_all.hpp),-lCatch2Main -lCatch2)

# Tests are compiled more than they are run.
$(CUSIM_UNIT_OBJ): CUSIM_CXXFLAGS += -O1 -Itest
# Catch2 itself (version 2 comes as source) takes gigabytes and many minutes to compile under sanitizers.
$(CUSIM_OUT)/obj/test/main.o: CUSIM_CXXFLAGS += -fno-sanitize=all

$(CUSIM_OUT)/unit: $(CUSIM_UNIT_OBJ) $(CUSIM_CORE_OBJ)
	$(CXX) $(if $(CUSIM_SANITIZE),-fsanitize=address$(comma)undefined) $^ $(CUSIM_CATCH) -o $@

define cusim_program
$(CUSIM_BIN)/%: $(CUSIM)/$(1)/%.cu $(wildcard $(CUSIM)/examples/*.h $(CUSIM)/examples/*.cuh $(CUSIM)/test/isa/*.h)
	@mkdir -p $(CUSIM_BIN)
	$(NVCC) $$(CUSIM_NVCCFLAGS) --extended-lambda $$< -o $$@ -lcublas -lcublasLt -lnccl
endef
$(foreach folder,examples test/faults test/programs test/isa,$(eval $(call cusim_program,$(folder))))
$(CUSIM_BIN)/hopper: CUSIM_NVCCFLAGS := $(subst compute_80,compute_90,$(CUSIM_NVCCFLAGS))
CUSIM_ISA := $(notdir $(basename $(wildcard $(CUSIM)/test/isa/*.cu)))

.PHONY: test-cusim bench-cusim cusim-unit
cusim-unit: $(CUSIM_OUT)/unit
	$(CUSIM_OUT)/unit
ifeq ($(CUSIM_NVCC),)
test-cusim: cusim-unit
bench-cusim:
	@echo "skipped: bench-cusim (no nvcc)"
else
test-cusim: cusim $(CUSIM_OUT)/unit $(addprefix $(CUSIM_BIN)/,$(CUSIM_PROGRAMS))
	CUSIM_TEST_BIN=$(abspath $(CUSIM_BIN)) $(CUSIM_OUT)/unit
	@failed=0; for p in $(CUSIM_ISA); do CUSIM_QUIET=1 LD_LIBRARY_PATH=$(CUSIM_OUT) $(CUSIM_BIN)/$$p || failed=1; done; exit $$failed
bench-cusim: cusim $(addprefix $(CUSIM_BIN)/,$(CUSIM_PROGRAMS))
	@for p in $(notdir $(basename $(wildcard $(CUSIM)/examples/*.cu))); do \
	    CUSIM_QUIET=1 LD_LIBRARY_PATH=$(CUSIM_OUT) $(CUSIM_BIN)/$$p 30 | grep ' per '; done
endif

# ---- against a real GPU: the examples, the runtime API, and every instruction's results compared with cusim's --------------
.PHONY: test-gpu-cusim
CUSIM_ON_GPU := $(notdir $(basename $(wildcard $(CUSIM)/examples/*.cu))) runtime blas $(CUSIM_ISA)
test-gpu-cusim: cusim $(addprefix $(CUSIM_BIN)/,$(CUSIM_PROGRAMS))
	@if ! nvidia-smi -L >/dev/null 2>&1; then echo "skipped: test-gpu-cusim (no GPU)"; exit 0; fi; set -e; \
	for p in $(CUSIM_ON_GPU); do $(CUSIM_BIN)/$$p; done; \
	$(CUSIM_BIN)/conformance dump $(CUSIM_OUT)/gpu.txt; \
	LD_LIBRARY_PATH=$(CUSIM_OUT) $(CUSIM_BIN)/conformance dump $(CUSIM_OUT)/cpu.txt; \
	$(CUSIM_BIN)/conformance compare $(CUSIM_OUT)/gpu.txt $(CUSIM_OUT)/cpu.txt

# ---- fuzzing the parser (clang) ------------------------------------------------------------------------------------------
build/fuzz/fuzz_ptx: dev/fuzz/fuzz_ptx.cpp $(wildcard $(CUSIM)/*.cpp $(CUSIM)/*.h $(CUSIM)/ptx/* $(CUSIM)/exec/*)
	@mkdir -p $(@D)
	clang++ -std=c++17 -O1 -g1 -march=$(CUSIM_ARCH) -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined \
	    $(filter %.cpp,$^) -o $@

-include $(patsubst %.o,%.d,$(CUSIM_CORE_OBJ) $(CUSIM_RT_OBJ) $(CUSIM_GEMM_OBJ) $(CUSIM_BLAS_OBJ) $(CUSIM_LT_OBJ) $(CUSIM_NCCL_OBJ) $(CUSIM_UNIT_OBJ))
