# cusim.mk: CUDA without a GPU. Included by the top Makefile, or on its own: make -f dev/cusim/cusim.mk cusim
#
#   cusim        build/cusim/lib{cudart,cublas,cublasLt}.so.13, libnccl.so.2
#   test-cusim   builds and runs its tests under it (needs nvcc)
#   bench-cusim  its speed
#
# Run any nvcc executable (built with CUSIM_NVCCFLAGS) by LD_LIBRARY_PATH=build/cusim ./program

CUSIM := dev/cusim
CUSIM_OUT := build/cusim
NVCC ?= nvcc
CUSIM_NVCC := $(shell command -v $(NVCC) 2>/dev/null)
CUDA_HOME ?= $(if $(CUSIM_NVCC),$(abspath $(dir $(CUSIM_NVCC))..),/usr/local/cuda)

# Optimised even for debug builds: the interpreter's speed is the tests' speed. No contraction: one PTX instruction rounds
# as it says. AVX2 is required.
CUSIM_ARCH ?= x86-64-v3
CUSIM_CXXFLAGS := -std=c++17 -O3 -march=$(CUSIM_ARCH) -ffp-contract=off -fno-math-errno -fPIC -fvisibility=hidden \
    -Wall -Wextra -g1 -I$(CUDA_HOME)/include -MMD -MP
# What an executable needs to run under cusim: PTX as plain text, the shared runtime, line numbers.
CUSIM_NVCCFLAGS := -std=c++17 -lineinfo -gencode arch=compute_80,code=compute_80 --no-compress -cudart shared

CUSIM_CORE := $(wildcard $(CUSIM)/*.cpp $(CUSIM)/ptx/*.cpp $(CUSIM)/exec/*.cpp)
CUSIM_CORE_OBJ := $(CUSIM_CORE:$(CUSIM)/%.cpp=$(CUSIM_OUT)/obj/%.o)
CUSIM_RT_OBJ := $(patsubst $(CUSIM)/%.cpp,$(CUSIM_OUT)/obj/%.o,$(wildcard $(CUSIM)/rt/*.cpp))
CUSIM_BLAS_OBJ := $(patsubst $(CUSIM)/%.cpp,$(CUSIM_OUT)/obj/%.o,$(wildcard $(CUSIM)/blas/*.cpp))
CUSIM_NCCL_OBJ := $(patsubst $(CUSIM)/%.cpp,$(CUSIM_OUT)/obj/%.o,$(wildcard $(CUSIM)/nccl/*.cpp))
CUSIM_LIBS := $(CUSIM_OUT)/libcudart.so.13 $(if $(CUSIM_BLAS_OBJ),$(CUSIM_OUT)/libcublas.so.13 $(CUSIM_OUT)/libcublasLt.so.13) \
    $(if $(CUSIM_NCCL_OBJ),$(CUSIM_OUT)/libnccl.so.2)

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

# $(call cusim_stubs,REAL LIBRARY,FOLDER): compiles stubs for the functions our objects lack.
define cusim_stubs
	$(CUSIM)/unknown_api.sh $(CUDA_HOME)/lib64/$(1) $(2) $(filter %.o,$^) > $(CUSIM_OUT)/obj/unknown_$(1).c
	$(CC) -O1 -fPIC -fvisibility=hidden -fno-builtin -w -c $(CUSIM_OUT)/obj/unknown_$(1).c -o $(CUSIM_OUT)/obj/unknown_$(1).o
endef

$(CUSIM_OUT)/libcudart.so.13: $(CUSIM_CORE_OBJ) $(CUSIM_RT_OBJ) $(CUSIM)/cudart.map $(CUSIM)/unknown_api.sh
	$(call cusim_stubs,libcudart.so.13,rt)
	$(CXX) -shared -o $@ $(filter %.o,$^) $(CUSIM_OUT)/obj/unknown_libcudart.so.13.o -Wl,-soname,libcudart.so.13 \
	    -Wl,--version-script,$(CUSIM)/cudart.map

-include $(CUSIM_CORE_OBJ:.o=.d) $(CUSIM_RT_OBJ:.o=.d) $(CUSIM_BLAS_OBJ:.o=.d) $(CUSIM_NCCL_OBJ:.o=.d)
