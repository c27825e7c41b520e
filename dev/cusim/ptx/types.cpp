// types.cpp: the names and sizes of PTX types.
#include "module.h"

namespace cusim {

namespace {

struct Row {
    const char* name;
    int bytes;
};
// In the order of enum Type.
const Row kTypes[] = {
    {"", 0},      {"pred", 4}, {"b8", 1},     {"b16", 2},  {"b32", 4}, {"b64", 8}, {"b128", 16}, {"u8", 1},
    {"u16", 2},   {"u32", 4},  {"u64", 8},    {"s8", 1},   {"s16", 2}, {"s32", 4}, {"s64", 8},   {"f16", 2},
    {"f16x2", 4}, {"bf16", 2}, {"bf16x2", 4}, {"tf32", 4}, {"f32", 4}, {"f64", 8}, {"u16x2", 4}, {"s16x2", 4},
};

}  // namespace

int type_bytes(Type type) {
    return kTypes[int(type)].bytes;
}
const char* type_name(Type type) {
    return kTypes[int(type)].name;
}
bool type_is_signed(Type type) {
    return type >= Type::S8 && type <= Type::S64;
}
bool type_is_float(Type type) {
    return type >= Type::F16 && type <= Type::F64;
}

Type parse_type(std::string_view name) {
    static const auto* map = [] {
        auto* m = new std::unordered_map<std::string_view, Type>;
        for (int i = 1; i < int(sizeof kTypes / sizeof kTypes[0]); i++) (*m)[kTypes[i].name] = Type(i);
        return m;
    }();
    auto it = map->find(name);
    return it == map->end() ? Type::None : it->second;
}

}  // namespace cusim
