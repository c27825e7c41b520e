// options.cpp: see options.h.
#include "options.h"

#include <cstdlib>

namespace cusim {

namespace {

u64 number(const char* name, const char* value) {
    char* end;
    u64 n = std::strtoull(value, &end, 10);
    if (end == value || *end) stop(text("%s=%s: expected a whole number", name, value));
    return n;
}

Options from_environment() {
    Options o;
    if (const char* v = std::getenv("CUSIM_CHECK")) {
        std::string list = v, item;
        for (size_t at = 0; at <= list.size();) {
            size_t comma = std::min(list.find(',', at), list.size());
            item = list.substr(at, comma - at);
            at = comma + 1;
            if (item == "race")
                o.check_race = true;
            else if (item == "init")
                o.check_init = true;
            else if (item == "all")
                o.check_race = o.check_init = true;
            else if (item != "none" && !item.empty())
                stop("CUSIM_CHECK=" + list + ": expected race, init, all or none, separated by commas");
        }
    }
    if (const char* v = std::getenv("CUSIM_STREAMS")) {
        std::string s = v;
        if (s.compare(0, 4, "lazy") == 0 && (s.size() == 4 || s[4] == ':')) {
            o.lazy_streams = true;
            if (s.size() > 5) o.stream_seed = number("CUSIM_STREAMS=lazy:", s.c_str() + 5);
        } else if (s != "eager") {
            stop("CUSIM_STREAMS=" + s + ": expected eager, lazy or lazy:SEED");
        }
    }
    if (const char* v = std::getenv("CUSIM_STATS")) o.stats_path = v;
    if (const char* v = std::getenv("CUSIM_BUDGET")) o.budget = number("CUSIM_BUDGET", v);
    if (const char* v = std::getenv("CUSIM_FAULT")) {
        std::string s = v;
        if (s != "stop" && s != "sticky") stop("CUSIM_FAULT=" + s + ": expected stop or sticky");
        o.sticky = s == "sticky";
    }
    if (const char* v = std::getenv("CUSIM_CC")) {
        int major = 0, minor = 0;
        if (std::sscanf(v, "%d.%d", &major, &minor) != 2 || major < 5 || major > 20 || minor < 0 || minor > 9)
            stop(text("CUSIM_CC=%s: expected a compute capability such as 8.0", v));
        o.capability = major * 10 + minor;
    }
    if (const char* v = std::getenv("CUSIM_MEMORY")) o.memory_bytes = number("CUSIM_MEMORY", v);
    if (const char* v = std::getenv("CUSIM_DEVICES")) o.devices = int(number("CUSIM_DEVICES", v));
    if (const char* v = std::getenv("CUSIM_QUIET")) o.quiet = std::string(v) != "0";
    return o;
}

}  // namespace

const Options& options() {
    static const Options* o = new Options(from_environment());  // outlives exit handlers
    return *o;
}

}  // namespace cusim
