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
    f64x1 a1[64] FB_ALIGNED;
    for (int c = 0; c < 64; ++c) a1[c] = 0;
    for (long long k = 0; k < extent; ++k) {
        const f64x1 *b2 = (const f64x1 *)p[0] + (k*n1);
        f64x1 *b5 = (f64x1 *)p[1] + (k*n1);
        {
          long long c = 0;
          for (; c < w; c += 4) {
            const long long r = r0 + c;
            const long long m = w - c;
            const f64x4 v3 = fb_loadm_f64x4(b2 + r, m);
            f64x4 w4 = (f64x4)(*(f64x4 *)(a1 + c) + v3);
            *(f64x4 *)(a1 + c) = w4;
            fb_storem_f64x4(b5 + r, w4, m);
          }
        }
    }
    ++block;
  }
}
