// gemm.cpp: packs both operands to f32 panels and multiplies 16 x 6 tiles held in registers.
#include "gemm.h"

#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "../rt/standin.h"

namespace cusim {

namespace {

constexpr int64_t kRows = 16, kColumns = 6, kDepth = 512;

float from_bf16(uint16_t h) {
    uint32_t u = uint32_t(h) << 16;
    float f;
    std::memcpy(&f, &u, 4);
    return f;
}
uint16_t to_bf16(float x) {
    uint32_t u;
    std::memcpy(&u, &x, 4);
    if ((u & 0x7fffffff) > 0x7f800000) return 0x7fff;
    return uint16_t((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

// Copies `count` strided elements as f32.
void gather(const MatrixView& m, int64_t first, int64_t step, int64_t count, float* out, int64_t out_step) {
    for (int64_t i = 0; i < count; i++) out[i * out_step] = load_element(m.data, m.type, first + i * step);
}

// Panels of `width` lines of length `depth`: element (line, k) of a panel at k * width + line, zeros past the
// end.
void pack(const MatrixView& m, int64_t line_step, int64_t k_step, int64_t lines, int64_t k0, int64_t depth,
          int64_t width, float* out) {
    for (int64_t base = 0; base < lines; base += width, out += width * depth) {
        int64_t here = std::min(width, lines - base);
        for (int64_t l = 0; l < width; l++) {
            if (l < here)
                gather(m, (base + l) * line_step + k0 * k_step, k_step, depth, out + l, width);
            else
                for (int64_t k = 0; k < depth; k++) out[k * width + l] = 0;
        }
    }
}

// One 16 x 6 tile: sums += a panel * b panel.
void tile(const float* a, const float* b, int64_t depth, float* sums) {
    __m256 s[kColumns][2];
    for (int c = 0; c < kColumns; c++)
        s[c][0] = _mm256_loadu_ps(sums + 16 * c), s[c][1] = _mm256_loadu_ps(sums + 16 * c + 8);
    for (int64_t k = 0; k < depth; k++, a += kRows, b += kColumns) {
        __m256 a0 = _mm256_loadu_ps(a), a1 = _mm256_loadu_ps(a + 8);
        for (int c = 0; c < kColumns; c++) {
            __m256 x = _mm256_broadcast_ss(b + c);
            s[c][0] = _mm256_fmadd_ps(a0, x, s[c][0]);
            s[c][1] = _mm256_fmadd_ps(a1, x, s[c][1]);
        }
    }
    for (int c = 0; c < kColumns; c++)
        _mm256_storeu_ps(sums + 16 * c, s[c][0]), _mm256_storeu_ps(sums + 16 * c + 8, s[c][1]);
}

}  // namespace

size_t element_bytes(cudaDataType_t type, const char* call) {
    switch (type) {
        case CUDA_R_16BF:
        case CUDA_R_16F:
            return 2;
        case CUDA_R_32F:
            return 4;
        case CUDA_R_64F:
            return 8;
        default:
            standin_stop((std::string(call) + ": data type " + std::to_string(int(type)) +
                          " is not known; extend dev/cusim/blas/gemm.cpp")
                             .c_str());
    }
}

float load_element(const void* data, cudaDataType_t type, int64_t i) {
    switch (type) {
        case CUDA_R_16BF:
            return from_bf16(static_cast<const uint16_t*>(data)[i]);
        case CUDA_R_16F:
            return _cvtsh_ss(static_cast<const uint16_t*>(data)[i]);
        case CUDA_R_64F:
            return float(static_cast<const double*>(data)[i]);
        default:
            return static_cast<const float*>(data)[i];
    }
}

void store_element(void* data, cudaDataType_t type, int64_t i, float value) {
    switch (type) {
        case CUDA_R_16BF:
            static_cast<uint16_t*>(data)[i] = to_bf16(value);
            break;
        case CUDA_R_16F:
            static_cast<uint16_t*>(data)[i] = _cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT);
            break;
        case CUDA_R_64F:
            static_cast<double*>(data)[i] = value;
            break;
        default:
            static_cast<float*>(data)[i] = value;
    }
}

void multiply_f32(int64_t m, int64_t n, int64_t k, const MatrixView& a, const MatrixView& b, float* out) {
    std::fill(out, out + m * n, 0.0f);
    int64_t m_panels = (m + kRows - 1) / kRows, n_panels = (n + kColumns - 1) / kColumns;
    std::vector<float> pa(size_t(m_panels * kRows * std::min(k, kDepth))),
        pb(size_t(n_panels * kColumns * std::min(k, kDepth)));
    for (int64_t k0 = 0; k0 < k; k0 += kDepth) {
        int64_t depth = std::min(kDepth, k - k0);
        pack(a, a.row_step, a.column_step, m, k0, depth, kRows, pa.data());
        pack(b, b.column_step, b.row_step, n, k0, depth, kColumns, pb.data());
        for (int64_t j = 0; j < n_panels; j++)
            for (int64_t i = 0; i < m_panels; i++) {
                int64_t rows = std::min(kRows, m - i * kRows), columns = std::min(kColumns, n - j * kColumns);
                float sums[kRows * kColumns] = {};
                float* to = out + j * kColumns * m + i * kRows;
                for (int64_t c = 0; c < columns; c++) std::copy_n(to + c * m, rows, sums + c * kRows);
                tile(&pa[size_t(i * kRows * depth)], &pb[size_t(j * kColumns * depth)], depth, sums);
                for (int64_t c = 0; c < columns; c++) std::copy_n(sums + c * kRows, rows, to + c * m);
            }
    }
}

void multiply_f64(int64_t m, int64_t n, int64_t k, const MatrixView& a, const MatrixView& b, double* out) {
    const double *x = static_cast<const double*>(a.data), *y = static_cast<const double*>(b.data);
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < m; i++) {
            double sum = 0;
            for (int64_t l = 0; l < k; l++)
                sum = __builtin_fma(x[i * a.row_step + l * a.column_step],
                                    y[l * b.row_step + j * b.column_step], sum);
            out[j * m + i] = sum;
        }
}

}  // namespace cusim
