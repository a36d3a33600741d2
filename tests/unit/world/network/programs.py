"""Programs that reach out in every way we know of, for tests of what is seen and what is held."""

from __future__ import annotations

#: Python, by libc: host, port.
CONNECT = """
import socket, sys
made = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=20)
print(made.recv(5).decode())
"""

#: host, port, how: connect and send, sendto, sendmsg.
DATAGRAM = """
import socket, sys
host, port, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
family = socket.AF_INET6 if ":" in host else socket.AF_INET
made = socket.socket(family, socket.SOCK_DGRAM)
made.settimeout(20)
if how == "connect":
    made.connect((host, port))
    made.send(b"x")
elif how == "sendto":
    made.sendto(b"x", (host, port))
else:
    made.sendmsg([b"x"], [], 0, (host, port))
print(made.recv(64).decode())
"""

#: No libc call but `write`: its own DNS query to argv[1] for argv[2] by way of argv[4]
#: (``u``: unconnected, ``c``: connected, ``t``: TCP), then a connect to port argv[3].
STATIC = r"""
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static unsigned char query[512], answer[1024];

static int build(const char *name) {
    static const unsigned char header[12] = {0x12, 0x34, 1, 0, 0, 1};
    int at = 12;
    memcpy(query, header, 12);
    while (*name) {
        const char *dot = strchr(name, '.');
        int size = dot ? (int)(dot - name) : (int)strlen(name);
        query[at++] = size;
        memcpy(query + at, name, size);
        at += size;
        name += size + (dot != 0);
    }
    query[at++] = 0;
    query[at++] = 0; query[at++] = 1; query[at++] = 0; query[at++] = 1;
    return at;
}

int main(int argc, char **argv) {
    struct sockaddr_in server = {AF_INET, htons(53)}, from, target = {AF_INET};
    socklen_t from_size = sizeof from;
    int size = build(argv[2]), got, tcp = argv[4][0] == 't';
    inet_pton(AF_INET, argv[1], &server.sin_addr);
    int s = syscall(SYS_socket, AF_INET, tcp ? SOCK_STREAM : SOCK_DGRAM, 0);
    if (argv[4][0] == 'u') {
        syscall(SYS_sendto, s, query, size, 0, &server, sizeof server);
        got = syscall(SYS_recvfrom, s, answer, sizeof answer, 0, &from, &from_size);
        if (from.sin_addr.s_addr != server.sin_addr.s_addr || from.sin_port != server.sin_port)
            return 3;  /* as musl does: an answer from somebody else is no answer */
    } else {
        if (syscall(SYS_connect, s, &server, sizeof server)) return 4;
        if (tcp) {
            unsigned char length[2] = {size >> 8, size & 255};
            syscall(SYS_write, s, length, 2);
            syscall(SYS_write, s, query, size);
            syscall(SYS_read, s, length, 2);
        } else
            syscall(SYS_write, s, query, size);
        got = syscall(SYS_read, s, answer, sizeof answer);
    }
    if (got < size + 16 || answer[7] == 0) return 5;
    target.sin_port = htons(atoi(argv[3]));
    memcpy(&target.sin_addr, answer + size + 12, 4);
    int c = syscall(SYS_socket, AF_INET, SOCK_STREAM, 0);
    if (syscall(SYS_connect, c, &target, sizeof target)) return 6;
    got = syscall(SYS_read, c, answer, 5);
    syscall(SYS_write, 1, answer, got);
    return 0;
}
"""

#: connect through the 32-bit door of a 64-bit kernel: address, port, ``socketcall`` or ``connect``.
THIRTY_TWO = r"""
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct sockaddr_in target = {AF_INET};
static unsigned int words[3];
static char answer[8];

static long call32(long number, long a, long b, long c) {
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c)
                     : "memory", "r8", "r9", "r10", "r11");
    return (int)result;
}

int main(int argc, char **argv) {
    int s = socket(AF_INET, SOCK_STREAM, 0);
    long failed;
    target.sin_port = htons(atoi(argv[2]));
    inet_pton(AF_INET, argv[1], &target.sin_addr);
    if (argv[3][0] == 's') {
        words[0] = s; words[1] = (unsigned int)(long)&target; words[2] = sizeof target;
        failed = call32(102, 3, (long)words, 0);
    } else
        failed = call32(362, s, (long)&target, sizeof target);
    if (failed) return -failed;
    int got = read(s, answer, 5);
    return write(1, answer, got) != got;
}
"""

#: A ring would connect without a system call of that name.
RING = r"""
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void) {
    char parameters[512];
    memset(parameters, 0, sizeof parameters);
    long ring = syscall(425, 8, parameters);
    printf("%d\n", ring < 0 ? errno : 0);
    return 0;
}
"""
