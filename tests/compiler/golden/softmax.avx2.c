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
      i32x8 a1[4] = { fb_splat_i32x8((-2139095041)), fb_splat_i32x8((-2139095041)), fb_splat_i32x8((-2139095041)), fb_splat_i32x8((-2139095041)) };
      long long q = block;
      if (q + 32 <= edge) {
      i32x8 a1_0 = a1[0];
      i32x8 a1_1 = a1[1];
      i32x8 a1_2 = a1[2];
      i32x8 a1_3 = a1[3];
      for (; q + 32 <= edge; q += 32) {
        {
          const long long r = q + 0;
          const f32x8 v4 = *(const f32x8 *)(b3 + r);
          a1_0 = fb_max_i32x8(a1_0, fb_ordermax_f32x8(v4));
        }
        {
          const long long r = q + 8;
          const f32x8 v5 = *(const f32x8 *)(b3 + r);
          a1_1 = fb_max_i32x8(a1_1, fb_ordermax_f32x8(v5));
        }
        {
          const long long r = q + 16;
          const f32x8 v6 = *(const f32x8 *)(b3 + r);
          a1_2 = fb_max_i32x8(a1_2, fb_ordermax_f32x8(v6));
        }
        {
          const long long r = q + 24;
          const f32x8 v7 = *(const f32x8 *)(b3 + r);
          a1_3 = fb_max_i32x8(a1_3, fb_ordermax_f32x8(v7));
        }
      }
      a1[0] = a1_0;
      a1[1] = a1_1;
      a1[2] = a1_2;
      a1[3] = a1_3;
      }
      for (; q < edge; q += 8) {
        const long long r = q, m = edge - q;
        const int u = (int)((q - block) / 8) & 3;
        const f32x8 v8 = fb_loadm_f32x8(b3 + r, m);
        i32x8 y9 = fb_ordermax_f32x8(v8);
        if (__builtin_expect(m < 8, 0)) y9 = fb_select_i32x8(fb_tail_i32x8(m), y9, fb_splat_i32x8((-2139095041)));
        a1[u] = fb_max_i32x8(a1[u], y9);
      }
      t2 = fb_treemax_i32x8(a1);
      if (inner > 4096) t2 = fb_pushmax_i32x1(t2up, blocks, t2, edge == inner);
      ++blocks;
    }
    const f32x1 v10 = fb_unordermax_f32x1(t2);
    f32x1 *const kept11 = (f32x1 *)(scratch);
    f32x1 t13 = 0;
    f32x1 t13up[3][32];
    if (inner > 4096) for (int l = 0; l < 96; ++l) { t13up[l / 32][l % 32] = 0; FB_PLAIN; }
    const f32x8 s15 = fb_splat_f32x8(v10);
    blocks = 0;
    for (long long block = 0; block == 0 || block < inner; block += 4096) {
      const long long edge = inner - block < 4096 ? inner : block + 4096;
      f32x8 a12sum[4] = { fb_splat_f32x8(0), fb_splat_f32x8(0), fb_splat_f32x8(0), fb_splat_f32x8(0) };
      for (long long chunk = block; chunk < edge; chunk += 512) {
        const long long stop = edge - chunk < 512 ? edge : chunk + 512;
        long long q = chunk;
        f32x8 a12[4] = { fb_splat_f32x8(0), fb_splat_f32x8(0), fb_splat_f32x8(0), fb_splat_f32x8(0) };
        for (; q < stop; q += 8) {
          const long long r = q, m = stop - q;
          const int u = (int)((q - chunk) / 8) & 3;
          const f32x8 v14 = fb_loadm_f32x8(b3 + r, m);
          const f32x8 v16 = v14 - s15;
          const f32x8 v17 = fb_exp_f32x8(v16);
          *(f32x8 *)(kept11 + r) = v17;
          f32x8 y18 = v17;
          if (__builtin_expect(m < 8, 0)) y18 = fb_select_f32x8(fb_tail_f32x8(m), y18, fb_splat_f32x8(0));
          a12[u] = (f32x8)(a12[u] + y18);
        }
        a12sum[0] = (f32x8)(a12sum[0] + a12[0]);
        a12sum[1] = (f32x8)(a12sum[1] + a12[1]);
        a12sum[2] = (f32x8)(a12sum[2] + a12[2]);
        a12sum[3] = (f32x8)(a12sum[3] + a12[3]);
      }
      t13 = fb_treesum_f32x8(a12sum);
      if (inner > 4096) t13 = fb_pushsum_f32x1(t13up, blocks, t13, edge == inner);
      ++blocks;
    }
    const f32x8 s20 = fb_splat_f32x8(t13);
    f32x1 *b22 = (f32x1 *)p[1] + (n0*p0);
    {
      long long r = 0;
      for (; r + 8 <= inner; r += 8) {
        const f32x8 v19 = *(const f32x8 *)(kept11 + r);
        const f32x8 v21 = v19 / s20;
        *(f32x8 *)(b22 + r) = v21;
      }
      for (; r < inner; r += 8) {
        const long long m = inner - r;
        const f32x8 v23 = *(const f32x8 *)(kept11 + r);
        const f32x8 v24 = v23 / s20;
        fb_storem_f32x8(b22 + r, v24, m);
      }
    }
    ++p0;
  }
}
