// cublaslt.cpp: libcublasLt.so.13: matmul with descriptors and epilogues. The opaque descriptors hold our own
// structs.
#include <cublasLt.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "../../rt/standin.h"
#include "../gemm.h"

#define CUSIM_API extern "C" __attribute__((visibility("default")))

using namespace cusim;

namespace {

[[noreturn]] void unknown(const std::string& what) {
    standin_stop(("cublasLtMatmul: " + what + "; extend dev/cusim/blas/lt/cublaslt.cpp").c_str());
}

struct Desc {
    cublasComputeType_t compute;
    cudaDataType_t scale;
    int32_t transpose_a, transpose_b, epilogue;
    const void* bias;
    int32_t bias_type;  // -1: that of D
};
struct Layout {
    int32_t type, order, batch;
    uint64_t rows, columns;
    int64_t ld, stride;
    // Step to the next row and column, by order.
    int64_t row_step() const { return order == CUBLASLT_ORDER_ROW ? ld : 1; }
    int64_t column_step() const { return order == CUBLASLT_ORDER_ROW ? 1 : ld; }
    bool fits() const { return uint64_t(ld) >= (order == CUBLASLT_ORDER_ROW ? columns : rows); }
    size_t bytes() const {
        if (!rows || !columns) return 0;
        return size_t(int64_t(rows - 1) * row_step() + int64_t(columns - 1) * column_step() +
                      (batch - 1) * stride + 1) *
               element_bytes(cudaDataType_t(type), "cublasLtMatmul");
    }
};
static_assert(sizeof(Desc) <= sizeof(cublasLtMatmulDescOpaque_t), "descriptor too small");
static_assert(sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "layout too small");

template <class T, class Opaque>
T& as(Opaque* o) {
    return *reinterpret_cast<T*>(o);
}
const Layout& layout(cublasLtMatrixLayout_t l) {
    return *reinterpret_cast<const Layout*>(l);
}

template <class T>
cublasStatus_t assign(T& field, const void* value, size_t bytes) {
    if (bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&field, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

float gelu(float x) {
    return 0.5f * x * (1 + std::tanh(0.7978845608f * (x + 0.044715f * x * x * x)));
}

// Bias gradient: sums of op(A)'s rows or op(B)'s columns over k.
void sum_over_depth(const MatrixView& v, int64_t lines, int64_t line_step, int64_t depth, int64_t depth_step,
                    void* out, cudaDataType_t type) {
    for (int64_t l = 0; l < lines; l++) {
        float sum = 0;
        for (int64_t k = 0; k < depth; k++)
            sum += load_element(v.data, v.type, l * line_step + k * depth_step);
        store_element(out, type, l, sum);
    }
}

struct Matmul {
    Desc desc;
    Layout a, b, c, d;
    const void *pa, *pb, *pc;
    void* pd;
    float alpha, beta;

    int64_t m() const { return int64_t(d.rows); }
    int64_t n() const { return int64_t(d.columns); }
    int64_t k() const { return int64_t(desc.transpose_a ? a.rows : a.columns); }

    bool fits() const {
        uint64_t am = desc.transpose_a ? a.columns : a.rows, bk = desc.transpose_b ? b.columns : b.rows,
                 bn = desc.transpose_b ? b.rows : b.columns;
        return am == d.rows && bn == d.columns && bk == uint64_t(k()) && c.rows == d.rows &&
               c.columns == d.columns && a.fits() && b.fits() && c.fits() && d.fits() && a.batch == d.batch &&
               b.batch == d.batch && c.batch == d.batch;
    }

    void run() const {
        const char* call = "cublasLtMatmul";
        const void* xa = standin_bytes(pa, a.bytes(), false, call, "A");
        const void* xb = standin_bytes(pb, b.bytes(), false, call, "B");
        const void* xc = beta != 0 ? standin_bytes(pc, c.bytes(), false, call, "C") : nullptr;
        void* xd = standin_bytes(pd, d.bytes(), true, call, "D");
        bool grad_a = desc.epilogue == CUBLASLT_EPILOGUE_BGRADA,
             grad_b = desc.epilogue == CUBLASLT_EPILOGUE_BGRADB;
        bool relu = desc.epilogue == CUBLASLT_EPILOGUE_RELU || desc.epilogue == CUBLASLT_EPILOGUE_RELU_BIAS;
        bool is_gelu =
            desc.epilogue == CUBLASLT_EPILOGUE_GELU || desc.epilogue == CUBLASLT_EPILOGUE_GELU_BIAS;
        bool add_bias = desc.epilogue == CUBLASLT_EPILOGUE_BIAS ||
                        desc.epilogue == CUBLASLT_EPILOGUE_RELU_BIAS ||
                        desc.epilogue == CUBLASLT_EPILOGUE_GELU_BIAS;
        if (!(grad_a || grad_b || relu || is_gelu || add_bias || desc.epilogue == CUBLASLT_EPILOGUE_DEFAULT))
            unknown("epilogue " + std::to_string(desc.epilogue) + " is not known");
        cudaDataType_t bias_type = cudaDataType_t(desc.bias_type < 0 ? d.type : desc.bias_type);
        void* bias = nullptr;
        if (add_bias || grad_a || grad_b)
            bias = standin_bytes(desc.bias, size_t(grad_b ? n() : m()) * element_bytes(bias_type, call),
                                 grad_a || grad_b, call, "bias");

        std::vector<float> product(size_t(m()) * size_t(n()));
        for (int32_t i = 0; i < d.batch; i++) {
            MatrixView va = view(xa, a, i, desc.transpose_a), vb = view(xb, b, i, desc.transpose_b);
            multiply_f32(m(), n(), k(), va, vb, product.data());
            for (int64_t col = 0; col < n(); col++)
                for (int64_t row = 0; row < m(); row++) {
                    float x = alpha * product[size_t(col * m() + row)];
                    if (xc)
                        x += beta * load_element(xc, cudaDataType_t(c.type),
                                                 i * c.stride + row * c.row_step() + col * c.column_step());
                    if (add_bias) x += load_element(bias, bias_type, row);
                    if (relu) x = x > 0 ? x : 0;
                    if (is_gelu) x = gelu(x);
                    store_element(xd, cudaDataType_t(d.type),
                                  i * d.stride + row * d.row_step() + col * d.column_step(), x);
                }
            if (grad_a) sum_over_depth(va, m(), va.row_step, k(), va.column_step, bias, bias_type);
            if (grad_b) sum_over_depth(vb, n(), vb.column_step, k(), vb.row_step, bias, bias_type);
        }
    }

  private:
    static MatrixView view(const void* data, const Layout& l, int32_t batch, bool transpose) {
        const char* at = static_cast<const char*>(data) +
                         batch * l.stride * int64_t(element_bytes(cudaDataType_t(l.type), "cublasLtMatmul"));
        return {at, cudaDataType_t(l.type), transpose ? l.column_step() : l.row_step(),
                transpose ? l.row_step() : l.column_step()};
    }
};

}  // namespace

CUSIM_API void cusim_unknown_api(const char* name, const char* folder) {
    standin_stop((std::string(name) + " is not implemented; to add it, extend dev/cusim/" + folder).c_str());
}

CUSIM_API cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
    *handle = reinterpret_cast<cublasLtHandle_t>(new char);
    return CUBLAS_STATUS_SUCCESS;
}
CUSIM_API cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    delete reinterpret_cast<char*>(handle);
    return CUBLAS_STATUS_SUCCESS;
}
CUSIM_API size_t cublasLtGetVersion() {
    return CUBLAS_VERSION;
}
CUSIM_API const char* cublasLtGetStatusName(cublasStatus_t status) {
    switch (status) {
        case CUBLAS_STATUS_SUCCESS:
            return "CUBLAS_STATUS_SUCCESS";
        case CUBLAS_STATUS_INVALID_VALUE:
            return "CUBLAS_STATUS_INVALID_VALUE";
        case CUBLAS_STATUS_NOT_SUPPORTED:
            return "CUBLAS_STATUS_NOT_SUPPORTED";
        default:
            return "a status that the stand-in never returns";
    }
}

// ---- descriptors: the Init functions fill caller memory, Create ones allocate it
// ----------------------------------------

CUSIM_API cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t desc, size_t bytes,
                                                         cublasComputeType_t compute, cudaDataType_t scale) {
    if (bytes < sizeof(Desc)) return CUBLAS_STATUS_INVALID_VALUE;
    as<Desc>(desc) = {compute, scale, 0, 0, CUBLASLT_EPILOGUE_DEFAULT, nullptr, -1};
    return CUBLAS_STATUS_SUCCESS;
}
CUSIM_API cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                                                  cudaDataType_t scale) {
    *desc = new cublasLtMatmulDescOpaque_t;
    return cublasLtMatmulDescInit_internal(*desc, sizeof **desc, compute, scale);
}
CUSIM_API cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
    delete desc;
    return CUBLAS_STATUS_SUCCESS;
}
CUSIM_API cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                                        cublasLtMatmulDescAttributes_t which,
                                                        const void* value, size_t bytes) {
    Desc& d = as<Desc>(desc);
    switch (which) {
        case CUBLASLT_MATMUL_DESC_TRANSA:
            return assign(d.transpose_a, value, bytes);
        case CUBLASLT_MATMUL_DESC_TRANSB:
            return assign(d.transpose_b, value, bytes);
        case CUBLASLT_MATMUL_DESC_EPILOGUE:
            return assign(d.epilogue, value, bytes);
        case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
            return assign(d.bias, value, bytes);
        case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
            return assign(d.bias_type, value, bytes);
        case CUBLASLT_MATMUL_DESC_POINTER_MODE: {
            int32_t mode;
            cublasStatus_t s = assign(mode, value, bytes);
            if (s == CUBLAS_STATUS_SUCCESS && mode != CUBLASLT_POINTER_MODE_HOST)
                unknown("device scalars are not known");
            return s;
        }
        default:
            unknown("descriptor attribute " + std::to_string(int(which)) + " is not known");
    }
}

CUSIM_API cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t l, size_t bytes,
                                                           cudaDataType type, uint64_t rows, uint64_t columns,
                                                           int64_t ld) {
    if (bytes < sizeof(Layout)) return CUBLAS_STATUS_INVALID_VALUE;
    as<Layout>(l) = {int32_t(type), CUBLASLT_ORDER_COL, 1, rows, columns, ld, 0};
    return CUBLAS_STATUS_SUCCESS;
}
CUSIM_API cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* l, cudaDataType type,
                                                    uint64_t rows, uint64_t columns, int64_t ld) {
    *l = new cublasLtMatrixLayoutOpaque_t;
    return cublasLtMatrixLayoutInit_internal(*l, sizeof **l, type, rows, columns, ld);
}
CUSIM_API cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
    delete l;
    return CUBLAS_STATUS_SUCCESS;
}
CUSIM_API cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l,
                                                          cublasLtMatrixLayoutAttribute_t which,
                                                          const void* value, size_t bytes) {
    Layout& x = as<Layout>(l);
    switch (which) {
        case CUBLASLT_MATRIX_LAYOUT_TYPE:
            return assign(x.type, value, bytes);
        case CUBLASLT_MATRIX_LAYOUT_ROWS:
            return assign(x.rows, value, bytes);
        case CUBLASLT_MATRIX_LAYOUT_COLS:
            return assign(x.columns, value, bytes);
        case CUBLASLT_MATRIX_LAYOUT_LD:
            return assign(x.ld, value, bytes);
        case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
            return assign(x.batch, value, bytes);
        case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
            return assign(x.stride, value, bytes);
        case CUBLASLT_MATRIX_LAYOUT_ORDER: {
            cublasStatus_t s = assign(x.order, value, bytes);
            if (x.order != CUBLASLT_ORDER_COL && x.order != CUBLASLT_ORDER_ROW)
                unknown("layout order " + std::to_string(x.order) + " is not known");
            return s;
        }
        default:
            unknown("layout attribute " + std::to_string(int(which)) + " is not known");
    }
}

// Preferences choose among algorithms; there is one.
CUSIM_API cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t, size_t) {
    return CUBLAS_STATUS_SUCCESS;
}
CUSIM_API cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* p) {
    *p = new cublasLtMatmulPreferenceOpaque_t();
    return CUBLAS_STATUS_SUCCESS;
}
CUSIM_API cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
    delete p;
    return CUBLAS_STATUS_SUCCESS;
}
CUSIM_API cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                              cublasLtMatmulPreferenceAttributes_t,
                                                              const void*, size_t) {
    return CUBLAS_STATUS_SUCCESS;
}

CUSIM_API cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                                        cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                        cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                        cublasLtMatmulPreference_t, int wanted,
                                                        cublasLtMatmulHeuristicResult_t results[],
                                                        int* found) {
    Matmul x{as<Desc>(desc), layout(a), layout(b), layout(c), layout(d), nullptr,
             nullptr,        nullptr,   nullptr,   1,         0};
    *found = 0;
    if (wanted < 1 || !x.fits())
        return wanted < 1 ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_NOT_SUPPORTED;
    results[0] = {};
    results[0].state = CUBLAS_STATUS_SUCCESS;
    results[0].wavesCount = 1;
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

CUSIM_API cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha,
                                        const void* a, cublasLtMatrixLayout_t la, const void* b,
                                        cublasLtMatrixLayout_t lb, const void* beta, const void* c,
                                        cublasLtMatrixLayout_t lc, void* d, cublasLtMatrixLayout_t ld,
                                        const cublasLtMatmulAlgo_t*, void* workspace, size_t workspace_bytes,
                                        cudaStream_t stream) {
    Matmul x{as<Desc>(desc), layout(la), layout(lb), layout(lc), layout(ld), a, b, c, d, 0, 0};
    if (x.desc.scale != CUDA_R_32F)
        unknown("scale type " + std::to_string(int(x.desc.scale)) + " is not known");
    switch (x.desc.compute) {
        case CUBLAS_COMPUTE_32F:
        case CUBLAS_COMPUTE_32F_PEDANTIC:
        case CUBLAS_COMPUTE_32F_FAST_16F:
        case CUBLAS_COMPUTE_32F_FAST_16BF:
        case CUBLAS_COMPUTE_32F_FAST_TF32:
            break;
        default:
            unknown("compute type " + std::to_string(int(x.desc.compute)) + " is not known");
    }
    std::memcpy(&x.alpha, alpha, 4);
    std::memcpy(&x.beta, beta, 4);
    if (!x.fits()) return CUBLAS_STATUS_INVALID_VALUE;
    if (workspace_bytes) standin_bytes(workspace, workspace_bytes, false, "cublasLtMatmul", "workspace");
    standin_enqueue(stream, "cublasLtMatmul", [x] { x.run(); });
    return CUBLAS_STATUS_SUCCESS;
}
