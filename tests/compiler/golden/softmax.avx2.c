void fb_kernel(char *const *p, const long long *n, const fb_scalar *x, long long begin, long long end, char *scratch) {
  const long long n0 = n[0], n1 = n[1], n2 = n[2];
  const long long q = n[2];
  const long long e0 = n1;
  long long row = begin * q, stop = end * q < e0 ? end * q : e0;
  if (row >= stop) return;
  long long p0 = row;
  for (; row < stop; ++row) {
    const long long inner = n0;
    f32x1 t2 = -__builtin_inff();
    f32x1 t2up[3][32];
    if (inner > 4096) for (int l = 0; l < 96; ++l) t2up[l / 32][l % 32] = -__builtin_inff();
    const f32x1 *b3 = (const f32x1 *)p[0] + (n0*p0);
    long long blocks = 0;
    for (long long block = 0; block == 0 || block < inner; block += 4096) {
      const long long edge = inner - block < 4096 ? inner : block + 4096;
      long long q = block;
      f32x8 a1[4] = { fb_splat_f32x8(-__builtin_inff()), fb_splat_f32x8(-__builtin_inff()), fb_splat_f32x8(-__builtin_inff()), fb_splat_f32x8(-__builtin_inff()) };
      f32x8 a1_0 = a1[0];
      f32x8 a1_1 = a1[1];
      f32x8 a1_2 = a1[2];
      f32x8 a1_3 = a1[3];
      for (; q + 32 <= edge; q += 32) {
        {
          const long long r = q + 0;
          const f32x8 v4 = *(const f32x8 *)(b3 + r);
          a1_0 = fb_max_f32x8(a1_0, v4);
        }
        {
          const long long r = q + 8;
          const f32x8 v5 = *(const f32x8 *)(b3 + r);
          a1_1 = fb_max_f32x8(a1_1, v5);
        }
        {
          const long long r = q + 16;
          const f32x8 v6 = *(const f32x8 *)(b3 + r);
          a1_2 = fb_max_f32x8(a1_2, v6);
        }
        {
          const long long r = q + 24;
          const f32x8 v7 = *(const f32x8 *)(b3 + r);
          a1_3 = fb_max_f32x8(a1_3, v7);
        }
      }
      a1[0] = a1_0;
      a1[1] = a1_1;
      a1[2] = a1_2;
      a1[3] = a1_3;
      for (; q < edge; q += 8) {
        const long long r = q, m = edge - q;
        const int u = (int)((q - block) / 8) & 3;
        const f32x8 v8 = fb_loadm_f32x8(b3 + r, m);
        f32x8 y9 = v8;
        if (__builtin_expect(m < 8, 0)) y9 = fb_select_f32x8(fb_tail_f32x8(m), y9, fb_splat_f32x8(-__builtin_inff()));
        a1[u] = fb_max_f32x8(a1[u], y9);
      }
      t2 = fb_treemax_f32x8(a1);
      if (inner > 4096) t2 = fb_pushmax_f32x1(t2up, blocks, t2, edge == inner);
      ++blocks;
    }
    f32x1 *const kept10 = (f32x1 *)(scratch);
    f32x1 t12 = 0;
    f32x1 t12up[3][32];
    if (inner > 4096) for (int l = 0; l < 96; ++l) t12up[l / 32][l % 32] = 0;
    const f32x8 s14 = fb_splat_f32x8(t2);
    blocks = 0;
    for (long long block = 0; block == 0 || block < inner; block += 4096) {
      const long long edge = inner - block < 4096 ? inner : block + 4096;
      long long q = block;
      f32x8 a11[4] = { fb_splat_f32x8(0), fb_splat_f32x8(0), fb_splat_f32x8(0), fb_splat_f32x8(0) };
      for (; q < edge; q += 8) {
        const long long r = q, m = edge - q;
        const int u = (int)((q - block) / 8) & 3;
        const f32x8 v13 = fb_loadm_f32x8(b3 + r, m);
        const f32x8 v15 = v13 - s14;
        const f32x8 v16 = fb_exp_f32x8(v15);
        *(f32x8 *)(kept10 + r) = v16;
        f32x8 y17 = v16;
        if (__builtin_expect(m < 8, 0)) y17 = fb_select_f32x8(fb_tail_f32x8(m), y17, fb_splat_f32x8(0));
        a11[u] = (f32x8)(a11[u] + y17);
      }
      t12 = fb_treesum_f32x8(a11);
      if (inner > 4096) t12 = fb_pushsum_f32x1(t12up, blocks, t12, edge == inner);
      ++blocks;
    }
    const f32x8 s19 = fb_splat_f32x8(t12);
    f32x1 *b21 = (f32x1 *)p[1] + (n0*p0);
    {
      long long r = 0;
      for (; r + 8 <= inner; r += 8) {
        const f32x8 v18 = *(const f32x8 *)(kept10 + r);
        const f32x8 v20 = v18 / s19;
        *(f32x8 *)(b21 + r) = v20;
      }
      for (; r < inner; r += 8) {
        const long long m = inner - r;
        const f32x8 v22 = *(const f32x8 *)(kept10 + r);
        const f32x8 v23 = v22 / s19;
        fb_storem_f32x8(b21 + r, v23, m);
      }
    }
    ++p0;
  }
}
