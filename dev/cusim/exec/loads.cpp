// loads.cpp: ld and st in all spaces, vectors included; kernel parameters; prefetches.
#include "lanes.h"
#include "memory.h"
#include "tables.h"

namespace cusim {

// Memory order, caching and eviction hints change nothing here: blocks run one after another.
void skip_memory_hints(Form& f) {
    f.take("volatile");
    f.take("noftz");
    f.take("weak");
    f.take("relaxed");
    f.take("acquire");
    f.take("release");
    f.take("mmio");
    f.take("nc");
    f.take_any({"cta", "cluster", "gpu", "sys"});
    f.take_any({"ca", "cg", "cs", "lu", "cv", "wb", "wt"});
    f.take_any(
        {"L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last", "L1::no_allocate"});
    f.take_any({"L2::evict_normal", "L2::evict_first", "L2::evict_last"});
    f.take_any({"L2::64B", "L2::128B", "L2::256B"});
}

Space take_space(Form& f) {
    int s = f.take_any(
        {"global", "shared", "local", "const", "param", "shared::cta", "param::entry", "param::func"});
    const Space of[] = {Space::Global, Space::Shared, Space::Local, Space::Const,
                        Space::Param,  Space::Shared, Space::Param, Space::Param};
    return s < 0 ? Space::Generic : of[s];
}

namespace {

// Copies element k of every lane between memory and a column of the same width.
template <class T, int kCount>
void load_elements(Warp& w, const Inst& i, const Lanes& lanes, const Column* to) {
    constexpr int bytes = int(sizeof(T)) * kCount;
    if (lanes.together && kCount == 1) {
        std::memcpy(w.column<T>(to[0]), lanes.base, sizeof(T) * kWarp);
    } else if (lanes.together) {
        const T* from = reinterpret_cast<const T*>(lanes.base);
        for (int k = 0; k < kCount; k++) {
            T* d = w.column<T>(to[k]);
            for (int l = 0; l < kWarp; l++) d[l] = from[l * kCount + k];
        }
    } else if (lanes.uniform) {
        T value[kCount];
        std::memcpy(value, lanes.base, bytes);
        for (int k = 0; k < kCount; k++) {
            T* d = w.column<T>(to[k]);
            for (int l = 0; l < kWarp; l++) d[l] = value[k];
        }
    } else {
        for (u32 rest = w.mask; rest; rest &= rest - 1) {
            int l = __builtin_ctz(rest);
            T value[kCount];
            std::memcpy(value, lanes.at[l], bytes);
            for (int k = 0; k < kCount; k++) w.column<T>(to[k])[l] = value[k];
        }
    }
    (void)i;
}

// Widens raw values into registers larger than the memory type. flag: signed.
void extend(Warp& w, const Inst& i, int bytes, const char* raw, Column to) {
    for (u32 rest = w.mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest), unused = 64 - 8 * bytes;
        u64 value = 0;
        std::memcpy(&value, raw + l * bytes, size_t(bytes));
        if (i.flag) value = u64(s64(value << unused) >> unused);
        std::memcpy(w.column<char>(to) + l * i.register_bytes, &value, i.register_bytes);
    }
}

template <Space kSpace, class T, int kCount>
void load(Warp& w, const Inst& i) {
    Lanes lanes;
    locate<kSpace>(w, i, int(sizeof(T)) * kCount, Access::Read, lanes);
    const Column* to = kCount == 1 ? &i.d : i.more.data();
    if (i.register_bytes == sizeof(T)) return load_elements<T, kCount>(w, i, lanes, to);
    alignas(64) char raw[kCount][kWarp * sizeof(T)];
    for (u32 rest = w.mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        const char* from = lanes.lane(l, int(sizeof(T)) * kCount);
        for (int k = 0; k < kCount; k++) std::memcpy(raw[k] + l * sizeof(T), from + k * sizeof(T), sizeof(T));
    }
    for (int k = 0; k < kCount; k++) extend(w, i, sizeof(T), raw[k], to[k]);
}

template <Space kSpace, class T, int kCount>
void store(Warp& w, const Inst& i) {
    Lanes lanes;
    locate<kSpace>(w, i, int(sizeof(T)) * kCount, Access::Write, lanes);
    const Column* from = kCount == 1 ? &i.b : i.more.data();
    if (lanes.together && i.register_bytes == sizeof(T)) {
        if (kCount == 1) {
            std::memcpy(lanes.base, w.column<T>(from[0]), sizeof(T) * kWarp);
        } else {
            T* to = reinterpret_cast<T*>(lanes.base);
            for (int k = 0; k < kCount; k++) {
                const T* s = w.column<T>(from[k]);
                for (int l = 0; l < kWarp; l++) to[l * kCount + k] = s[l];
            }
        }
        return;
    }
    for (u32 rest = w.mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        char* to = lanes.lane(l, int(sizeof(T)) * kCount);
        for (int k = 0; k < kCount; k++)
            std::memcpy(to + k * sizeof(T), w.column<char>(from[k]) + l * i.register_bytes, sizeof(T));
    }
}

template <Space kSpace, class T>
Handler by_count(bool is_load, int count) {
    switch (count) {
        case 1:
            return is_load ? load<kSpace, T, 1> : store<kSpace, T, 1>;
        case 2:
            return is_load ? load<kSpace, T, 2> : store<kSpace, T, 2>;
        case 4:
            return is_load ? load<kSpace, T, 4> : store<kSpace, T, 4>;
        case 8:
            return is_load ? load<kSpace, T, 8> : store<kSpace, T, 8>;
        default:
            return nullptr;
    }
}
template <Space kSpace>
Handler by_width(bool is_load, int bytes, int count) {
    switch (bytes) {
        case 1:
            return by_count<kSpace, u8>(is_load, count);
        case 2:
            return by_count<kSpace, u16>(is_load, count);
        case 4:
            return by_count<kSpace, u32>(is_load, count);
        case 8:
            return by_count<kSpace, u64>(is_load, count);
        default:
            return nullptr;
    }
}
Handler handler_of(Space space, bool is_load, int bytes, int count) {
    switch (space) {
        case Space::Shared:
            return by_width<Space::Shared>(is_load, bytes, count);
        case Space::Global:
        case Space::Const:
            return by_width<Space::Global>(is_load, bytes, count);
        case Space::Local:
            return by_width<Space::Local>(is_load, bytes, count);
        case Space::Param:
            return by_width<Space::Param>(is_load, bytes, count);
        default:
            return by_width<Space::Generic>(is_load, bytes, count);
    }
}

// A kernel parameter at a known offset is the same for all lanes.
template <class T>
void load_parameter(Warp& w, const Inst& i) {
    T value;
    std::memcpy(&value, w.block->launch->params.data() + i.immediate, sizeof value);
    write_lanes(w, w.column<T>(i.d), [=](int) { return value; });
}

void build_load_store(Decoder& d, Form& f, bool is_load) {
    Space space = take_space(f);
    skip_memory_hints(f);
    f.take("L2::cache_hint");  // the policy operand that follows is ignored
    int count = 1;
    if (int v = f.take_any({"v2", "v4", "v8"}); v >= 0) count = 2 << v;
    Type type = f.take_type();
    int bytes = type_bytes(type);
    if (bytes == 0 || bytes > 8) d.unknown("type", "exec/loads.cpp");
    const Operand& values = d.operand(is_load ? 0 : 1);
    const Operand& address = d.operand(is_load ? 1 : 0);

    Inst i;
    i.kind = Class::Memory;
    i.flag = type_is_signed(type);
    auto take_value = [&](const Operand& o) {
        u8 width;
        Column c;
        if (is_load) {
            if (o.kind == Operand::Sink)
                width = u8(std::max(bytes, 2)), c = d.scratch(width);
            else
                c = d.write_any_width(o, width);
        } else {
            c = d.read_any_width(o, type, width);
        }
        if (width < bytes || (i.register_bytes && i.register_bytes != width))
            d.error("register width does not fit the type");
        i.register_bytes = width;
        return c;
    };
    if (count == 1) {
        (is_load ? i.d : i.b) = take_value(values);
    } else {
        if (values.kind != Operand::Vector || int(values.parts.size()) != count)
            d.error("wrong number of vector elements");
        for (const Operand& o : values.parts) i.more.push_back(take_value(o));
    }
    bool known = d.variable(address) != nullptr;
    d.read_address(address, i, space);
    i.space = u8(space);
    if (space == Space::Param && known && is_load && count == 1 && i.register_bytes == bytes) {
        Space found;
        i.immediate = s64(d.address_of(address, found));
        i.a = kNoColumn;
        if (i.immediate < 0 || u64(i.immediate) + u64(bytes) > d.parameter_bytes())
            d.error("reads past the parameters");
        i.run = bytes == 8 ? load_parameter<u64> : bytes == 4 ? load_parameter<u32> : load_parameter<u16>;
        i.kind = Class::Move;
    } else {
        i.run = handler_of(space, is_load, bytes, count);
    }
    if (!i.run) d.unknown("form", "exec/loads.cpp");
    d.emit(std::move(i));
}

// prefetch, discard, applypriority: hints without effect on values.
void build_hint(Decoder& d, Form& f) {
    while (!f.rest().empty()) f.take(f.rest()[0]);
    (void)d;
}

// createpolicy d, ...: a policy is an opaque number.
void build_policy(Decoder& d, Form& f) {
    build_hint(d, f);
    Inst i;
    i.run = [](Warp& w, const Inst& inst) {
        write_lanes(w, w.column<u64>(inst.d), [](int) { return u64(0); });
    };
    i.kind = Class::Move;
    i.d = d.write(0, Type::B64);
    d.emit(std::move(i));
}

}  // namespace

void add_memory(BuilderTable& t) {
    t["ld"] = [](Decoder& d, Form& f) { build_load_store(d, f, true); };
    t["ldu"] = t["ld"];
    t["st"] = [](Decoder& d, Form& f) { build_load_store(d, f, false); };
    t["prefetch"] = t["prefetchu"] = t["discard"] = t["applypriority"] = build_hint;
    t["createpolicy"] = build_policy;
}

}  // namespace cusim
