/* Starts plugin programs as runtimes do and times them from outside, from start to exit.
 *
 * Commands come line by line on stdin, answers go to stdout, fields are separated by tabs:
 *   R program stdin-file stdout-file VARIABLE=value ...   run one; "status nanoseconds". It reads
 *        and writes pipes, as with runtimes: emptying a file first would cost ext4 0.1 ms each time.
 *   B count, then so many times "N lines" with its R lines  pods at once, a pod's lines in turn;
 *        a line for each pod, then the wall time. P instead of R: what the program before it
 *        printed is first written to the end of the stdin-file, and closes its JSON object.
 *   F netns-path number [bridge]                          the kernel's floor for the same ADD: a
 *        veth pair born in the namespace, port of bridge `floor0`, with address and route; the
 *        link is removed again outside the measured time.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sched.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000L + t.tv_nsec;
}

/* Start a line's program with the files that it names, or with pipes that are there instead. */
static pid_t start(char *line, const int *pipes) {
  char *words[64], *save, *word;
  int count = 0;
  for (word = strtok_r(line, "\t\n", &save); word && count < 63; word = strtok_r(NULL, "\t\n", &save))
    words[count++] = word;
  words[count] = NULL;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (pipes) {
    posix_spawn_file_actions_adddup2(&actions, pipes[0], 0);
    posix_spawn_file_actions_adddup2(&actions, pipes[1], 1);
  } else {
    posix_spawn_file_actions_addopen(&actions, 0, words[2], O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, words[3], O_WRONLY | O_CREAT | O_TRUNC, 0600);
  }
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  char *arguments[] = {words[1], NULL};
  pid_t child = -1;
  posix_spawn(&child, words[1], &actions, NULL, arguments, words + 4);
  posix_spawn_file_actions_destroy(&actions);
  return child;
}

/* Append what one program printed to what the next one reads. */
static void hand_on(const char *from, const char *to) {
  char buffer[8192];
  int source = open(from, O_RDONLY), target = open(to, O_WRONLY | O_APPEND), size;
  while ((size = read(source, buffer, sizeof buffer)) > 0)
    if (write(target, buffer, size) != size) exit(1);
  if (write(target, "}", 1) != 1) exit(1);
  close(source), close(target);
}

static void field(const char *line, int number, char *into) {
  while (number--) line = strchr(line, '\t') + 1;
  int size = strcspn(line, "\t\n");
  memcpy(into, line, size), into[size] = 0;
}

/* Run a line's program and tell what it took; all it is told fits into a pipe. */
static void run(char *line) {
  static char told[65536], said[65536];
  char input[4096], output[4096];
  int inward[2], outward[2], status, size = 0, got;
  field(line, 2, input), field(line, 3, output);
  int source = open(input, O_RDONLY), target = open(output, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  int length = read(source, told, sizeof told);
  long begun = now();
  if (pipe2(inward, O_CLOEXEC) || pipe2(outward, O_CLOEXEC)) exit(1);
  if (write(inward[1], told, length) != length) exit(1); /* not all programs read it */
  close(inward[1]);
  pid_t child = start(line, (int[]){inward[0], outward[1]});
  close(inward[0]), close(outward[1]);
  while ((got = read(outward[0], said + size, sizeof said - size)) > 0) size += got;
  waitpid(child, &status, 0);
  long took = now() - begun;
  close(outward[0]);
  if (write(target, said, size) != size) exit(1);
  close(source), close(target);
  printf("%d %ld\n", WEXITSTATUS(status), took);
}

/* Walk one pod's programs; for a single one no process is needed in between. */
static pid_t walk(char **lines, int count) {
  if (count == 1) return start(lines[0], NULL);
  pid_t walker = fork();
  if (walker) return walker;
  char output[4096], input[4096];
  for (int i = 0; i < count; i++) {
    int status;
    field(lines[i], 2, input);
    if (*lines[i] == 'P') hand_on(output, input);
    field(lines[i], 3, output);
    waitpid(start(lines[i], NULL), &status, 0);
    if (status) _exit(1);
  }
  _exit(0);
}

static int counted(char letter) {
  char line[64];
  int count = 0;
  if (!fgets(line, sizeof line, stdin) || *line != letter) exit(1);
  sscanf(line + 1, "%d", &count);
  return count;
}

static void burst(int count) {
  pid_t *children = calloc(count, sizeof *children);
  long *begun = calloc(count, sizeof *begun), first = 0, last = 0;
  char ***lines = calloc(count, sizeof *lines);
  int *steps = calloc(count, sizeof *steps);
  for (int i = 0; i < count; i++) {
    lines[i] = calloc(steps[i] = counted('N'), sizeof **lines);
    for (int step = 0; step < steps[i]; step++) {
      size_t room = 0;
      getline(&lines[i][step], &room, stdin);
    }
  }
  fflush(stdout);
  first = now();
  for (int i = 0; i < count; i++) begun[i] = now(), children[i] = walk(lines[i], steps[i]);
  for (int done = 0; done < count; done++) {
    int status;
    pid_t child = wait(&status);
    last = now();
    for (int i = 0; i < count; i++)
      if (children[i] == child) printf("%d %ld\n", WEXITSTATUS(status), last - begun[i]);
  }
  printf("wall %ld\n", last - first);
  for (int i = 0; i < count; i++) {
    for (int step = 0; step < steps[i]; step++) free(lines[i][step]);
    free(lines[i]);
  }
  free(lines), free(steps), free(children), free(begun);
}

/* ------------------------------------------------------------------------------- kernel floor */

struct batch {
  char data[4096];
  int size, count, last;
};
static unsigned sequence;

static void message(struct batch *b, int type, int flags, const void *header, int size) {
  struct nlmsghdr *n = (void *)(b->data + b->size);
  memset(n, 0, 16 + size);
  n->nlmsg_type = type, n->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | flags;
  n->nlmsg_seq = ++sequence, n->nlmsg_len = 16 + NLMSG_ALIGN(size);
  memcpy(n + 1, header, size);
  b->last = b->size, b->size += n->nlmsg_len, b->count++;
}

static void fix(struct batch *b) {
  ((struct nlmsghdr *)(b->data + b->last))->nlmsg_len = b->size - b->last;
}

static void put(struct batch *b, int type, const void *value, int size) {
  struct rtattr *a = (void *)(b->data + b->size);
  a->rta_type = type, a->rta_len = 4 + size;
  memcpy(a + 1, value, size);
  b->size += NLMSG_ALIGN(4 + size), fix(b);
}

static int open_nest(struct batch *b, int type) {
  int at = b->size;
  ((struct rtattr *)(b->data + at))->rta_type = type;
  b->size += 4;
  return at;
}

static void close_nest(struct batch *b, int at) {
  ((struct rtattr *)(b->data + at))->rta_len = b->size - at, fix(b);
}

static void perform(int channel, struct batch *b) {
  char reply[8192];
  send(channel, b->data, b->size, 0);
  for (int got = 0; got < b->count;) {
    int size = recv(channel, reply, sizeof reply, 0);
    for (struct nlmsghdr *h = (void *)reply; NLMSG_OK(h, size); h = NLMSG_NEXT(h, size))
      if (h->nlmsg_type == NLMSG_ERROR) {
        int error = ((struct nlmsgerr *)NLMSG_DATA(h))->error;
        if (error) fprintf(stderr, "floor: %s\n", strerror(-error)), exit(1);
        got++;
      }
  }
  memset(b, 0, sizeof *b);
}

static void pair(struct batch *b, int host, int pod, const char *name, int netns, int master) {
  struct ifinfomsg up = {.ifi_index = host, .ifi_flags = IFF_UP, .ifi_change = IFF_UP};
  struct ifinfomsg peer = {.ifi_index = pod};
  message(b, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &up, sizeof up);
  put(b, IFLA_IFNAME, name, strlen(name) + 1);
  put(b, IFLA_MASTER, &master, 4);
  int info = open_nest(b, IFLA_LINKINFO);
  put(b, IFLA_INFO_KIND, "veth", 5);
  int data = open_nest(b, IFLA_INFO_DATA), other = open_nest(b, VETH_INFO_PEER);
  memcpy(b->data + b->size, &peer, sizeof peer), b->size += sizeof peer;
  put(b, IFLA_IFNAME, "eth0", 5);
  put(b, IFLA_NET_NS_FD, &netns, 4);
  close_nest(b, other), close_nest(b, data), close_nest(b, info);
}

static void floor_of(const char *path, int number, const char *at) {
  static int channel = -1, home, bridge;
  struct batch b = {.size = 0};
  if (channel < 0) {
    struct ifinfomsg up = {.ifi_flags = IFF_UP, .ifi_change = IFF_UP};
    home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    channel = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    message(&b, RTM_NEWLINK, NLM_F_CREATE, &up, sizeof up);
    put(&b, IFLA_IFNAME, "floor0", 7);
    int info = open_nest(&b, IFLA_LINKINFO);
    put(&b, IFLA_INFO_KIND, "bridge", 7);
    close_nest(&b, info);
    perform(channel, &b);
    bridge = if_nametoindex("floor0");
  }
  char name[16];
  int host = 100000 + number, pod = 200000 + number;
  unsigned address = htonl(0x0a630002 + number), gateway = htonl(0x0a630001);
  snprintf(name, sizeof name, "fl%d", number);
  long begun = now();
  int netns = open(path, O_RDONLY | O_CLOEXEC);
  setns(netns, CLONE_NEWNET);
  int inner = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  setns(home, CLONE_NEWNET);
  pair(&b, host, pod, name, netns, *at ? (int)if_nametoindex(at) : bridge);
  struct ifinfomsg port = {.ifi_family = AF_BRIDGE, .ifi_index = host};
  message(&b, RTM_SETLINK, 0, &port, sizeof port);
  int settings = open_nest(&b, IFLA_PROTINFO | NLA_F_NESTED);
  put(&b, IFLA_BRPORT_MODE, "\1", 1);
  close_nest(&b, settings);
  perform(channel, &b);
  struct ifinfomsg up = {.ifi_index = pod, .ifi_flags = IFF_UP, .ifi_change = IFF_UP};
  message(&b, RTM_NEWLINK, 0, &up, sizeof up);
  struct ifaddrmsg local = {.ifa_family = AF_INET, .ifa_prefixlen = 16, .ifa_index = pod};
  message(&b, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &local, sizeof local);
  put(&b, IFA_LOCAL, &address, 4), put(&b, IFA_ADDRESS, &address, 4);
  struct rtmsg route = {.rtm_family = AF_INET, .rtm_table = RT_TABLE_MAIN,
                        .rtm_protocol = RTPROT_BOOT, .rtm_type = RTN_UNICAST};
  message(&b, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, &route, sizeof route);
  put(&b, RTA_GATEWAY, &gateway, 4), put(&b, RTA_OIF, &pod, 4);
  perform(inner, &b);
  close(inner), close(netns);
  long took = now() - begun;
  struct ifinfomsg gone = {.ifi_index = host};
  message(&b, RTM_DELLINK, 0, &gone, sizeof gone);
  perform(channel, &b);
  printf("0 %ld\n", took);
}

int main(void) {
  char *line = NULL;
  size_t room = 0;
  while (getline(&line, &room, stdin) > 0) {
    char path[256], at[16] = "";
    int number;
    if (sscanf(line, "B %d", &number) == 1) {
      burst(number);
    } else if (sscanf(line, "F %255s %d %15s", path, &number, at) >= 2) {
      floor_of(path, number, at);
    } else {
      run(line);
    }
    fflush(stdout);
  }
  return 0;
}
