"""Native code for eight numbers in a vector register: text that native functions begin with, on a processor."""

EIGHT = """
    typedef number lanes __attribute__((ext_vector_type(8)));
    typedef decltype(lanes() < lanes()) mask;
    struct packed { lanes v; } __attribute__((packed, aligned(sizeof(number)), may_alias));
    auto any = [](const mask m) -> bool { return __builtin_reduce_or(m) != 0; };
    auto flip = [](lanes* m) {  // transpose
        for (int i = 0; i < 8; i += 2) {
            const lanes a = m[i], b = m[i + 1];
            m[i] = __builtin_shufflevector(a, b, 0, 8, 2, 10, 4, 12, 6, 14);
            m[i + 1] = __builtin_shufflevector(a, b, 1, 9, 3, 11, 5, 13, 7, 15);
        }
        for (int i = 0; i < 8; ++i) {
            if (i & 2) continue;
            const lanes a = m[i], b = m[i + 2];
            m[i] = __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13);
            m[i + 2] = __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
        }
        for (int i = 0; i < 4; ++i) {
            const lanes a = m[i], b = m[i + 4];
            m[i] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11);
            m[i + 4] = __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
        }
    };
"""
"""Needs the type ``number``; gives eight of them, what comparing them gives, eight in memory, and their transpose."""
