/* The bare driver call, for comparison: bursts of launches with one fixed argument buffer, timed around the calls. */
#include <stddef.h>
#include <time.h>

typedef int (*Launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                      void **);

/* Nanoseconds that `count` launches took, or minus the driver's error code. */
double burst(Launch launch, void *function, unsigned grid, unsigned threads, unsigned shared, void *stream,
             void *buffer, size_t size, void *end, int count) {
  struct timespec from, to;
  void *extra[] = {(void *)1, buffer, (void *)2, &size, end};
  clock_gettime(CLOCK_MONOTONIC, &from);
  for (int i = 0; i < count; i++) {
    int code = launch(function, grid, 1, 1, threads, 1, 1, shared, stream, NULL, extra);
    if (code) return -code;
  }
  clock_gettime(CLOCK_MONOTONIC, &to);
  return (to.tv_sec - from.tv_sec) * 1e9 + (to.tv_nsec - from.tv_nsec);
}
