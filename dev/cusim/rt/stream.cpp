// stream.cpp: see stream.h.
#include "stream.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "graph.h"

namespace cusim {

namespace {

std::set<CUstream_st*>& streams() {
    static auto* all = new std::set<CUstream_st*>;  // outlives exit handlers
    return *all;
}
CUstream_st& default_stream() {
    static CUstream_st* s = [] {
        auto* made = new CUstream_st;
        streams().insert(made);
        return made;
    }();
    return *s;
}

u64 random_next() {
    static u64 state = options().stream_seed * 0x9e3779b97f4a7c15 + 1;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

bool ready(CUstream_st* s) {
    if (s->queue.empty()) return false;
    const auto& after = s->queue.front().after;
    return std::all_of(after.begin(), after.end(), reached);
}

void run_front(CUstream_st* s) {
    Operation op = std::move(s->queue.front());
    s->queue.pop_front();
    op.run();
    s->completed++;
}

// Runs one randomly chosen ready operation; false if there is none.
bool step() {
    std::vector<CUstream_st*> choices;
    for (CUstream_st* s : streams())
        if (ready(s)) choices.push_back(s);
    if (choices.empty()) return false;
    run_front(choices[random_next() % choices.size()]);
    return true;
}

}  // namespace

CUstream_st* stream_of(cudaStream_t handle) {
    if (!handle || handle == cudaStreamLegacy || handle == cudaStreamPerThread) return &default_stream();
    auto it = streams().find(handle);
    return it == streams().end() || handle->destroyed ? nullptr : handle;
}

bool reached(const Point& p) {
    return !p.stream || p.stream->completed >= p.number;
}

void enqueue(CUstream_st* stream, const char* name, std::function<void()> run) {
    if (stream->capture) {
        stream->capture->operations.push_back({std::move(run), {}, name});
        stream->captured[stream] = stream->capture->operations.size();
        return;
    }
    Operation op{std::move(run), {}, name};
    CUstream_st& zero = default_stream();
    if (stream == &zero) {
        for (CUstream_st* s : streams())
            if (s != stream && s->blocking) op.after.push_back({s, s->issued});
    } else if (stream->blocking) {
        op.after.push_back({&zero, zero.issued});
    }
    stream->queue.push_back(std::move(op));
    stream->issued++;
    if (!options().lazy_streams) run_until({stream, stream->issued});
}

void run_until(const Point& point) {
    while (!reached(point))
        if (!step()) stop("streams wait for each other: no operation can run");
}

void run_stream(CUstream_st* stream) {
    run_until({stream, stream->issued});
}
void run_all() {
    std::vector<CUstream_st*> all(streams().begin(), streams().end());
    for (CUstream_st* s : all) run_stream(s);
}
void run_some() {
    step();
}
bool forbidden_by_capture() {
    bool found = false;
    for (CUstream_st* s : streams()) {
        CUgraph_st* g = s->capture;
        const cudaStreamCaptureMode here = thread_capture_mode();
        if (!g || g->mode == cudaStreamCaptureModeRelaxed || here == cudaStreamCaptureModeRelaxed) continue;
        bool everywhere = g->mode == cudaStreamCaptureModeGlobal && here == cudaStreamCaptureModeGlobal;
        if (g->thread == std::this_thread::get_id() || everywhere) g->invalid = found = true;
    }
    return found;
}

bool capture_active(CUgraph_st* graph) {
    return std::any_of(streams().begin(), streams().end(),
                       [=](CUstream_st* s) { return s->capture == graph; });
}

bool end_capture(CUstream_st* origin) {
    CUgraph_st* graph = origin->capture;
    const CaptureProgress seen = std::move(origin->captured);
    bool joined = true;
    for (CUstream_st* s : streams()) {
        if (s->capture != graph) continue;
        const auto own = std::as_const(s->captured).find(s), there = seen.find(s);
        if (s != origin && own != s->captured.end())
            joined &= there != seen.end() && there->second >= own->second;
        s->capture = nullptr;
        s->captured.clear();
    }
    origin->capture_origin = false;
    return joined;
}

}  // namespace cusim

using namespace cusim;

// ---- streams
// -----------------------------------------------------------------------------------------------------------

CUSIM_API cudaError_t cudaStreamCreateWithPriority(cudaStream_t* out, unsigned flags, int priority) {
    Locked locked;
    if (!out || flags > cudaStreamNonBlocking) return done(cudaErrorInvalidValue);
    auto* s = new CUstream_st;
    s->blocking = flags != cudaStreamNonBlocking;
    s->flags = flags;
    s->priority = priority;
    streams().insert(s);
    *out = s;
    return done();
}
CUSIM_API cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned flags) {
    return cudaStreamCreateWithPriority(out, flags, 0);
}
CUSIM_API cudaError_t cudaStreamCreate(cudaStream_t* out) {
    return cudaStreamCreateWithPriority(out, 0, 0);
}

CUSIM_API cudaError_t cudaStreamDestroy(cudaStream_t handle) {
    Locked locked;
    CUstream_st* s = stream_of(handle);
    if (!handle || !s) return done(cudaErrorInvalidResourceHandle);
    // Its work still completes; the object stays, since events may name points of it.
    run_stream(s);
    s->destroyed = true;
    return done();
}

CUSIM_API cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
    Locked locked;
    CUstream_st* s = stream_of(handle);
    if (!s) return done(cudaErrorInvalidResourceHandle);
    if (s->capture) s->capture->invalid = true;
    if (s->capture) return done(cudaErrorStreamCaptureUnsupported);
    run_stream(s);
    return done();
}

CUSIM_API cudaError_t cudaStreamQuery(cudaStream_t handle) {
    Locked locked;
    CUstream_st* s = stream_of(handle);
    if (!s) return done(cudaErrorInvalidResourceHandle);
    if (s->capture) return done(cudaErrorStreamCaptureUnsupported);
    bool idle = s->queue.empty();
    run_some();
    return idle ? done() : cudaErrorNotReady;
}

CUSIM_API cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
    Locked locked;
    CUstream_st* s = stream_of(handle);
    if (!s || !event) return done(cudaErrorInvalidResourceHandle);
    if (event->capture && !capture_active(event->capture)) return done(cudaErrorCapturedEvent);
    if (event->capture) {  // the stream joins the capture the event belongs to
        if (s->capture && s->capture != event->capture) return done(cudaErrorStreamCaptureMerge);
        s->capture = event->capture;
        for (auto [other, operations] : event->captured)
            s->captured[other] = std::max(s->captured[other], operations);
        return done();
    }
    if (s->capture) return done(cudaErrorStreamCaptureIsolation);
    if (!event->recorded) return done();
    s->queue.push_back({[] {}, {event->point}, "wait for event"});
    s->issued++;
    if (!options().lazy_streams) run_stream(s);
    return done();
}

CUSIM_API cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned* flags) {
    Locked locked;
    CUstream_st* s = stream_of(handle);
    if (!s) return done(cudaErrorInvalidResourceHandle);
    *flags = s->flags;
    return done();
}
CUSIM_API cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
    Locked locked;
    CUstream_st* s = stream_of(handle);
    if (!s) return done(cudaErrorInvalidResourceHandle);
    *priority = s->priority;
    return done();
}

CUSIM_API cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t f, void* data) {
    Locked locked;
    CUstream_st* s = stream_of(handle);
    if (!s) return done(cudaErrorInvalidResourceHandle);
    enqueue(s, "host function", [f, data] { f(data); });
    return done();
}
CUSIM_API cudaError_t cudaStreamAddCallback(cudaStream_t handle, cudaStreamCallback_t f, void* data,
                                            unsigned) {
    Locked locked;
    CUstream_st* s = stream_of(handle);
    if (!s) return done(cudaErrorInvalidResourceHandle);
    enqueue(s, "callback", [f, data, handle] { f(handle, cudaSuccess, data); });
    return done();
}

CUSIM_API cudaError_t cudaDeviceSynchronize() {
    Locked locked;
    if (forbidden_by_capture()) return done(cudaErrorStreamCaptureUnsupported);
    run_all();
    return done();
}

// ---- events
// ------------------------------------------------------------------------------------------------------------

namespace {
double now_seconds() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}
}  // namespace

CUSIM_API cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned flags) {
    Locked locked;
    if (!out || flags > 7) return done(cudaErrorInvalidValue);
    *out = new CUevent_st;
    (*out)->flags = flags;
    return done();
}
CUSIM_API cudaError_t cudaEventCreate(cudaEvent_t* out) {
    return cudaEventCreateWithFlags(out, 0);
}

CUSIM_API cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t handle, unsigned) {
    Locked locked;
    CUstream_st* s = stream_of(handle);
    if (!s || !event) return done(cudaErrorInvalidResourceHandle);
    event->capture = s->capture;
    event->captured = s->captured;
    if (s->capture) return done();  // marks a point in the graph; order there is the order of capture
    enqueue(s, "record event", [event] { event->time = now_seconds(); });
    event->recorded = true;
    event->point = {s, s->issued};
    return done();
}
CUSIM_API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
    return cudaEventRecordWithFlags(event, handle, 0);
}

CUSIM_API cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    Locked locked;
    if (!event) return done(cudaErrorInvalidResourceHandle);
    if (event->capture) return done(cudaErrorCapturedEvent);
    run_until(event->point);
    return done();
}
CUSIM_API cudaError_t cudaEventQuery(cudaEvent_t event) {
    Locked locked;
    if (!event) return done(cudaErrorInvalidResourceHandle);
    if (event->capture) return done(cudaErrorCapturedEvent);
    if (forbidden_by_capture()) return done(cudaErrorStreamCaptureUnsupported);
    if (reached(event->point)) return done();
    run_some();
    return cudaErrorNotReady;
}
CUSIM_API cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
    Locked locked;
    if (!start || !end || !start->recorded || !end->recorded) return done(cudaErrorInvalidResourceHandle);
    if ((start->flags | end->flags) & cudaEventDisableTiming) return done(cudaErrorInvalidResourceHandle);
    if (!reached(start->point) || !reached(end->point)) return done(cudaErrorNotReady);
    *ms = float(1e3 * (end->time - start->time));
    return done();
}
CUSIM_API cudaError_t cudaEventDestroy(cudaEvent_t event) {
    Locked locked;
    if (!event) return done(cudaErrorInvalidResourceHandle);
    run_until(event->point);
    delete event;
    return done();
}
