/* The program that runtimes execute under every plugin's name.
 *
 * It hands the environment and stdin to the daemon and prints the answer. It is static and
 * has no C library, because process start is most of what a plugin call costs: 0.15 ms for
 * this, 0.6 for a static glibc program, 2 to 4 for a Go program.
 * Frames: ../protocol.py. Built by build.py; the two paths below are set by `install`.
 *
 * The daemon is away (nobody listens)  ADD, CHECK, GC: error 11. STATUS: error 50.
 *                                      DEL: an intent is left on disk, and it succeeds.
 * The connection breaks in a call      the same request once more, until RETRY has passed.
 * No answer within DEADLINE            as if the daemon were away.
 * VERSION                              is answered here.
 */
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long u64;
typedef long i64;

#define DEADLINE 60 /* seconds in all; the daemon itself gives up before */
#define RETRY 10    /* seconds to wait for a daemon that restarts in the middle of a call */
#define PAUSE 20000000 /* nanoseconds between attempts to reach it */
#define LIMIT (1 << 20)
#define HEADER 24
#define ANSWER_LIMIT (4 << 20)
#define PATH_SIZE 112

#if defined(__x86_64__)
enum { READ = 0, WRITE = 1, CLOSE = 3, NANOSLEEP = 35, SOCKET = 41, CONNECT = 42, SENDTO = 44,
       RECVFROM = 45, SETSOCKOPT = 54, FSYNC = 74, CLOCK = 228, EXIT = 231, OPENAT = 257,
       UNLINKAT = 263, RENAMEAT = 264, GETRANDOM = 318, DIRECTORY = 0200000 };
static inline i64 call(i64 n, i64 a, i64 b, i64 c, i64 d, i64 e, i64 f) {
  i64 result;
  register i64 r10 __asm__("r10") = d;
  register i64 r8 __asm__("r8") = e;
  register i64 r9 __asm__("r9") = f;
  __asm__ volatile("syscall" : "=a"(result)
                   : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return result;
}
__asm__(".globl _start\n_start:\n xor %ebp,%ebp\n mov %rsp,%rdi\n and $-16,%rsp\n call begin\n");
#elif defined(__aarch64__)
enum { READ = 63, WRITE = 64, CLOSE = 57, NANOSLEEP = 101, SOCKET = 198, CONNECT = 203,
       SENDTO = 206, RECVFROM = 207, SETSOCKOPT = 208, FSYNC = 82, CLOCK = 113, EXIT = 94,
       OPENAT = 56, UNLINKAT = 35, RENAMEAT = 38, GETRANDOM = 278, DIRECTORY = 040000 };
static inline i64 call(i64 n, i64 a, i64 b, i64 c, i64 d, i64 e, i64 f) {
  register i64 x8 __asm__("x8") = n;
  register i64 x0 __asm__("x0") = a;
  register i64 x1 __asm__("x1") = b;
  register i64 x2 __asm__("x2") = c;
  register i64 x3 __asm__("x3") = d;
  register i64 x4 __asm__("x4") = e;
  register i64 x5 __asm__("x5") = f;
  __asm__ volatile("svc 0" : "+r"(x0)
                   : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return x0;
}
__asm__(".globl _start\n_start:\n mov x29,#0\n mov x0,sp\n bl begin\n");
#else
#error "no system call numbers for this machine"
#endif
#define sys(n, a, b, c) call(n, (i64)(a), (i64)(b), (i64)(c), 0, 0, 0)

/* `install` looks for the marks and writes the paths behind them. */
struct setting {
  char mark[16];
  char path[PATH_SIZE];
};
__attribute__((used, section(".data"))) volatile struct setting socket_setting = {
    "BITTS-SHIM-SOCK", "/run/bitts/cni.sock"};
__attribute__((used, section(".data"))) volatile struct setting intents_setting = {
    "BITTS-SHIM-WAIT", "/var/lib/bitts/cni-daemon/intents"};

static char request[HEADER + LIMIT];
static char answer[ANSWER_LIMIT];
static u32 length; /* of the request, its header counted */
static const char *plugin = "", *command = "";

/* The compiler may put calls to these in the place of loops. */
void *memset(void *to, int value, u64 count) {
  u8 *at = to;
  while (count--) *at++ = (u8)value;
  return to;
}
void *memcpy(void *to, const void *from, u64 count) {
  u8 *at = to;
  const u8 *source = from;
  while (count--) *at++ = *source++;
  return to;
}

static u32 size(const char *text) {
  u32 count = 0;
  while (text[count]) count++;
  return count;
}

static int same(const char *a, const char *b) {
  while (*a && *a == *b) a++, b++;
  return *a == *b;
}

static int starts(const char *text, const char *prefix) {
  while (*prefix && *text == *prefix) text++, prefix++;
  return !*prefix;
}

static void put(int descriptor, const char *text, u64 count) {
  while (count) {
    i64 done = sys(WRITE, descriptor, text, count);
    if (done <= 0) return;
    text += done;
    count -= done;
  }
}

static void say(const char *text) { put(1, text, size(text)); }

static __attribute__((noreturn)) void leave(int status) {
  for (;;) sys(EXIT, status, 0, 0);
}

static __attribute__((noreturn)) void fail(const char *code, const char *message) {
  say("{\n    \"code\": ");
  say(code);
  say(",\n    \"msg\": \"");
  say(message);
  say("\"\n}");
  leave(1);
}

static u64 now(void) {
  i64 time[2] = {0, 0};
  sys(CLOCK, 1, time, 0);
  return (u64)time[0];
}

/* ------------------------------------------------------------------ answers without a daemon */

static const char *versions(void) {
  if (same(plugin, "bandwidth")) return "\"0.3.0\",\"0.3.1\",\"0.4.0\",\"1.0.0\",\"1.1.0\"";
  if (same(plugin, "vrf")) return "\"0.3.1\",\"0.4.0\",\"1.0.0\",\"1.1.0\"";
  if (same(plugin, "firewall")) return "\"0.4.0\",\"1.0.0\",\"1.1.0\"";
  return "\"0.1.0\",\"0.2.0\",\"0.3.0\",\"0.3.1\",\"0.4.0\",\"1.0.0\",\"1.1.0\"";
}

static __attribute__((noreturn)) void tell_versions(void) {
  say("{\"cniVersion\":\"1.1.0\",\"supportedVersions\":[");
  say(versions());
  say("]}\n");
  leave(0);
}

static __attribute__((noreturn)) void tell_about(void) {
  const char *lines[] = {"CNI ", plugin, " plugin of cni-daemon\nCNI protocol versions supported: ",
                         versions(), "\n"};
  for (u32 i = 0; i < 5; i++) put(2, lines[i], size(lines[i]));
  leave(0);
}

/* Leave the request on disk under its own name; true when it is there for good. */
static int leave_intent(void) {
  char name[34] = ".";
  static const char digits[] = "0123456789abcdef";
  for (u32 i = 0; i < 16; i++) {
    name[1 + 2 * i] = digits[(u8)request[8 + i] >> 4];
    name[2 + 2 * i] = digits[(u8)request[8 + i] & 15];
  }
  name[33] = 0;
  i64 folder = call(OPENAT, -100, (i64)intents_setting.path, DIRECTORY | 02000000, 0, 0, 0);
  if (folder < 0) return 0;
  i64 file = call(OPENAT, folder, (i64)name, 01 | 0100 | 0200 | 02000000, 0600, 0, 0);
  if (file < 0) return 0;
  u32 at = 0;
  while (at < length) {
    i64 done = sys(WRITE, file, request + at, length - at);
    if (done <= 0) break;
    at += done;
  }
  int kept = at == length && sys(FSYNC, file, 0, 0) == 0;
  sys(CLOSE, file, 0, 0);
  if (kept) kept = call(RENAMEAT, folder, (i64)name, folder, (i64)(name + 1), 0, 0) == 0;
  if (kept) sys(FSYNC, folder, 0, 0);
  if (!kept) sys(UNLINKAT, folder, name, 0);
  return kept;
}

static __attribute__((noreturn)) void away(const char *why) {
  if (same(command, "DEL")) {
    if (leave_intent()) leave(0);
    fail("11", "cni-daemon is away and the deletion cannot be written down; try again later");
  }
  fail(same(command, "STATUS") ? "50" : "11", why);
}

/* --------------------------------------------------------------------------------- the request */

static int is_wanted(const char *variable) {
  return starts(variable, "CNI_") || starts(variable, "PATH=") || starts(variable, "TRACEPARENT=") ||
         starts(variable, "TRACESTATE=") || starts(variable, "BAGGAGE=");
}

static void append(const char *text, u32 count) {
  if (length + count > sizeof request) fail("5", "request of more than 1 MiB");
  memcpy(request + length, text, count);
  length += count;
}

static void build(char **environment) {
  u32 *words = (u32 *)request;
  length = HEADER;
  append(plugin, size(plugin));
  for (char **each = environment; *each; each++)
    if (is_wanted(*each)) {
      append("", 1);
      append(*each, size(*each));
    }
  append("\0", 2);
  for (;;) {
    if (length == sizeof request) fail("5", "request of more than 1 MiB");
    i64 got = sys(READ, 0, request + length, sizeof request - length);
    if (got == -4) continue; /* EINTR */
    if (got < 0) fail("5", "error reading from stdin");
    if (got == 0) break;
    length += got;
  }
  memcpy(request, "BCN1", 4);
  words[1] = length - HEADER;
  if (sys(GETRANDOM, request + 8, 16, 0) != 16) fail("5", "no random numbers");
}

/* ------------------------------------------------------------------------------ the conversation */

struct address {
  unsigned short family;
  char path[PATH_SIZE - 4];
};

enum outcome { UNREACHABLE, BROKEN, LATE };

static void bound(int descriptor, int option, u64 seconds) {
  i64 limit[2] = {(i64)seconds, 0};
  call(SETSOCKOPT, descriptor, 1, option, (i64)limit, sizeof limit, 0);
}

/* Ask once; comes back only without an answer. */
static enum outcome ask(u64 deadline) {
  u64 time = now();
  if (time >= deadline) return LATE;
  i64 descriptor = sys(SOCKET, 1, 1 | 02000000, 0);
  struct address to = {1, ""};
  for (u32 i = 0; i < sizeof to.path - 1 && socket_setting.path[i]; i++)
    to.path[i] = socket_setting.path[i];
  bound(descriptor, 21, deadline - time); /* SO_SNDTIMEO, of connect too */
  bound(descriptor, 20, deadline - time); /* SO_RCVTIMEO */
  i64 failed = sys(CONNECT, descriptor, &to, sizeof to);
  if (failed < 0) {
    sys(CLOSE, descriptor, 0, 0);
    return failed == -11 ? LATE : UNREACHABLE;
  }
  enum outcome outcome = BROKEN;
  u32 at = 0;
  while (at < length) {
    i64 done = call(SENDTO, descriptor, (i64)(request + at), length - at, 0x4000, 0, 0);
    if (done == -4) continue;
    if (done <= 0) break; /* refused in the middle: the answer may be there all the same */
    at += done;
  }
  at = 0;
  for (;;) {
    i64 got = call(RECVFROM, descriptor, (i64)(answer + at), sizeof answer - at, 0, 0, 0);
    if (got == -4) continue;
    if (got == -11) outcome = LATE;
    if (got <= 0) break;
    at += got;
    u32 announced = *(u32 *)answer;
    if (at < 5) continue;
    if (announced > sizeof answer - 5) break;
    if (at >= 5 + announced) {
      put(1, answer + 5, announced);
      leave(answer[4]);
    }
  }
  sys(CLOSE, descriptor, 0, 0);
  return outcome;
}

static __attribute__((noreturn)) void converse(void) {
  static const i64 pause[2] = {0, PAUSE};
  u64 deadline = now() + DEADLINE, patience = 0;
  for (;;) {
    enum outcome outcome = ask(deadline);
    if (outcome == LATE) away("cni-daemon does not answer in time; try again later");
    if (outcome == BROKEN) patience = now() + RETRY;
    if (now() >= patience) away("cni-daemon is away; try again later");
    sys(NANOSLEEP, pause, 0, 0);
  }
}

__attribute__((used, noreturn)) void begin(i64 *stack) {
  i64 count = stack[0];
  char **arguments = (char **)(stack + 1), **environment = arguments + count + 1;
  if (count > 0) {
    plugin = arguments[0];
    for (const char *at = arguments[0]; *at; at++)
      if (*at == '/') plugin = at + 1;
  }
  for (char **each = environment; *each; each++)
    if (starts(*each, "CNI_COMMAND=")) command = *each + 12;
  if (!*command) tell_about();
  if (same(command, "VERSION")) tell_versions();
  build(environment);
  converse();
}
