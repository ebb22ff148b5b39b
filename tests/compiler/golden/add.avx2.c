void fb_kernel(char *const *p, const long long *n, const fb_scalar *x, long long begin, long long end, char *scratch) {
  const long long n0 = n[0];
  {
    const long long inner = n0 < end * 8192 ? n0 : end * 8192;
    const f32x1 *b1 = (const f32x1 *)p[0];
    const f32x1 *b3 = (const f32x1 *)p[1];
    const f32x1 v6 = (float)0x1.0000000000000p-1;
    const f32x8 s7 = fb_splat_f32x8(v6);
    f32x1 *b9 = (f32x1 *)p[2];
    {
      long long r = begin * 8192;
      for (; r + 8 <= inner; r += 8) {
        const f32x8 v2 = *(const f32x8 *)(b1 + r);
        const f32x8 v4 = *(const f32x8 *)(b3 + r);
        const f32x8 v5 = v2 + v4;
        const f32x8 v8 = v5 * s7;
        *(f32x8 *)(b9 + r) = v8;
      }
      for (; r < inner; r += 8) {
        const long long m = inner - r;
        const f32x8 v10 = fb_loadm_f32x8(b1 + r, m);
        const f32x8 v11 = fb_loadm_f32x8(b3 + r, m);
        const f32x8 v12 = v10 + v11;
        const f32x8 v13 = v12 * s7;
        fb_storem_f32x8(b9 + r, v13, m);
      }
    }
  }
}
