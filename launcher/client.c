/* The installed `substrate`, where a compiler was at hand when the wheel was made.
 *
 * It does one thing: hand a call that runs a command, or a coding agent's report (`hook`), to the
 * daemon, as client/offer_to_daemon.py does, and wait for its status. Starting Python for that would take longer than all the rest of a small command.
 * Whatever else is asked for, or whenever anything is not exactly as expected before the command has
 * started, Python takes this process over, as the shell launcher (`launcher/substrate`, compiled in)
 * starts it; it asks again and knows every case. So nothing here has to be clever: in doubt,
 * `in_python()`.
 *
 * The protocol is described in src/substrate/protocol/daemon_wire.py, the choice of calls in
 * src/substrate/client/offer_to_daemon.py; tests/e2e/test_compiled_client.py compares the two.
 * Why: docs/decisions/0034-a-compiled-client.md.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "launcher.h" /* written by build.py: LAUNCHER, PYTHON, VERSION */

#define MOST_BYTES (16u * 1024 * 1024)
#define MOST_REPLY_BYTES (64u * 1024 * 1024)
#define EXIT_RUN_FAILED 125
#define FIRST_MINOR 11 /* of Python 3 */
#define LAST_MINOR 40

extern char **environ;

/* How long a coding agent waits for its report to be recorded, and how long we wait for the agent to
 * finish writing it. */
#define HOOK_PATIENCE_MS 50
#define HOOK_INPUT_MS 2000

static char **words; /* argv, with our own name */
static char me[PATH_MAX];
/* What `ctx`, beside us, was written for: empty if its first line says nothing of the kind. */
static char interpreter[PATH_MAX];
/* Where the package may be: below that Python, or below the directory above ours. */
static char prefixes[2][PATH_MAX];

static const char *const valued[] = {
    "--session",  "--agent-id", "--workspace",    "-C",           "--isolate",
    "--net",      "--timeout",  "--writable",     "--limit-pids", "--limit-memory",
    "--limit-cpus", "--check",   NULL,
};

/* ------------------------------------------------------------------------------ the long way */

/* Python does not start with a directory as one of its streams: cli/startup.py takes it back. */
static void set_directories_aside(void) {
    char where[64] = "";
    struct stat found;
    for (int fd = 0; fd < 3; fd++) {
        if (fstat(fd, &found) != 0 || !S_ISDIR(found.st_mode)) continue;
        int copy = fcntl(fd, F_DUPFD, 10), null = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (copy >= 0 && null >= 0 && dup2(null, fd) == fd) {
            size_t used = strlen(where);
            snprintf(where + used, sizeof where - used, "%d:%d ", copy, fd);
        }
        if (null >= 0) close(null);
    }
    if (where[0]) setenv("SUBSTRATE_STREAMS_ASIDE", where, 1);
}

/* Without a shell where there is nothing to work out: one leaves out variables that it could not
 * have set (`BASH_FUNC_f%%`, names with a dot), sets others, and has its own word to say on a
 * directory that is gone. */
static _Noreturn void in_python(void) {
    int count = 0;
    set_directories_aside();
    while (words[count] != NULL) count++;
    char **argv = calloc((size_t)count + 9, sizeof *argv);
    if (argv != NULL) {
        char *const straight[] = {
            interpreter, "-I", "-S", "-c", (char *)PYTHON, me, prefixes[0], prefixes[1],
        };
        const int before = sizeof straight / sizeof *straight;
        for (int at = 1; at < count; at++) argv[before + at - 1] = words[at];
        memcpy(argv, straight, sizeof straight);
        if (interpreter[0]) execv(interpreter, argv);
        argv[before - 4] = "sh";
        argv[before - 3] = "-c";
        argv[before - 2] = (char *)LAUNCHER;
        argv[before - 1] = me[0] ? me : words[0];
        execv("/bin/sh", argv + before - 4);
    }
    static const char failed[] = "substrate: error: cannot start /bin/sh\n";
    (void)!write(2, failed, sizeof failed - 1);
    _exit(EXIT_RUN_FAILED);
}

/* --------------------------------------------------------------------- is this call one for us */

static int is_one_of(const char *word, const char *const *list) {
    for (; *list != NULL; list++)
        if (strcmp(word, *list) == 0) return 1;
    return 0;
}

static int is_run(void) {
    static const char *const runs[] = {"-c", "-f", "run", NULL};
    static const char *const others[] = {"--help", "-h", "--version", NULL};
    for (char **word = words + 1; *word != NULL; word++) {
        if (is_one_of(*word, runs)) return 1;
        if (is_one_of(*word, valued)) {
            if (*++word == NULL) return 0;
        } else if (**word != '-' || is_one_of(*word, others)) {
            return 0;
        }
    }
    return 0;
}

static int is_set(const char *name) {
    const char *value = getenv(name);
    return value != NULL && *value != '\0';
}

static int is_off(const char *name) {
    const char *value = getenv(name);
    return value != NULL && strcasecmp(value, "off") == 0;
}

static int is_wanted(void) {
    return !is_off("SUBSTRATE_DAEMON") && !is_off("SUBSTRATE_AGENT") /* its former name */ &&
           !is_set("SUBSTRATE_PARENT_SPAN") && !is_set("SUBSTRATE_WORLD_ID");
}

static int has_terminal(void) {
    struct stat found;
    for (int fd = 0; fd < 3; fd++)
        if (fstat(fd, &found) != 0 || isatty(fd)) return 1;
    int tty = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (tty < 0) return 0;
    close(tty);
    return 1;
}

/* Whether a word speaks of a descriptor above 2, as `/dev/fd/63` or `<&3`. */
static int names_descriptor(void) {
    for (char **word = words + 1; *word != NULL; word++) {
        if (strstr(*word, "/fd/") != NULL) return 1;
        for (const char *at = *word; (at = strchr(at, '&')) != NULL; at++) {
            if (at == *word || (at[-1] != '<' && at[-1] != '>') || at[1] == '\0') continue;
            if (strchr("3456789$\"", at[1]) != NULL) return 1;
            if (strchr("012", at[1]) != NULL && at[2] >= '0' && at[2] <= '9') return 1;
        }
    }
    return 0;
}

/* Whether make or cargo name the descriptors of their job server; a FIFO goes by its path. */
static int names_job_server(void) {
    static const char *const names[] = {"MAKEFLAGS", "CARGO_MAKEFLAGS"};
    static const char *const options[] = {"--jobserver-auth=", "--jobserver-fds="};
    for (int name = 0; name < 2; name++)
        for (int option = 0; option < 2; option++) {
            const char *flags = getenv(names[name]);
            const char *found = flags == NULL ? NULL : strstr(flags, options[option]);
            if (found == NULL) continue;
            found += strlen(options[option]);
            if (*found >= '0' && *found <= '9') return 1;
        }
    return 0;
}

/* Whether we were given more than 0, 1 and 2, and the command would miss it. */
static int has_more_descriptors(void) {
    if (!names_descriptor() && !names_job_server()) return 0; /* many callers leave some open that are not used */
    DIR *open_ones = opendir("/proc/self/fd");
    if (open_ones == NULL) return 1;
    int found = 0;
    for (struct dirent *entry; (entry = readdir(open_ones)) != NULL;) {
        long fd = strtol(entry->d_name, NULL, 10);
        if (fd > 2 && fd != dirfd(open_ones)) found = 1;
    }
    closedir(open_ones);
    return found;
}

/* A coding agent's own hook, which it has put the same prefix before: client/hook_passthrough.py says why it
 * goes straight through. */
static void pass_hook_through(void) {
    static const char ending[] = "_harness";
    const char *who = getenv("AI_AGENT");
    size_t length = who == NULL ? 0 : strlen(who), cut = sizeof ending - 1;
    if (length < cut || strcmp(who + length - cut, ending) != 0) return;
    if (is_set("SUBSTRATE_WORLD") && strcasecmp(getenv("SUBSTRATE_WORLD"), "disabled") != 0) return;
    if (words[1] == NULL || strcmp(words[1], "-c") != 0 || words[2] == NULL) return;
    if (words[2][0] == '\0' || words[3] != NULL) return;
    char *bash[] = {"/bin/bash", "-c", words[2], NULL}, *sh[] = {"/bin/sh", "-c", words[2], NULL};
    execv(bash[0], bash);
    execv(sh[0], sh);
}

/* ------------------------------------------------------------------- a coding agent's report */

static long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000L + now.tv_nsec / 1000000L;
}

/* The daemon may serve the report after the tool has written: it compares files' times with this. */
static void note_time(void) {
    struct timespec now;
    char text[32];
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(text, sizeof text, "%lld%09ld", (long long)now.tv_sec, now.tv_nsec);
    setenv("SUBSTRATE_HOOK_NS", text, 1);
}

/* A shell, or one of our scripts between the coding agent and its hook. */
static int is_between(const char *name) {
    static const char *const shells[] = {"sh", "bash", "dash", "ash", "zsh", "ksh", "fish", "busybox", NULL};
    if (*name == '-') name++;
    for (int i = 0; shells[i] != NULL; i++)
        if (strcmp(name, shells[i]) == 0) return 1;
    return strncmp(name, "substrate", 9) == 0;
}

/* Name the agent's process, PID-START: its MCP server finds its session by it. Later the way to it is gone,
 * because our parents have ended. coding_agents/running_agents.py has the same rule. */
static void note_agent(void) {
    char path[32], text[1024], found[64];
    unsetenv("SUBSTRATE_HOOK_AGENT");
    long pid = getppid();
    for (int level = 0; level < 16 && pid > 1; level++) {
        unsigned long long start;
        snprintf(path, sizeof path, "/proc/%ld/stat", pid);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
        if (fd >= 0) close(fd);
        if (got <= 0) return;
        text[got] = '\0';
        char *name = strchr(text, '('), *end = strrchr(text, ')');
        if (name == NULL || end == NULL || end < name) return;
        long parent;
        *end = '\0'; /* after it: state, parent, 17 numbers, start */
        if (sscanf(end + 1, " %*c %ld %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu",
                   &parent, &start) != 2)
            return;
        if (!is_between(name + 1)) {
            snprintf(found, sizeof found, "%ld-%llu", pid, start);
            setenv("SUBSTRATE_HOOK_AGENT", found, 1);
            return;
        }
        pid = parent;
    }
}

/* Whether the descriptor can be read before `deadline`. */
static int is_ready(int fd, long deadline) {
    struct pollfd one = {.fd = fd, .events = POLLIN};
    for (;;) {
        long left = deadline - now_ms();
        int found = poll(&one, 1, left > 0 ? (int)left : 0);
        if (found >= 0 || errno != EINTR) return found > 0;
    }
}

#include "files_before.h"

/* Take the report off the agent's pipe, and let go of all its pipes: it waits until the last copy is
 * closed, and must not wait for what is done after our exit. */
static int take_report(void) {
    static char part[65536];
    int report = memfd_create("substrate-hook", MFD_CLOEXEC), null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (report < 0 || null < 0) _exit(0);
    int out = fcntl(1, F_DUPFD_CLOEXEC, 3);
    long deadline = now_ms() + HOOK_INPUT_MS;
    size_t total = 0;
    while (total < MOST_REPLY_BYTES && is_ready(0, deadline)) {
        ssize_t got = read(0, part, sizeof part);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        for (ssize_t done = 0, put_now; done < got; done += put_now)
            if ((put_now = write(report, part + done, (size_t)(got - done))) <= 0) _exit(0);
        total += (size_t)got;
    }
    keep_files_before(report, total);
    if (lseek(report, 0, SEEK_SET) != 0 || dup2(report, 0) != 0) _exit(0);
    if (dup2(null, 1) != 1 || dup2(null, 2) != 2) _exit(0);
    return out;
}

/* Hand the agent what the recorder printed. */
static void pass_output(int from, int to) {
    static char part[65536];
    fcntl(from, F_SETFL, O_NONBLOCK);
    ssize_t got = read(from, part, sizeof part);
    if (got > 0 && to >= 0) (void)!write(to, part, (size_t)got);
}

/* --------------------------------------------------------------------------- where things are */

/* A path that needs no work; Python makes others absolute. */
static int is_plain(const char *path) {
    size_t length = strlen(path);
    return path[0] == '/' && strstr(path, "//") == NULL && strstr(path, "/./") == NULL &&
           strstr(path, "/../") == NULL && path[length - 1] != '/' &&
           !(length >= 2 && strcmp(path + length - 2, "/.") == 0) &&
           !(length >= 3 && strcmp(path + length - 3, "/..") == 0);
}

/* Text into `out`, or the long way if there is no room. */
static void put(char *out, size_t room, const char *first, const char *second, const char *third) {
    int length = snprintf(out, room, "%s%s%s", first, second, third);
    if (length < 0 || (size_t)length >= room) in_python();
}

static void find_directory(char *out, size_t room) {
    static const char suffix[] = ".sock";
    char socket_path[PATH_MAX];
    if (is_set("SUBSTRATE_SOCKET"))
        put(socket_path, sizeof socket_path, getenv("SUBSTRATE_SOCKET"), "", "");
    else if (geteuid() == 0)
        put(socket_path, sizeof socket_path, "/run/substrate.sock", "", "");
    else if (is_set("SUBSTRATE_HOME"))
        put(socket_path, sizeof socket_path, getenv("SUBSTRATE_HOME"), "/run/substrate.sock", "");
    else if (is_set("HOME"))
        put(socket_path, sizeof socket_path, getenv("HOME"), "/.substrate/run/substrate.sock", "");
    else
        in_python();
    if (!is_plain(socket_path)) in_python();
    size_t length = strlen(socket_path), cut = sizeof suffix - 1;
    if (length >= cut && strcmp(socket_path + length - cut, suffix) == 0)
        socket_path[length - cut] = '\0';
    put(out, room, socket_path, ".agent", "");
}

/* The one package `substrate` below a prefix: 1; none: 0; several: the long way. */
static int find_package(const char *prefix, char *out, size_t room) {
    char candidate[PATH_MAX], probe[PATH_MAX], minor[16];
    int found = 0;
    for (int number = FIRST_MINOR; number <= LAST_MINOR; number++) {
        snprintf(minor, sizeof minor, "%d", number);
        put(candidate, sizeof candidate, prefix, "/lib/python3.", minor);
        put(probe, sizeof probe, candidate, "/site-packages/substrate", "/__init__.py");
        if (access(probe, F_OK) != 0) continue;
        if (found++) in_python();
        put(out, room, candidate, "/site-packages/substrate", "");
    }
    return found;
}

/* As the shell launcher does. */
static void find_install(char *out, size_t room) {
    char bin[PATH_MAX], ctx[PATH_MAX], line[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", me, sizeof me - 1);
    if (length <= 0 || me[0] != '/') {
        me[0] = '\0';
        in_python();
    }
    me[length] = '\0';
    put(bin, sizeof bin, me, "", "");
    *strrchr(bin, '/') = '\0';
    put(ctx, sizeof ctx, bin, "/ctx", "");
    int fd = open(ctx, O_RDONLY | O_CLOEXEC);
    if (fd < 0) in_python();
    length = read(fd, line, sizeof line - 1);
    close(fd);
    if (length < 2) in_python();
    line[length] = '\0';
    line[strcspn(line, "\n")] = '\0';
    if (strncmp(line, "#!/", 3) != 0) in_python();
    char *python = line + 2;
    python[strcspn(python, " ")] = '\0';
    char *below = NULL;
    for (char *at = python; (at = strstr(at, "/bin/")) != NULL; at++) below = at; /* the last */
    if (below == NULL || strstr(below, "/python") == NULL) in_python();
    char *above = strrchr(bin, '/');
    if (above == NULL) in_python();
    *above = '\0';
    put(prefixes[1], sizeof prefixes[1], bin, "", "");
    put(interpreter, sizeof interpreter, python, "", "");
    *below = '\0';
    put(prefixes[0], sizeof prefixes[0], python, "", "");
    if (find_package(prefixes[0], out, room)) return;
    if (above == bin || !find_package(prefixes[1], out, room)) in_python();
}

/* ------------------------------------------------------------------------------ the daemon */

static int meet(const char *directory) {
    struct stat found;
    if (lstat(directory, &found) != 0 || !S_ISDIR(found.st_mode) || found.st_uid != geteuid() ||
        (found.st_mode & 077) != 0)
        in_python();
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) in_python();
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    static const char name[] = "/door.sock";
    int above = -1;
    if (strlen(directory) + sizeof name <= sizeof address.sun_path) {
        put(address.sun_path, sizeof address.sun_path, directory, name, "");
    } else {
        above = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (above < 0) in_python();
        char number[16];
        snprintf(number, sizeof number, "%d", above);
        put(address.sun_path, sizeof address.sun_path, "/proc/self/fd/", number, name);
    }
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) in_python();
    if (above >= 0) close(above);
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != geteuid())
        in_python();
    return fd;
}

/* Fields, each ended by a NUL; counted first (`out` is NULL), then written. */
static size_t add(char *out, size_t at, const char *text) {
    size_t length = strlen(text) + 1;
    if (out != NULL) memcpy(out + at, text, length);
    return at + length;
}

static size_t fields(char *out, const char *install, const char *mask, const char *count) {
    size_t at = add(out, 0, "run");
    at = add(out, at, VERSION);
    at = add(out, at, install);
    at = add(out, at, mask);
    at = add(out, at, "");
    at = add(out, at, count);
    for (char **word = words + 1; *word != NULL; word++) at = add(out, at, *word);
    for (char **entry = environ; *entry != NULL; entry++)
        if (strchr(*entry, '=') != NULL) at = add(out, at, *entry);
    return at;
}

static void send_all(int fd, const char *data, size_t size) {
    while (size > 0) {
        ssize_t sent = send(fd, data, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) in_python();
        data += sent;
        size -= (size_t)sent;
    }
}

static void send_request(int fd, const char *install) {
    char mask[16], count[16];
    mode_t ours = umask(077);
    umask(ours);
    int number = 0;
    while (words[number + 1] != NULL) number++;
    snprintf(mask, sizeof mask, "%o", (unsigned)ours);
    snprintf(count, sizeof count, "%d", number);
    size_t size = fields(NULL, install, mask, count);
    if (size > MOST_BYTES) in_python();
    char *data = malloc(size + 8);
    if (data == NULL) in_python();
    memcpy(data, "SBD1", 4);
    for (int at = 0; at < 4; at++) data[4 + at] = (char)(size >> (24 - 8 * at) & 0xff);
    fields(data + 8, install, mask, count);

    int here = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (here < 0) in_python();
    int given[4] = {0, 1, 2, here};
    union {
        char room[CMSG_SPACE(sizeof given)];
        struct cmsghdr align;
    } control;
    memset(&control, 0, sizeof control);
    struct iovec part = {.iov_base = data, .iov_len = size + 8};
    struct msghdr message = {
        .msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = control.room,
        .msg_controllen = sizeof control.room,
    };
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof given);
    memcpy(CMSG_DATA(rights), given, sizeof given);
    ssize_t sent;
    do sent = sendmsg(fd, &message, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    if (sent < 8) in_python();
    send_all(fd, data + sent, size + 8 - (size_t)sent);
    close(here);
    free(data);
}

/* ---------------------------------------------------------------- signals while it runs */

static volatile sig_atomic_t connection = -1;
/* The process group of the process that runs the command. Never 0 or 1: those would be our own, or all. */
static volatile sig_atomic_t runner;

static void pass_on(int number) {
    int before = errno;
    if (number == SIGTSTP || number == SIGCONT) {
        /* A stopped process reads nothing: its group is stopped and continued from here. */
        int stopping = number == SIGTSTP;
        if (runner > 1) killpg((pid_t)runner, stopping ? SIGSTOP : SIGCONT);
        if (stopping) kill(getpid(), SIGSTOP);
    } else {
        char byte = (char)number;
        (void)!send((int)connection, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    errno = before;
}

/* Only from the start on. A caller that is ended before has not started anything, and need not wait
 * for a daemon that does not answer; and a signal is not lost to one that declines. */
static void relay(int fd) {
    static const int forwarded[] = {
        SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT,
    };
    connection = fd;
    struct sigaction action = {.sa_handler = pass_on, .sa_flags = SA_RESTART}, before;
    sigemptyset(&action.sa_mask);
    for (size_t at = 0; at < sizeof forwarded / sizeof *forwarded; at++)
        if (sigaction(forwarded[at], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(forwarded[at], &action, NULL);
}

/* ------------------------------------------------------------------------------- replies */

static int receive(int fd, unsigned char *out, size_t size) {
    while (size > 0) {
        ssize_t got = recv(fd, out, size, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return 0;
        out += got;
        size -= (size_t)got;
    }
    return 1;
}

/* The next reply's kind, its payload as a number if it is one; 0 if the daemon is gone. */
static int next_reply(int fd, long *value) {
    unsigned char header[5], payload[4096];
    if (!receive(fd, header, sizeof header)) return 0;
    uint32_t size = (uint32_t)header[1] << 24 | (uint32_t)header[2] << 16 |
                    (uint32_t)header[3] << 8 | header[4];
    if (size > MOST_REPLY_BYTES) return 0;
    char number[16] = "";
    for (size_t done = 0; done < size;) {
        size_t part = size - done < sizeof payload ? size - done : sizeof payload;
        if (!receive(fd, payload, part)) return 0;
        if (done == 0 && size < sizeof number) memcpy(number, payload, size);
        done += part;
    }
    char *end;
    errno = 0;
    *value = strtol(number, &end, 10);
    if ((header[0] == 'S' || header[0] == 'X') && (end == number || *end || errno)) return 0;
    return header[0];
}

/* As the command died, so that a loop in the caller's shell stops at Ctrl-C; as pid 1, or where the
 * signal cannot kill, with 128 + its number. A core file would be of us, not of the command. */
static _Noreturn void die_of(int number) {
    struct rlimit core;
    if (getrlimit(RLIMIT_CORE, &core) == 0) {
        core.rlim_cur = 0;
        setrlimit(RLIMIT_CORE, &core);
    }
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    signal(number, SIG_DFL);
    sigset_t own;
    sigemptyset(&own);
    sigaddset(&own, number);
    sigprocmask(SIG_UNBLOCK, &own, NULL);
    kill(getpid(), number);
    _exit(128 + number);
}

static _Noreturn void lost(void) {
    static const char text[] =
        "substrate: error: the daemon was lost while the command ran\n"
        "hint: `substrate log` shows what was recorded; the next call records what is missing\n";
    if (runner > 1) killpg((pid_t)runner, SIGKILL); /* what it still did would belong to no command */
    (void)!write(2, text, sizeof text - 1);
    _exit(EXIT_RUN_FAILED);
}

/* A child hands the report over, and outlives us if that takes longer than the agent should wait: the
 * daemon may be starting, or busy. It has no deadline, and where there is no daemon it becomes Python,
 * which records the report by itself and starts one. */
static _Noreturn void report_hook(const char *install) {
    char directory[PATH_MAX];
    int done[2], said[2];
    note_time();
    note_agent();
    int out = take_report();
    if (pipe2(done, O_CLOEXEC) != 0 || pipe2(said, O_CLOEXEC) != 0) _exit(0);
    pid_t child = fork();
    if (child != 0) {
        close(done[1]);
        if (child > 0) {
            (void)is_ready(done[0], now_ms() + HOOK_PATIENCE_MS);
            pass_output(said[0], out);
        }
        _exit(0);
    }
    /* The agent waits for the last copy of its pipe; and a recorder that prints after our parent's
     * exit must notice that its reader is gone. */
    if (out >= 0) close(out);
    close(said[0]);
    if (dup2(said[1], 1) != 1) _exit(0);
    close(said[1]);
    setsid();
    find_directory(directory, sizeof directory);
    int fd = meet(directory);
    send_request(fd, install);
    for (int started = 0;;) {
        long value;
        int kind = next_reply(fd, &value);
        if (kind == 'S') started = 1;
        else if (started) _exit(0);
        else in_python(); /* declined, or gone */
    }
}

int main(int argc, char **argv) {
    (void)argc;
    char directory[PATH_MAX], install[PATH_MAX];
    words = argv;
    if (argv[0] == NULL) return EXIT_RUN_FAILED;
    pass_hook_through();
    int hook = argv[1] != NULL && strcmp(argv[1], "hook") == 0 && argv[2] != NULL && argv[2][0] != '-' &&
               argv[3] == NULL;
    if (hook && is_set("SUBSTRATE_WORLD_ID")) return 0;
    find_install(install, sizeof install);
    if (hook && is_wanted() && !isatty(0)) report_hook(install);
    if (!is_run() || !is_wanted() || has_terminal() || has_more_descriptors()) in_python();
    find_directory(directory, sizeof directory);
    int fd = meet(directory);
    send_request(fd, install);
    for (int started = 0;;) {
        long value;
        int kind = next_reply(fd, &value);
        if (kind == 'S' && !started && value > 1 && value <= INT_MAX) {
            started = 1;
            runner = (sig_atomic_t)value;
            relay(fd);
        } else if (kind == 'X' && started) {
            if (value < 0 && value > -NSIG) die_of((int)-value);
            _exit((int)(value & 0xff));
        } else if (kind == 'R' && started) {
            continue;
        } else if (started) {
            lost();
        } else {
            in_python(); /* declined, or gone: Python asks again, and says why */
        }
    }
}
