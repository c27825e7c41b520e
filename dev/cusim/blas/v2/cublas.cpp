// cublas.cpp: libcublas.so.13: handles and the gemm family.
#include "../gemm.h"

#include <string>
#include <vector>

#include "../../rt/standin.h"

#define CUSIM_API extern "C" __attribute__((visibility("default")))

struct cublasContext {
    cudaStream_t stream = nullptr;
    cublasMath_t math = CUBLAS_DEFAULT_MATH;
    cublasPointerMode_t pointers = CUBLAS_POINTER_MODE_HOST;
};

using namespace cusim;

namespace {

struct Operand {
    const void* data;
    cudaDataType_t type;
    int ld;
    long long stride;
};

bool transposed(cublasOperation_t op) {
    return op != CUBLAS_OP_N;
}

size_t footprint(const Operand& o, int64_t rows, int64_t columns, int batch, const char* call) {
    if (rows == 0 || columns == 0 || batch == 0) return 0;
    return size_t((columns - 1) * o.ld + rows + (batch - 1) * o.stride) * element_bytes(o.type, call);
}

const void* at_batch(const void* data, cudaDataType_t type, int64_t elements, const char* call) {
    return static_cast<const char*>(data) + elements * int64_t(element_bytes(type, call));
}

cublasStatus_t gemm(cublasHandle_t handle, const char* call, cublasOperation_t ta, cublasOperation_t tb,
                    int m, int n, int k, const void* alpha, Operand a, Operand b, const void* beta, Operand c,
                    int batch, bool f64) {
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (m < 0 || n < 0 || k < 0 || batch < 0) return CUBLAS_STATUS_INVALID_VALUE;
    int64_t a_rows = transposed(ta) ? k : m, a_columns = transposed(ta) ? m : k;
    int64_t b_rows = transposed(tb) ? n : k, b_columns = transposed(tb) ? k : n;
    if (a.ld < std::max<int64_t>(1, a_rows) || b.ld < std::max<int64_t>(1, b_rows) || c.ld < std::max(1, m))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (handle->pointers != CUBLAS_POINTER_MODE_HOST)
        standin_stop((std::string(call) + ": only host scalars are known").c_str());
    if (m == 0 || n == 0) return CUBLAS_STATUS_SUCCESS;
    double al = f64 ? *static_cast<const double*>(alpha) : double(*static_cast<const float*>(alpha));
    double be = f64 ? *static_cast<const double*>(beta) : double(*static_cast<const float*>(beta));
    standin_enqueue(handle->stream, call, [=] {
        const void* pa =
            standin_bytes(a.data, footprint(a, a_rows, a_columns, batch, call), false, call, "A");
        const void* pb =
            standin_bytes(b.data, footprint(b, b_rows, b_columns, batch, call), false, call, "B");
        void* pc = standin_bytes(c.data, footprint(c, m, n, batch, call), true, call, "C");
        std::vector<float> product(f64 ? 0 : size_t(m) * size_t(n));
        std::vector<double> product64(f64 ? size_t(m) * size_t(n) : 0);
        for (int i = 0; i < batch; i++) {
            MatrixView va{at_batch(pa, a.type, i * a.stride, call), a.type, transposed(ta) ? a.ld : 1,
                          transposed(ta) ? 1 : a.ld};
            MatrixView vb{at_batch(pb, b.type, i * b.stride, call), b.type, transposed(tb) ? b.ld : 1,
                          transposed(tb) ? 1 : b.ld};
            if (f64)
                multiply_f64(m, n, k, va, vb, product64.data());
            else
                multiply_f32(m, n, k, va, vb, product.data());
            for (int64_t j = 0; j < n; j++)
                for (int64_t r = 0; r < m; r++) {
                    int64_t at = i * c.stride + j * c.ld + r;
                    if (f64) {
                        double* out = static_cast<double*>(pc) + at;
                        *out = al * product64[size_t(j * m + r)] + (be != 0 ? be * *out : 0);
                    } else {
                        float old = be != 0 ? float(be) * load_element(pc, c.type, at) : 0.0f;
                        store_element(pc, c.type, at, float(al) * product[size_t(j * m + r)] + old);
                    }
                }
        }
    });
    return CUBLAS_STATUS_SUCCESS;
}

void require_f32(cublasComputeType_t compute, const char* call) {
    switch (compute) {
        case CUBLAS_COMPUTE_32F:
        case CUBLAS_COMPUTE_32F_PEDANTIC:
        case CUBLAS_COMPUTE_32F_FAST_16F:
        case CUBLAS_COMPUTE_32F_FAST_16BF:
        case CUBLAS_COMPUTE_32F_FAST_TF32:
            return;
        default:
            standin_stop((std::string(call) + ": compute type " + std::to_string(int(compute)) +
                          " is not known; extend dev/cusim/blas/v2/cublas.cpp")
                             .c_str());
    }
}

}  // namespace

CUSIM_API void cusim_unknown_api(const char* name, const char* folder) {
    standin_stop((std::string(name) + " is not implemented; to add it, extend dev/cusim/" + folder).c_str());
}

CUSIM_API cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
    *handle = new cublasContext;
    return CUBLAS_STATUS_SUCCESS;
}
CUSIM_API cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}
CUSIM_API cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
    handle->stream = stream;
    return CUBLAS_STATUS_SUCCESS;
}
CUSIM_API cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t* stream) {
    *stream = handle->stream;
    return CUBLAS_STATUS_SUCCESS;
}
CUSIM_API cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t math) {
    handle->math = math;
    return CUBLAS_STATUS_SUCCESS;
}
CUSIM_API cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* math) {
    *math = handle->math;
    return CUBLAS_STATUS_SUCCESS;
}
CUSIM_API cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
    handle->pointers = mode;
    return CUBLAS_STATUS_SUCCESS;
}
CUSIM_API cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void* workspace, size_t bytes) {
    if (bytes) standin_bytes(workspace, bytes, false, "cublasSetWorkspace", "workspace");
    return CUBLAS_STATUS_SUCCESS;
}
CUSIM_API cublasStatus_t cublasGetVersion_v2(cublasHandle_t, int* version) {
    *version = CUBLAS_VERSION;
    return CUBLAS_STATUS_SUCCESS;
}

CUSIM_API cublasStatus_t cublasGemmEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m,
                                      int n, int k, const void* alpha, const void* a, cudaDataType at,
                                      int lda, const void* b, cudaDataType bt, int ldb, const void* beta,
                                      void* c, cudaDataType ct, int ldc, cublasComputeType_t compute,
                                      cublasGemmAlgo_t) {
    require_f32(compute, "cublasGemmEx");
    return gemm(h, "cublasGemmEx", ta, tb, m, n, k, alpha, {a, at, lda, 0}, {b, bt, ldb, 0}, beta,
                {c, ct, ldc, 0}, 1, false);
}
CUSIM_API cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t h, cublasOperation_t ta,
                                                    cublasOperation_t tb, int m, int n, int k,
                                                    const void* alpha, const void* a, cudaDataType at,
                                                    int lda, long long sa, const void* b, cudaDataType bt,
                                                    int ldb, long long sb, const void* beta, void* c,
                                                    cudaDataType ct, int ldc, long long sc, int batch,
                                                    cublasComputeType_t compute, cublasGemmAlgo_t) {
    require_f32(compute, "cublasGemmStridedBatchedEx");
    return gemm(h, "cublasGemmStridedBatchedEx", ta, tb, m, n, k, alpha, {a, at, lda, sa}, {b, bt, ldb, sb},
                beta, {c, ct, ldc, sc}, batch, false);
}
CUSIM_API cublasStatus_t cublasSgemm_v2(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m,
                                        int n, int k, const float* alpha, const float* a, int lda,
                                        const float* b, int ldb, const float* beta, float* c, int ldc) {
    return gemm(h, "cublasSgemm", ta, tb, m, n, k, alpha, {a, CUDA_R_32F, lda, 0}, {b, CUDA_R_32F, ldb, 0},
                beta, {c, CUDA_R_32F, ldc, 0}, 1, false);
}
CUSIM_API cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t h, cublasOperation_t ta,
                                                   cublasOperation_t tb, int m, int n, int k,
                                                   const float* alpha, const float* a, int lda, long long sa,
                                                   const float* b, int ldb, long long sb, const float* beta,
                                                   float* c, int ldc, long long sc, int batch) {
    return gemm(h, "cublasSgemmStridedBatched", ta, tb, m, n, k, alpha, {a, CUDA_R_32F, lda, sa},
                {b, CUDA_R_32F, ldb, sb}, beta, {c, CUDA_R_32F, ldc, sc}, batch, false);
}
CUSIM_API cublasStatus_t cublasDgemm_v2(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m,
                                        int n, int k, const double* alpha, const double* a, int lda,
                                        const double* b, int ldb, const double* beta, double* c, int ldc) {
    return gemm(h, "cublasDgemm", ta, tb, m, n, k, alpha, {a, CUDA_R_64F, lda, 0}, {b, CUDA_R_64F, ldb, 0},
                beta, {c, CUDA_R_64F, ldc, 0}, 1, true);
}

namespace {
struct StatusName {
    cublasStatus_t status;
    const char *name, *text;
};
#define STATUS(name, text) \
    { name, #name, text }
const StatusName kNames[] = {
    STATUS(CUBLAS_STATUS_SUCCESS, "success"),
    STATUS(CUBLAS_STATUS_NOT_INITIALIZED, "the library was not initialized"),
    STATUS(CUBLAS_STATUS_ALLOC_FAILED, "the resource allocation failed"),
    STATUS(CUBLAS_STATUS_INVALID_VALUE, "an invalid value was used as an argument"),
    STATUS(CUBLAS_STATUS_EXECUTION_FAILED, "the execution failed"),
    STATUS(CUBLAS_STATUS_NOT_SUPPORTED, "the request is not supported"),
};
}  // namespace

CUSIM_API const char* cublasGetStatusName(cublasStatus_t s) {
    for (const StatusName& n : kNames)
        if (n.status == s) return n.name;
    return "CUBLAS_STATUS_UNKNOWN";
}
CUSIM_API const char* cublasGetStatusString(cublasStatus_t s) {
    for (const StatusName& n : kNames)
        if (n.status == s) return n.text;
    return "unknown status";
}
