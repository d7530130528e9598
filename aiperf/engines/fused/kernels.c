/* What lies between the convolutions or the products of a network, on a processor, in few passes over memory.

   Images lie with their channels last: rows (batch x height x width) of `channels` numbers, in fp32 or bf16.
   Parameters and statistics are fp32, sums end in double. No flag of the build may let the compiler assume
   that numbers are finite: NaN and infinity pass through as they do in torch.

   Threads are those of the OpenMP runtime that torch has loaded; its entry points are given to `use_threads`,
   so nothing is linked and no second runtime is loaded. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The numbers of a loop are apart in memory: all that is written is memory of its own. */
#define SIMD _Pragma("omp simd")
#define INLINE static inline __attribute__((always_inline))

/* Vectors of numbers a channel are repeated to this length, so that a loop over them is worth its start. */
#define LEAST_LENGTH 512
/* Repeating until a register of 16 numbers divides it stops here: the vectors should stay in the first cache. */
#define MOST_LENGTH 2048
/* fp32 sums hold the numbers of so many blocks before they are added to a sum in double. */
#define BLOCKS_A_SUM 32
/* Long enough for the processor to see that it is read in order. */
#define BLOCKS_A_RUN 256
/* A thread is not worth starting for fewer numbers: torch's own grain. */
#define GRAIN 32768
/* Rows whose mean is subtracted before squares are summed. */
#define SHIFT_ROWS 16
/* Numbers of a gated activation that stay in one thread. */
#define GATED 1024

enum { NOTHING, RELU, RELU6 };

typedef void (*parallel_fn)(void (*)(void *), void *, unsigned, unsigned);
static parallel_fn parallel;
static int (*thread_number)(void), (*thread_count)(void);

void use_threads(void *start, void *number, void *count)
{
    parallel = (parallel_fn)start;
    thread_number = (int (*)(void))number;
    thread_count = (int (*)(void))count;
}

struct job {
    const void *x, *residual, *y, *first, *second, *z;
    void *out, *masked;
    float *a, *b, *c, *d;     /* `length` numbers each: one a channel, repeated */
    double *sums;             /* of each thread 2 x `length`, then their fp32 parts in `parts` */
    float *parts;
    long length, blocks, tail; /* `tail` numbers follow `blocks` times `length` numbers */
    long images, area, channels;
    int half, activation;
    void (*work)(struct job *, long, long, int);
};

INLINE float widened(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float number;
    memcpy(&number, &bits, 4);
    return number;
}

INLINE uint16_t rounded(float number)
{
    uint32_t bits;
    memcpy(&bits, &number, 4);
    uint32_t nearest = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return number != number ? 0x7fc0 : (uint16_t)nearest;
}

INLINE float get(const void *numbers, long at, int half)
{
    return half ? widened(((const uint16_t *)numbers)[at]) : ((const float *)numbers)[at];
}

INLINE void put(void *numbers, long at, float number, int half)
{
    if (half) ((uint16_t *)numbers)[at] = rounded(number);
    else ((float *)numbers)[at] = number;
}

/* ---- threads ---- */

static void share(void *data)
{
    struct job *job = data;
    long thread = thread_number(), threads = thread_count();
    job->work(job, job->blocks * thread / threads, job->blocks * (thread + 1) / threads, (int)thread);
}

static void run(struct job *job, void (*work)(struct job *, long, long, int), long numbers, int threads)
{
    long useful = 1 + numbers / GRAIN;
    if (useful > job->blocks) useful = job->blocks;
    if (threads > useful) threads = (int)useful;
    job->work = work;
    if (threads > 1 && parallel) parallel(share, job, (unsigned)threads, 0);
    else work(job, 0, job->blocks, 0);
}

/* ---- vectors a channel ---- */

static long common(long a, long b) { return b ? common(b, a % b) : a; }

static long length_of(long channels)
{
    long length = channels / common(channels, 16) * 16;
    if (length > MOST_LENGTH) length = channels;
    return length >= LEAST_LENGTH ? length : length * ((LEAST_LENGTH + length - 1) / length);
}

static void repeat(float *vector, long channels, long length)
{
    for (long at = channels; at < length; at += channels)
        memcpy(vector + at, vector, (size_t)channels * sizeof *vector);
}

/* Memory for the vectors and sums of a job; NULL when there is none. */
static void *prepare(struct job *job, long rows, long channels, int threads)
{
    long length = length_of(channels), numbers = rows * channels;
    char *memory = NULL;
    size_t vectors = 4 * (size_t)length * sizeof(float);
    size_t sums = 2 * (size_t)length * (sizeof(double) + sizeof(float)) * (size_t)threads;
    if (posix_memalign((void **)&memory, 64, vectors + sums)) return NULL;
    memset(memory + vectors, 0, sums);
    job->a = (float *)memory;
    job->b = job->a + length, job->c = job->b + length, job->d = job->c + length;
    job->sums = (double *)(memory + vectors);
    job->parts = (float *)(job->sums + 2 * length * threads);
    job->length = length, job->channels = channels;
    job->blocks = numbers / length, job->tail = numbers % length;
    return memory;
}

INLINE void fold(float *restrict part, double *restrict sum, long length)
{
    SIMD for (long j = 0; j < length; j++) {
        sum[j] += part[j];
        part[j] = 0;
    }
}

/* The two sums of a channel over all threads. */
static void total(const struct job *job, long channel, int threads, double *first, double *second)
{
    double one = 0, two = 0;
    for (int thread = 0; thread < threads; thread++) {
        const double *sums = job->sums + 2 * thread * job->length;
        for (long j = channel; j < job->length; j += job->channels) {
            one += sums[j];
            two += sums[job->length + j];
        }
    }
    *first = one, *second = two;
}

/* Calls `block` for the job's blocks from..to and, for who has the last, the tail: (start, numbers). */
#define EACH_BLOCK(block)                                                                                \
    for (long b = from; b < to; b++) { block(b * length, length); }                                      \
    if (to == job->blocks && job->tail) { block(job->blocks * length, job->tail); }
/* The same, the last run of blocks first: what a pass before it has read last is still in a cache. */
#define EACH_BLOCK_BACK(block)                                                                           \
    if (to == job->blocks && job->tail) { block(job->blocks * length, job->tail); }                      \
    for (long end = to; end > from; end -= BLOCKS_A_RUN)                                                 \
        for (long b = end - from > BLOCKS_A_RUN ? end - BLOCKS_A_RUN : from; b < end; b++) {             \
            block(b * length, length);                                                                   \
        }

#include "batchnorm.h"
#include "images.h"
#include "sequences.h"
