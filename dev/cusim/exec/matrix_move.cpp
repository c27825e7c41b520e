// matrix_move.cpp: ldmatrix, stmatrix, movmatrix: 8x8 matrices of 16-bit elements between shared memory and
// fragments. Lane 8 m + r gives the address of row r of matrix m. Register m of lane l holds row l / 4,
// columns 2 (l % 4) + 0..1; with .trans the matrix is transposed on the way.
#include "lanes.h"
#include "memory.h"
#include "tables.h"

namespace cusim {

namespace {

// The row addresses of `count` matrices, checked: 16 aligned bytes each inside shared memory.
void locate_rows(Warp& w, const Inst& i, Access access, Lanes& lanes) {
    if (w.mask != kFullMask) fault(w, i, -1, kLaunchFailure, "matrix load or store without all 32 lanes");
    u32 used = i.mode == 4 ? kFullMask : (1u << 8 * i.mode) - 1;
    w.mask = used;
    locate_space(Space(i.space), w, i, 16, access, lanes);
    w.mask = kFullMask;
}

void transpose(const u16* from, u16* to) {
    for (int r = 0; r < 8; r++)
        for (int c = 0; c < 8; c++) to[c * 8 + r] = from[r * 8 + c];
}

// Lane order is row order: a fragment column is the matrix's 128 bytes. flag: .trans; mode: number of
// matrices.
void load_matrices(Warp& w, const Inst& i) {
    Lanes lanes;
    locate_rows(w, i, Access::Read, lanes);
    for (int m = 0; m < i.mode; m++) {
        char* d = w.column<char>(i.more[m]);
        alignas(16) u16 rows[64];
        char* to = i.flag ? reinterpret_cast<char*>(rows) : d;
        for (int r = 0; r < 8; r++) std::memcpy(to + 16 * r, lanes.lane(8 * m + r, 16), 16);
        if (i.flag) transpose(rows, reinterpret_cast<u16*>(d));
    }
}

void store_matrices(Warp& w, const Inst& i) {
    Lanes lanes;
    locate_rows(w, i, Access::Write, lanes);
    for (int m = 0; m < i.mode; m++) {
        alignas(16) u16 rows[64];
        const u16* from = w.column<u16>(i.more[m]);
        if (i.flag)
            transpose(from, rows);
        else
            std::memcpy(rows, from, sizeof rows);
        for (int r = 0; r < 8; r++) std::memcpy(lanes.lane(8 * m + r, 16), rows + 8 * r, 16);
    }
}

void move_matrix(Warp& w, const Inst& i) {
    if (w.mask != kFullMask) fault(w, i, -1, kLaunchFailure, "movmatrix without all 32 lanes");
    transpose(w.column<u16>(i.a), w.column<u16>(i.d));
}

void build_matrix(Decoder& d, Form& f, bool load) {
    bool known = f.take("sync");
    known &= f.take("aligned");
    known &= f.take("m8n8");
    int count = f.take_any({"x1", "x2", "x4"});
    Inst i;
    i.flag = f.take("trans");
    known &= count >= 0 && f.take("b16");
    if (!known) d.unknown("matrix form", "exec/matrix_move.cpp");
    i.mode = u8(1 << count);
    Space space = take_space(f);
    i.flow = Flow::Collective;
    i.kind = Class::Memory;
    i.run = load ? load_matrices : store_matrices;
    const Operand& registers = d.operand(load ? 0 : 1);
    if (registers.kind != Operand::Vector || registers.parts.size() != i.mode)
        d.error("wrong number of registers");
    for (const Operand& o : registers.parts)
        i.more.push_back(load ? d.write(o, Type::B32) : d.read(o, Type::B32));
    d.read_address(d.operand(load ? 1 : 0), i, space);
    i.space = u8(space);
    d.emit(std::move(i));
}

}  // namespace

void add_matrix_move(BuilderTable& t) {
    t["ldmatrix"] = [](Decoder& d, Form& f) { build_matrix(d, f, true); };
    t["stmatrix"] = [](Decoder& d, Form& f) { build_matrix(d, f, false); };
    t["movmatrix"] = [](Decoder& d, Form& f) {
        f.take("sync");
        f.take("aligned");
        f.take("m8n8");
        f.take("trans");
        f.take("b16");
        Inst i;
        i.flow = Flow::Collective;
        i.kind = Class::Tensor;
        i.run = move_matrix;
        i.d = d.write(0, Type::B32);
        i.a = d.read(1, Type::B32);
        d.emit(std::move(i));
    };
}

}  // namespace cusim
