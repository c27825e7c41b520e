// graph.cpp: stream capture and graph launch.
#include "graph.h"

using namespace cusim;

namespace {
u64 next_graph_id = 1;
// Opaque to the program: only their number can be asked for.
CUgraphNode_st* node_handle(size_t k) {
    return reinterpret_cast<CUgraphNode_st*>(k + 1);
}
cudaStreamCaptureStatus capture_status(const CUstream_st* s) {
    if (!s->capture) return cudaStreamCaptureStatusNone;
    return s->capture->invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
}
}  // namespace

cudaStreamCaptureMode& cusim::thread_capture_mode() {
    thread_local cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
    return mode;
}

CUSIM_API cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
    Locked locked;
    CUstream_st* s = stream_of(handle);
    if (!s || !handle || handle == cudaStreamLegacy) return done(cudaErrorStreamCaptureUnsupported);
    if (s->capture) return done(cudaErrorIllegalState);
    s->capture = new CUgraph_st;
    s->capture->id = next_graph_id++;
    s->capture->mode = mode;
    s->capture->thread = std::this_thread::get_id();
    s->capture_origin = true;
    return done();
}

CUSIM_API cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
    Locked locked;
    CUstream_st* s = stream_of(handle);
    if (!s || !s->capture) return done(cudaErrorIllegalState);
    if (!s->capture_origin) return done(cudaErrorStreamCaptureUnmatched);
    std::unique_ptr<CUgraph_st> captured(s->capture);
    *graph = nullptr;
    bool joined = end_capture(s);
    if (captured->invalid) return done(cudaErrorStreamCaptureInvalidated);
    if (!joined) return done(cudaErrorStreamCaptureUnjoined);
    *graph = captured.release();
    return done();
}

CUSIM_API cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
    Locked locked;
    CUstream_st* s = stream_of(handle);
    if (!s) return done(cudaErrorInvalidResourceHandle);
    *status = capture_status(s);
    return done();
}

CUSIM_API cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status,
                                               unsigned long long* id, cudaGraph_t* graph,
                                               const cudaGraphNode_t** dependencies,
                                               const cudaGraphEdgeData** edges, size_t* count) {
    Locked locked;
    CUstream_st* s = stream_of(handle);
    if (!s) return done(cudaErrorInvalidResourceHandle);
    if (dependencies || edges)
        stop("cudaStreamGetCaptureInfo with dependencies is not known; extend dev/cusim/rt/graph.cpp");
    *status = capture_status(s);
    if (id) *id = s->capture ? s->capture->id : 0;
    if (graph) *graph = s->capture;
    if (count) *count = 0;
    return done();
}

CUSIM_API cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
    if (!mode) return done(cudaErrorInvalidValue);
    std::swap(*mode, thread_capture_mode());
    return done();
}

CUSIM_API cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
    Locked locked;
    if (!graph || !count) return done(cudaErrorInvalidValue);
    if (nodes)
        for (size_t k = 0; k < *count && k < graph->operations.size(); k++) nodes[k] = node_handle(k);
    *count = graph->operations.size();
    return done();
}

CUSIM_API cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
    Locked locked;
    if (!exec || !graph) return done(cudaErrorInvalidValue);
    *exec = new CUgraphExec_st{graph->operations};
    return done();
}
CUSIM_API cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph,
                                                    unsigned long long flags) {
    return cudaGraphInstantiate(exec, graph, flags);
}

CUSIM_API cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph,
                                          cudaGraphExecUpdateResultInfo* info) {
    Locked locked;
    if (!exec || !graph) return done(cudaErrorInvalidValue);
    bool same = exec->operations.size() == graph->operations.size();
    for (size_t k = 0; same && k < graph->operations.size(); k++)
        same = std::string_view(exec->operations[k].name) == graph->operations[k].name;
    if (info)
        *info = {same ? cudaGraphExecUpdateSuccess : cudaGraphExecUpdateErrorTopologyChanged, nullptr,
                 nullptr};
    if (!same) return done(cudaErrorGraphExecUpdateFailure);
    exec->operations = graph->operations;
    return done();
}

CUSIM_API cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle) {
    Locked locked;
    CUstream_st* s = stream_of(handle);
    if (!exec || !s) return done(cudaErrorInvalidValue);
    auto operations = exec->operations;
    enqueue(s, "graph", [operations] {
        for (const Operation& op : operations) op.run();
    });
    return done();
}

CUSIM_API cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) {
    return done();
}
CUSIM_API cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    Locked locked;
    delete graph;
    return done();
}
CUSIM_API cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    Locked locked;
    run_all();
    delete exec;
    return done();
}
