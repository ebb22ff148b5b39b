// The loops of Fourier transforms for what every processor of the architecture has.
#define FB_FOURIER_LEVEL baseline
#define FB_FOURIER_BYTES 16
#include "fourier/fourier_loops.h"

namespace fb {
template <typename R>
const FourierLoops<R>& fourier_loops_baseline() {
  return baseline::loops<R>();
}
template const FourierLoops<float>& fourier_loops_baseline();
template const FourierLoops<double>& fourier_loops_baseline();
}  // namespace fb
