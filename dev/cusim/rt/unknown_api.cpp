// unknown_api.cpp: where every CUDA function ends that cusim lacks (the build generates a stub per name).
#include "../base.h"
#include "runtime.h"

CUSIM_API void cusim_unknown_api(const char* name, const char* folder) {
    cusim::stop(cusim::text("%s is not implemented; to add it, extend dev/cusim/%s", name, folder));
}
