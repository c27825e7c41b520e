// atomics.cpp: atom and red. Lanes act one after another, lowest first, so results are repeatable.
#include "float.h"
#include "lanes.h"
#include "memory.h"
#include "tables.h"

namespace cusim {

namespace {

struct Add {
    template <class T>
    static T apply(T x, T y, T) {
        return T(x + y);
    }
};
struct Min {
    template <class T>
    static T apply(T x, T y, T) {
        return y < x ? y : x;
    }
};
struct Max {
    template <class T>
    static T apply(T x, T y, T) {
        return y > x ? y : x;
    }
};
struct And {
    template <class T>
    static T apply(T x, T y, T) {
        return x & y;
    }
};
struct Or {
    template <class T>
    static T apply(T x, T y, T) {
        return x | y;
    }
};
struct Xor {
    template <class T>
    static T apply(T x, T y, T) {
        return x ^ y;
    }
};
struct Exchange {
    template <class T>
    static T apply(T, T y, T) {
        return y;
    }
};
struct Compare {
    template <class T>
    static T apply(T x, T y, T z) {
        return x == y ? z : x;
    }
};
struct Increment {
    template <class T>
    static T apply(T x, T y, T) {
        return x >= y ? T(0) : T(x + 1);
    }
};
struct Decrement {
    template <class T>
    static T apply(T x, T y, T) {
        return x == 0 || x > y ? y : T(x - 1);
    }
};
struct AddFloat {
    static f32 apply(f32 x, f32 y, f32) { return canonical(x + y); }
    static f64 apply(f64 x, f64 y, f64) { return x + y; }
};
// On global memory atom.add.f32 flushes subnormal inputs and results; on shared memory it does not.
struct AddFlushed {
    static f32 apply(f32 x, f32 y, f32) { return canonical(flush(flush(x) + flush(y))); }
};
u16 add_f16(u16 x, u16 y) {
    return to_f16(fma_to_odd(from_f16(x), 1, from_f16(y)));
}
u16 add_bf16(u16 x, u16 y) {
    return to_bf16(fma_to_odd(from_bf16(x), 1, from_bf16(y)));
}
struct AddF16 {
    static u16 apply(u16 x, u16 y, u16) { return add_f16(x, y); }
    static u32 apply(u32 x, u32 y, u32) {
        return add_f16(u16(x), u16(y)) | u32(add_f16(u16(x >> 16), u16(y >> 16))) << 16;
    }
};
struct AddBF16 {
    static u16 apply(u16 x, u16 y, u16) { return add_bf16(x, y); }
    static u32 apply(u32 x, u32 y, u32) {
        return add_bf16(u16(x), u16(y)) | u32(add_bf16(u16(x >> 16), u16(y >> 16))) << 16;
    }
};

// more: kCount destinations (none for red), then kCount sources; b: the comparand's partner c in `c`.
template <class Op, class T>
void atomic(Warp& w, const Inst& i) {
    int count = i.mode;
    Lanes lanes;
    locate_space(Space(i.space), w, i, int(sizeof(T)) * count, Access::Atomic, lanes);
    const T* c = i.c != kNoColumn ? w.column<T>(i.c) : nullptr;
    bool returns = !i.flag;
    const Column* to = i.more.data();
    const Column* from = to + (returns ? count : 0);
    for (u32 rest = w.mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        T* at = reinterpret_cast<T*>(lanes.lane(l, int(sizeof(T)) * count));
        for (int k = 0; k < count; k++) {
            T y = w.column<T>(from[k])[l], old = at[k];
            at[k] = T(Op::apply(old, y, c ? c[l] : T()));
            if (returns) w.column<T>(to[k])[l] = old;
        }
    }
}

template <class Op>
Handler integer_atomic(Type t) {
    switch (t) {
        case Type::U32:
        case Type::B32:
            return atomic<Op, u32>;
        case Type::S32:
            return atomic<Op, s32>;
        case Type::U64:
        case Type::B64:
            return atomic<Op, u64>;
        case Type::S64:
            return atomic<Op, s64>;
        default:
            return nullptr;
    }
}

Handler atomic_of(std::string_view op, Type t, Space space) {
    if (op == "add") {
        switch (t) {
            case Type::F32:
                return space == Space::Global ? atomic<AddFlushed, f32> : atomic<AddFloat, f32>;
            case Type::F64:
                return atomic<AddFloat, f64>;
            case Type::F16:
                return atomic<AddF16, u16>;
            case Type::F16x2:
                return atomic<AddF16, u32>;
            case Type::BF16:
                return atomic<AddBF16, u16>;
            case Type::BF16x2:
                return atomic<AddBF16, u32>;
            default:
                return integer_atomic<Add>(t);
        }
    }
    if (op == "min") return integer_atomic<Min>(t);
    if (op == "max") return integer_atomic<Max>(t);
    if (op == "and") return integer_atomic<And>(t);
    if (op == "or") return integer_atomic<Or>(t);
    if (op == "xor") return integer_atomic<Xor>(t);
    if (op == "exch") return integer_atomic<Exchange>(t);
    if (op == "cas") return t == Type::B16 ? atomic<Compare, u16> : integer_atomic<Compare>(t);
    if (op == "inc" && t == Type::U32) return atomic<Increment, u32>;
    if (op == "dec" && t == Type::U32) return atomic<Decrement, u32>;
    return nullptr;
}

void build_atomic(Decoder& d, Form& f, bool returns) {
    Space space = take_space(f);
    skip_memory_hints(f);
    if (f.take("acq_rel")) {
    }
    f.take("L2::cache_hint");
    const std::string_view ops[] = {"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"};
    std::string_view op;
    for (std::string_view name : ops)
        if (f.take(name)) op = name;
    int count = 1;
    if (int v = f.take_any({"v2", "v4", "v8"}); v >= 0) count = 2 << v;
    Type type = f.take_type();
    Inst i;
    i.run = atomic_of(op, type, space);
    if (!i.run) d.unknown("atomic operation", "exec/atomics.cpp");
    i.kind = Class::Atomic;
    i.mode = u8(count);
    i.flag = !returns;
    size_t at = returns ? 1 : 0;
    auto each = [&](const Operand& o, auto take) {
        if (count == 1) return take(o);
        if (o.kind != Operand::Vector || int(o.parts.size()) != count)
            d.error("wrong number of vector elements");
        for (const Operand& p : o.parts) take(p);
    };
    if (returns) each(d.operand(0), [&](const Operand& o) { i.more.push_back(d.write(o, type)); });
    d.read_address(d.operand(at), i, space);
    each(d.operand(at + 1), [&](const Operand& o) { i.more.push_back(d.read(o, type)); });
    if (op == "cas") i.c = d.read(at + 2, type);
    i.space = u8(space);
    d.emit(std::move(i));
}

}  // namespace

void add_atomic(BuilderTable& t) {
    t["atom"] = [](Decoder& d, Form& f) { build_atomic(d, f, true); };
    t["red"] = [](Decoder& d, Form& f) { build_atomic(d, f, false); };
}

}  // namespace cusim
