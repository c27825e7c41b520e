// table.cpp: base opcode -> builder.
#include "tables.h"

namespace cusim {

Builder find_builder(std::string_view base) {
    static const BuilderTable* table = [] {
        auto* t = new BuilderTable;
        for (auto add :
             {add_integer, add_bits, add_float, add_compare, add_convert, add_move, add_memory, add_atomic,
              add_collective, add_control, add_tensor, add_matrix_move, add_async_copy})
            add(*t);
        return t;
    }();
    auto it = table->find(base);
    return it == table->end() ? nullptr : it->second;
}

}  // namespace cusim
