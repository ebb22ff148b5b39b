void fb_kernel(char *const *p, const long long *n, const fb_scalar *x, long long begin, long long end, char *scratch) {
  const long long n0 = n[0], n1 = n[1], n2 = n[2];
  const long long q = n[2];
  const long long e0 = (n1 + 63) / 64;
  long long row = begin * q, stop = end * q < e0 ? end * q : e0;
  if (row >= stop) return;
  long long p0b = row;
  for (; row < stop; ++row) {
    const long long first = p0b * 64;
    const long long height = n1 - first < 64 ? n1 - first : 64;
    const long long inner = n0;
    for (long long r0 = 0; r0 < inner; r0 += 64) {
      const long long width = inner - r0 < 64 ? inner - r0 : 64;
      u16x1 z1[64][80] FB_ALIGNED;
      fb_transpose_u16x1(z1[0], (const u16x1 *)p[0] + 0 + first + n1*r0, n1, height, width);
      for (long long t = 0; t < height; ++t) {
        const long long p0 = first + t;
        u16x1 *b6 = (u16x1 *)p[1] + (n0*p0);
        long long c = 0;
        for (; c < width; c += 8) {
          const long long r = r0 + c;
          const long long m = width - c;
          const f32x8 v2 = fb_frombf16_u16x8(*(const u16x8 *)(z1[t] + c));
          const f32x8 v3 = v2;
          const f32x8 v4 = fb_exp_f32x8(v3);
          const f32x8 v5 = fb_frombf16_u16x8(fb_tobf16_u16x8(v4));
          fb_storem_u16x8(b6 + r, fb_tobf16_u16x8(v4), m);
        }
      }
    }
    ++p0b;
  }
}
