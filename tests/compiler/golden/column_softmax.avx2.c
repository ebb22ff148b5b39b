void fb_kernel(char *const *p, const long long *n, const fb_scalar *x, long long begin, long long end, char *scratch) {
  const long long n0 = n[0], n1 = n[1], n2 = n[2];
  const long long q = n[2];
  const long long e0 = (n1 + 63) / 64;
  long long row = begin * q, stop = end * q < e0 ? end * q : e0;
  if (row >= stop) return;
  long long block = row;
  for (; row < stop; ++row) {
    const long long r0 = block * 64;
    const long long w = n1 - r0 < 64 ? n1 - r0 : 64;
    const long long extent = n0;
    i32x1 a1[1][64] FB_ALIGNED;
    for (int c = 0; c < 64; ++c) a1[0][c] = (-2139095041);
    for (long long k0 = 0, j = 0; k0 == 0 || k0 < extent; k0 += 4096, ++j) {
      const long long edge = extent - k0 < 4096 ? extent : k0 + 4096;
      for (long long k = k0; k < edge; ++k) {
        const int l = (int)(k & 31);
        const f32x1 *b3 = (const f32x1 *)p[0] + (k*n1);
        {
          long long c = 0;
          for (; c + 8 <= w; c += 8) {
            const long long r = r0 + c;
            const f32x8 v4 = *(const f32x8 *)(b3 + r);
            *(i32x8 *)(a1[0] + c) = fb_max_i32x8(*(i32x8 *)(a1[0] + c), fb_ordermax_f32x8(v4));
          }
          for (; c < w; c += 8) {
            const long long r = r0 + c;
            const long long m = w - c;
            const f32x8 v5 = fb_loadm_f32x8(b3 + r, m);
            *(i32x8 *)(a1[0] + c) = fb_max_i32x8(*(i32x8 *)(a1[0] + c), fb_ordermax_f32x8(v5));
          }
        }
      }
    }
    for (int c = 0; c < 64; c += 8) { i32x8 *v = (i32x8 *)(a1[0] + c); *(f32x8 *)v = fb_unordermax_f32x8(*v); }
    f32x1 a6[32][64] FB_ALIGNED;
    f32x1 a6first[64] FB_ALIGNED;
    f32x1 a6sum[32][64] FB_ALIGNED;
    int a6n = 32;
    for (int c = 0; c < 64; ++c) a6first[c] = 0;
    f32x1 t7up[64][3][32];
    if (extent > 4096) for (int l = 0; l < 6144; ++l) ((f32x1 *)t7up)[l] = 0;
    for (long long k0 = 0, j = 0; k0 == 0 || k0 < extent; k0 += 4096, ++j) {
      const long long edge = extent - k0 < 4096 ? extent : k0 + 4096;
      for (long long chunk = k0; chunk == k0 || chunk < edge; chunk += 512) {
      const long long stop = edge - chunk < 512 ? edge : chunk + 512;
      a6n = 32;
      while (a6n > 1 && a6n / 2 >= stop - chunk) a6n /= 2;
      for (long long l = stop - chunk; l < a6n; ++l)
        for (int c = 0; c < 64; c += 8) *(f32x8 *)(a6[l] + c) = fb_splat_f32x8(0);
      for (long long k = chunk; k < stop; ++k) {
        const int l = (int)(k & 31);
        const f32x1 *const a6old = k - chunk < 32 ? a6first : a6[l];
        const f32x1 *b8 = (const f32x1 *)p[0] + (k*n1);
        {
          long long c = 0;
          for (; c < w; c += 8) {
            const long long r = r0 + c;
            const long long m = w - c;
            const f32x8 v9 = fb_loadm_f32x8(b8 + r, m);
            const f32x8 v10 = *(f32x8 *)(a1[0] + c);
            const f32x8 v11 = v9 - v10;
            const f32x8 v12 = fb_exp_f32x8(v11);
            *(f32x8 *)(a6[l] + c) = (f32x8)(*(const f32x8 *)(a6old + c) + v12);
          }
        }
      }
      if (chunk > k0) {
        if (stop - chunk < 32) a6n = 32;
        for (long long l = 0; l < 32; ++l) for (long long c = 0; c < w; c += 8)
          *(f32x8 *)(a6[l] + c) = l < stop - chunk ? (f32x8)(*(f32x8 *)(a6sum[l] + c) + *(f32x8 *)(a6[l] + c)) : *(f32x8 *)(a6sum[l] + c);
      }
      if (stop < edge) for (int l = 0; l < 32; ++l) for (long long c = 0; c < w; c += 8)
        *(f32x8 *)(a6sum[l] + c) = *(f32x8 *)(a6[l] + c);
      }
      for (int s = a6n / 2; s; s /= 2)
        for (int l = 0; l < s; ++l) for (int c = 0; c < 64; c += 8)
          *(f32x8 *)(a6[l] + c) = (f32x8)(*(f32x8 *)(a6[l] + c) + *(f32x8 *)(a6[l + s] + c));
      if (extent > 4096) for (int c = 0; c < w; ++c) a6[0][c] = fb_pushsum_f32x1(t7up[c], j, a6[0][c], edge == extent);
    }
    for (long long k0 = 0, j = 0; k0 == 0 || k0 < extent; k0 += 4096, ++j) {
      const long long edge = extent - k0 < 4096 ? extent : k0 + 4096;
      for (long long k = k0; k < edge; ++k) {
        const int l = (int)(k & 31);
        const f32x1 *b13 = (const f32x1 *)p[0] + (k*n1);
        f32x1 *b20 = (f32x1 *)p[1] + (k*n1);
        {
          long long c = 0;
          for (; c < w; c += 8) {
            const long long r = r0 + c;
            const long long m = w - c;
            const f32x8 v14 = fb_loadm_f32x8(b13 + r, m);
            const f32x8 v15 = *(f32x8 *)(a1[0] + c);
            const f32x8 v16 = v14 - v15;
            const f32x8 v17 = fb_exp_f32x8(v16);
            const f32x8 v18 = *(f32x8 *)(a6[0] + c);
            const f32x8 v19 = v17 / v18;
            fb_storem_f32x8(b20 + r, v19, m);
          }
        }
      }
    }
    ++block;
  }
}
