void fb_kernel(char *const *p, const long long *n, const fb_scalar *x, long long begin, long long end, char *scratch) {
  const long long n0 = n[0], n1 = n[1], n2 = n[2];
  const long long q = n[2];
  const long long e0 = n1;
  long long row = begin * q, stop = end * q < e0 ? end * q : e0;
  if (row >= stop) return;
  long long p0 = row;
  for (; row < stop; ++row) {
    const long long inner = n0;
    f32x1 t2best = -__builtin_inff(); i64x1 t2 = -1;
    const f32x1 *b3 = (const f32x1 *)p[0] + (n0*p0);
    long long blocks = 0;
    for (long long block = 0; block == 0 || block < inner; block += 4096) {
      const long long edge = inner - block < 4096 ? inner : block + 4096;
      f32x8 a1[4] = { fb_splat_f32x8(-__builtin_inff()), fb_splat_f32x8(-__builtin_inff()), fb_splat_f32x8(-__builtin_inff()), fb_splat_f32x8(-__builtin_inff()) };
      i32x8 a1at[4] = { fb_splat_i32x8(-1), fb_splat_i32x8(-1), fb_splat_i32x8(-1), fb_splat_i32x8(-1) };
      long long q = block;
      if (q + 32 <= edge) {
      f32x8 a1_0 = a1[0];
      f32x8 a1_1 = a1[1];
      f32x8 a1_2 = a1[2];
      f32x8 a1_3 = a1[3];
      i32x8 a1_0at = a1at[0];
      i32x8 a1_1at = a1at[1];
      i32x8 a1_2at = a1at[2];
      i32x8 a1_3at = a1at[3];
      for (; q + 32 <= edge; q += 32) {
        {
          const long long r = q + 0;
          const f32x8 v4 = *(const f32x8 *)(b3 + r);
          fb_argmax_f32x8(&a1_0, &a1_0at, v4, ((i32x8){0, 1, 2, 3, 4, 5, 6, 7} + (i32x1)(r - block)));
        }
        {
          const long long r = q + 8;
          const f32x8 v5 = *(const f32x8 *)(b3 + r);
          fb_argmax_f32x8(&a1_1, &a1_1at, v5, ((i32x8){0, 1, 2, 3, 4, 5, 6, 7} + (i32x1)(r - block)));
        }
        {
          const long long r = q + 16;
          const f32x8 v6 = *(const f32x8 *)(b3 + r);
          fb_argmax_f32x8(&a1_2, &a1_2at, v6, ((i32x8){0, 1, 2, 3, 4, 5, 6, 7} + (i32x1)(r - block)));
        }
        {
          const long long r = q + 24;
          const f32x8 v7 = *(const f32x8 *)(b3 + r);
          fb_argmax_f32x8(&a1_3, &a1_3at, v7, ((i32x8){0, 1, 2, 3, 4, 5, 6, 7} + (i32x1)(r - block)));
        }
      }
      a1[0] = a1_0;
      a1[1] = a1_1;
      a1[2] = a1_2;
      a1[3] = a1_3;
      a1at[0] = a1_0at;
      a1at[1] = a1_1at;
      a1at[2] = a1_2at;
      a1at[3] = a1_3at;
      }
      for (; q < edge; q += 8) {
        const long long r = q, m = edge - q;
        const int u = (int)((q - block) / 8) & 3;
        const f32x8 v8 = fb_loadm_f32x8(b3 + r, m);
        f32x8 y9 = a1[u]; i32x8 y9at = a1at[u];
        fb_argmax_f32x8(&y9, &y9at, v8, ((i32x8){0, 1, 2, 3, 4, 5, 6, 7} + (i32x1)(r - block)));
        i32x8 y9on = fb_tail_f32x8(m);
        a1[u] = fb_select_f32x8(y9on, y9, a1[u]); a1at[u] = fb_select_i32x8(y9on, y9at, a1at[u]);
      }
      { f32x1 b; long long at = fb_treeargmax_f32x8(a1, a1at, edge - block, &b);
        if (at >= 0 && (t2 < 0 || (t2best == t2best && (b > t2best || b != b)))) { t2best = b; t2 = at + block; } }
      ++blocks;
    }
    if (t2 < 0) t2 = 0;
    i64x1 *b10 = (i64x1 *)p[1];
    b10[p0] = t2;
    ++p0;
  }
}
