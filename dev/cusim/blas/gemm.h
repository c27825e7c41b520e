// gemm.h: the matrix product behind the cuBLAS and cuBLASLt stand-ins.
//
// Column-major, as BLAS has it. Products and sums in f32 with fused multiply-add, k ascending: deterministic,
// and not the order of a GPU library. Integer and complex types are not known.
#pragma once
#include <cublas_v2.h>

#include <cstddef>
#include <cstdint>

namespace cusim {

// One operand: element (r, c) is at r * row_step + c * column_step.
struct MatrixView {
    const void* data;
    cudaDataType_t type;
    int64_t row_step, column_step;
};

// Bytes of an element; ends the program for a type that is not known.
size_t element_bytes(cudaDataType_t type, const char* call);
float load_element(const void* data, cudaDataType_t type, int64_t index);
void store_element(void* data, cudaDataType_t type, int64_t index, float value);

// out (m, n), column-major with leading dimension m, = a (m, k) times b (k, n).
void multiply_f32(int64_t m, int64_t n, int64_t k, const MatrixView& a, const MatrixView& b, float* out);
void multiply_f64(int64_t m, int64_t n, int64_t k, const MatrixView& a, const MatrixView& b, double* out);

}  // namespace cusim
