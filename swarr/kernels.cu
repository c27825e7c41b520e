// kernels.cu: every kernel, compiled once and linked into all programs. The kernels themselves stand in the
// last part of kv_cache.cuh and of each file of layers/.
#include "kv_cache.cuh"
#include "layers/adamw.cuh"
#include "layers/attention.cuh"
#include "layers/compare.cuh"
#include "layers/embedding.cuh"
#include "layers/matmul.cuh"
#include "layers/rmsnorm.cuh"
#include "layers/rope.cuh"
#include "layers/sample.cuh"
#include "layers/swiglu.cuh"
#include "layers/token_loss.cuh"
