// blas.cu: cuBLAS and cuBLASLt against plain loops: all transpositions, types, batches, bias and gradient
// epilogues.
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_bf16.h>

#include "../../examples/example.h"

static int failures = 0;
static void expect(bool good, const char* what) {
    if (good) return;
    std::printf("wrong: %s\n", what);
    failures++;
}

using bf16 = __nv_bfloat16;
static bf16 narrow(float x) {
    return __float2bfloat16(x);
}
static float wide(bf16 x) {
    return __bfloat162float(x);
}

// out (m, n) column-major = op(a) op(b), leading dimensions ld
static double product(const std::vector<bf16>& a, const std::vector<bf16>& b, int i, int j, int k, int lda,
                      int ldb, bool ta, bool tb) {
    double sum = 0;
    for (int l = 0; l < k; l++)
        sum +=
            double(wide(ta ? a[i * lda + l] : a[l * lda + i])) * wide(tb ? b[l * ldb + j] : b[j * ldb + l]);
    return sum;
}

int main() {
    const int m = 37, n = 29, k = 45, pad = 3;
    cublasHandle_t handle;
    expect(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS, "cublasCreate");
    cublasLtHandle_t lt;
    expect(cublasLtCreate(&lt) == CUBLAS_STATUS_SUCCESS, "cublasLtCreate");
    for (int which = 0; which < 4; which++) {
        bool ta = which & 1, tb = which & 2;
        int lda = (ta ? k : m) + pad, ldb = (tb ? n : k) + pad, ldc = m + pad;
        std::vector<bf16> a(lda * (ta ? m : k)), b(ldb * (tb ? k : n));
        for (bf16& x : a) x = narrow(random_value());
        for (bf16& x : b) x = narrow(random_value());
        std::vector<float> c(ldc * n, 2.0f), bias(m);
        for (float& x : bias) x = random_value();
        DeviceArray<bf16> da(a), db(b);
        DeviceArray<float> dc(c), d_bias(bias);
        float alpha = 0.5f, beta = 3;
        auto error = [&](const std::vector<float>& out, bool add_bias) {
            double e = 0;
            for (int j = 0; j < n; j++)
                for (int i = 0; i < m; i++) {
                    double expected = alpha * product(a, b, i, j, k, lda, ldb, ta, tb) + beta * 2 +
                                      (add_bias ? bias[i] : 0);
                    e = std::fmax(e, std::fabs(out[j * ldc + i] - expected));
                }
            for (int j = 0; j < n; j++)
                e = std::fmax(e, std::fabs(out[j * ldc + m] - 2));  // padding untouched
            return e;
        };
        cublasOperation_t oa = ta ? CUBLAS_OP_T : CUBLAS_OP_N, ob = tb ? CUBLAS_OP_T : CUBLAS_OP_N;
        cublasStatus_t s =
            cublasGemmEx(handle, oa, ob, m, n, k, &alpha, da.data, CUDA_R_16BF, lda, db.data, CUDA_R_16BF,
                         ldb, &beta, dc.data, CUDA_R_32F, ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
        expect(s == CUBLAS_STATUS_SUCCESS, "cublasGemmEx");
        expect(error(dc.host(), false) < 1e-5, "cublasGemmEx result");

        CUDA(cudaMemcpy(dc.data, c.data(), c.size() * 4, cudaMemcpyHostToDevice));
        cublasLtMatmulDesc_t desc;
        cublasLtMatrixLayout_t la, lb, lc;
        cublasLtMatmulPreference_t preference;
        cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
        cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &oa, sizeof oa);
        cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSB, &ob, sizeof ob);
        cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
        const void* bias_pointer = d_bias.data;
        cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
        cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias_pointer,
                                       sizeof bias_pointer);
        cublasLtMatrixLayoutCreate(&la, CUDA_R_16BF, ta ? k : m, ta ? m : k, lda);
        cublasLtMatrixLayoutCreate(&lb, CUDA_R_16BF, tb ? n : k, tb ? k : n, ldb);
        cublasLtMatrixLayoutCreate(&lc, CUDA_R_32F, m, n, ldc);
        cublasLtMatmulPreferenceCreate(&preference);
        cublasLtMatmulHeuristicResult_t found;
        int count = 0;
        s = cublasLtMatmulAlgoGetHeuristic(lt, desc, la, lb, lc, lc, preference, 1, &found, &count);
        expect(s == CUBLAS_STATUS_SUCCESS && count == 1, "cublasLtMatmulAlgoGetHeuristic");
        s = cublasLtMatmul(lt, desc, &alpha, da.data, la, db.data, lb, &beta, dc.data, lc, dc.data, lc,
                           &found.algo, nullptr, 0, nullptr);
        expect(s == CUBLAS_STATUS_SUCCESS, "cublasLtMatmul");
        expect(error(dc.host(), true) < 1e-5, "cublasLtMatmul result");

        epilogue = CUBLASLT_EPILOGUE_BGRADB;
        DeviceArray<float> gradient(n);
        bias_pointer = gradient.data;
        cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
        cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias_pointer,
                                       sizeof bias_pointer);
        cublasLtMatmul(lt, desc, &alpha, da.data, la, db.data, lb, &beta, dc.data, lc, dc.data, lc,
                       &found.algo, nullptr, 0, nullptr);
        auto g = gradient.host();
        double worst = 0;
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int l = 0; l < k; l++) sum += wide(tb ? b[l * ldb + j] : b[j * ldb + l]);
            worst = std::fmax(worst, std::fabs(g[j] - sum));
        }
        expect(worst < 1e-5, "bias gradient");
        cublasLtMatrixLayoutDestroy(la);
        cublasLtMatrixLayoutDestroy(lb);
        cublasLtMatrixLayoutDestroy(lc);
        cublasLtMatmulPreferenceDestroy(preference);
        cublasLtMatmulDescDestroy(desc);
    }
    cublasLtDestroy(lt);
    cublasDestroy(handle);
    std::printf("blas: %d failed\n", failures);
    return failures > 0;
}
