void fb_kernel(char *const *p, const long long *n, const fb_scalar *x, long long begin, long long end, char *scratch) {
  const long long n0 = n[0], n1 = n[1], n2 = n[2];
  const long long q = n[2];
  const long long e0 = n1;
  long long row = begin * q, stop = end * q < e0 ? end * q : e0;
  if (row >= stop) return;
  long long p0 = row;
  for (; row < stop; ++row) {
    const long long inner = n0;
    i32x1 t2 = (-2139095041);
    i32x1 t2up[3][32];
    if (inner > 4096) for (int l = 0; l < 96; ++l) { t2up[l / 32][l % 32] = (-2139095041); FB_PLAIN; }
    const f32x1 *b3 = (const f32x1 *)p[0] + (n0*p0);
    long long blocks = 0;
    for (long long block = 0; block == 0 || block < inner; block += 4096) {
      const long long edge = inner - block < 4096 ? inner : block + 4096;
      i32x16 a1[2] = { fb_splat_i32x16((-2139095041)), fb_splat_i32x16((-2139095041)) };
      long long q = block;
      if (q + 32 <= edge) {
      i32x16 a1_0 = a1[0];
      i32x16 a1_1 = a1[1];
      for (; q + 32 <= edge; q += 32) {
        {
          const long long r = q + 0;
          const f32x16 v4 = *(const f32x16 *)(b3 + r);
          a1_0 = fb_max_i32x16(a1_0, fb_ordermax_f32x16(v4));
        }
        {
          const long long r = q + 16;
          const f32x16 v5 = *(const f32x16 *)(b3 + r);
          a1_1 = fb_max_i32x16(a1_1, fb_ordermax_f32x16(v5));
        }
      }
      a1[0] = a1_0;
      a1[1] = a1_1;
      }
      for (; q < edge; q += 16) {
        const long long r = q, m = edge - q;
        const int u = (int)((q - block) / 16) & 1;
        const f32x16 v6 = fb_loadm_f32x16(b3 + r, m);
        i32x16 y7 = fb_ordermax_f32x16(v6);
        if (__builtin_expect(m < 16, 0)) y7 = fb_select_i32x16(fb_tail_i32x16(m), y7, fb_splat_i32x16((-2139095041)));
        a1[u] = fb_max_i32x16(a1[u], y7);
      }
      t2 = fb_treemax_i32x16(a1);
      if (inner > 4096) t2 = fb_pushmax_i32x1(t2up, blocks, t2, edge == inner);
      ++blocks;
    }
    const f32x1 v8 = fb_unordermax_f32x1(t2);
    f32x1 *const kept9 = (f32x1 *)(scratch);
    f32x1 t11 = 0;
    f32x1 t11up[3][32];
    if (inner > 4096) for (int l = 0; l < 96; ++l) { t11up[l / 32][l % 32] = 0; FB_PLAIN; }
    const f32x16 s13 = fb_splat_f32x16(v8);
    blocks = 0;
    for (long long block = 0; block == 0 || block < inner; block += 4096) {
      const long long edge = inner - block < 4096 ? inner : block + 4096;
      f32x16 a10sum[2] = { fb_splat_f32x16(0), fb_splat_f32x16(0) };
      for (long long chunk = block; chunk < edge; chunk += 512) {
        const long long stop = edge - chunk < 512 ? edge : chunk + 512;
        long long q = chunk;
        f32x16 a10[2] = { fb_splat_f32x16(0), fb_splat_f32x16(0) };
        for (; q < stop; q += 16) {
          const long long r = q, m = stop - q;
          const int u = (int)((q - chunk) / 16) & 1;
          const f32x16 v12 = fb_loadm_f32x16(b3 + r, m);
          const f32x16 v14 = v12 - s13;
          const f32x16 v15 = fb_exp_f32x16(v14);
          *(f32x16 *)(kept9 + r) = v15;
          f32x16 y16 = v15;
          if (__builtin_expect(m < 16, 0)) y16 = fb_select_f32x16(fb_tail_f32x16(m), y16, fb_splat_f32x16(0));
          a10[u] = (f32x16)(a10[u] + y16);
        }
        a10sum[0] = (f32x16)(a10sum[0] + a10[0]);
        a10sum[1] = (f32x16)(a10sum[1] + a10[1]);
      }
      t11 = fb_treesum_f32x16(a10sum);
      if (inner > 4096) t11 = fb_pushsum_f32x1(t11up, blocks, t11, edge == inner);
      ++blocks;
    }
    const f32x16 s18 = fb_splat_f32x16(t11);
    f32x1 *b20 = (f32x1 *)p[1] + (n0*p0);
    {
      long long r = 0;
      for (; r + 16 <= inner; r += 16) {
        const f32x16 v17 = *(const f32x16 *)(kept9 + r);
        const f32x16 v19 = v17 / s18;
        *(f32x16 *)(b20 + r) = v19;
      }
      for (; r < inner; r += 16) {
        const long long m = inner - r;
        const f32x16 v21 = *(const f32x16 *)(kept9 + r);
        const f32x16 v22 = v21 / s18;
        fb_storem_f32x16(b20 + r, v22, m);
      }
    }
    ++p0;
  }
}
