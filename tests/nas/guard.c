/* An allocator that lets no write past the end of a block go unseen; for LD_PRELOAD, Linux with glibc.

   Each aligned block (tensors and scratchpads are all such) and each large one lies in pages of its own and ends at a
   page that cannot be touched; what alignment leaves over before and behind it holds a pattern that is checked when
   the block is freed. Fresh memory is all ones, a NaN in every format. Addresses are never used twice, so a block that
   was freed cannot be touched either. Other blocks stay with glibc. */

#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE ((size_t)4096)
#define ARENA ((size_t)1 << 44) /* of addresses, not of memory */
#define LARGE ((size_t)16384)   /* without an alignment; fewer would use up the kernel's number of mappings */
#define PATTERN 0xA5

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

struct header { size_t size, pages; };  /* at the start of the page before the block's first */

static _Atomic uintptr_t next_free;
static uintptr_t arena;

__attribute__((constructor(101))) static void reserve(void) {
    void *at = mmap(NULL, ARENA, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) { perror("guard: no addresses"); _exit(3); }
    atomic_store(&next_free, (uintptr_t)at);
    arena = (uintptr_t)at;
}

static int guarded(const void *block) { return arena && (uintptr_t)block - arena < ARENA; }
static size_t round_up(size_t value, size_t to) { return (value + to - 1) / to * to; }
static struct header *header_of(void *block) {
    return (struct header *)(((uintptr_t)block & ~(PAGE - 1)) - PAGE);
}

static void *take(size_t alignment, size_t size) {
    if (alignment > PAGE) alignment = PAGE; /* nobody here asks for more */
    size_t room = round_up(size ? size : 1, alignment), pages = round_up(room, PAGE) / PAGE;
    uintptr_t start = atomic_fetch_add(&next_free, (pages + 2) * PAGE);
    if (mprotect((void *)start, (pages + 1) * PAGE, PROT_READ | PROT_WRITE)) {
        fprintf(stderr, "guard: no memory: %s\n", strerror(errno));
        _exit(3);
    }
    unsigned char *end = (unsigned char *)start + (pages + 1) * PAGE, *block = end - room;
    memset((void *)start, PATTERN, block - (unsigned char *)start);
    *(struct header *)start = (struct header){size, pages};
    memset(block, 0xFF, size);
    memset(block + size, PATTERN, room - size);
    return block;
}

static void check(const unsigned char *from, const unsigned char *to, const unsigned char *block, size_t size) {
    for (; from < to; from++)
        if (*from != PATTERN) {
            fprintf(stderr, "guard: byte %td of a block of %zu bytes was written\n", from - block, size);
            abort();
        }
}

static void give(void *at) {
    struct header *header = header_of(at);
    unsigned char *block = at, *start = (unsigned char *)header, *end = start + (header->pages + 1) * PAGE;
    check(start + sizeof *header, block, block, header->size);
    check(block + header->size, end, block, header->size);
    size_t bytes = (size_t)(end - start);
    madvise(start, bytes, MADV_DONTNEED);
    mprotect(start, bytes, PROT_NONE);
}

void *malloc(size_t size) { return arena && size >= LARGE ? take(16, size) : __libc_malloc(size); }

void *calloc(size_t count, size_t size) {
    if (!arena || count == 0 || size > SIZE_MAX / count || count * size < LARGE) return __libc_calloc(count, size);
    return memset(take(16, count * size), 0, count * size);
}

void *memalign(size_t alignment, size_t size) {
    return arena ? take(alignment, size) : __libc_memalign(alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void **block, size_t alignment, size_t size) {
    *block = memalign(alignment, size);
    return *block ? 0 : ENOMEM;
}

void free(void *block) {
    if (guarded(block)) give(block); else __libc_free(block);
}

void *realloc(void *block, size_t size) {
    if (!guarded(block) && (!arena || block == NULL || size < LARGE))
        return block ? __libc_realloc(block, size) : malloc(size);
    if (!guarded(block)) return __libc_realloc(block, size);
    size_t old = header_of(block)->size;
    void *moved = malloc(size);
    memcpy(moved, block, old < size ? old : size);
    give(block);
    return moved;
}
