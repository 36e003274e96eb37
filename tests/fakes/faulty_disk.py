"""`python faulty_disk.py BACKING PLACE COMMAND...`: run a command on a file system without links, locks and mmap.

A FUSE file system served by this program: BACKING is mounted at PLACE, visible to the command only. It has no hard or
symbolic links, no locks (neither flock nor fcntl) and no shared memory maps, each of which is missing on some of FAT,
SMB, NFS without a lock daemon, 9p, and Docker's shared folders on a Mac. Mounting needs root. The protocol is that of
`man 4 fuse` and linux/fuse.h, version 7.31.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import stat
import struct
import subprocess
import sys
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path


class Asked(IntEnum):
    """The questions of the kernel that are answered here; to all others it hears that they are not known."""

    lookup = 1
    forget = 2
    getattr = 3
    setattr = 4
    symlink = 6
    mknod = 8
    mkdir = 9
    unlink = 10
    rmdir = 11
    rename = 12
    link = 13
    open = 14
    read = 15
    write = 16
    statfs = 17
    release = 18
    fsync = 20
    flush = 25
    init = 26
    opendir = 27
    readdir = 28
    releasedir = 29
    fsyncdir = 30
    getlk = 31
    setlk = 32
    setlkw = 33
    create = 35
    interrupt = 36
    batch_forget = 42


_UNANSWERED = frozenset({Asked.forget, Asked.interrupt, Asked.batch_forget})
_DONE = frozenset({Asked.flush, Asked.releasedir, Asked.fsyncdir})
_REFUSED: dict[int, int] = {
    Asked.link: errno.EPERM,
    Asked.symlink: errno.EPERM,
    Asked.getlk: errno.ENOLCK,
    Asked.setlk: errno.ENOLCK,
    Asked.setlkw: errno.ENOLCK,
}
_LOCKS_ARE_OURS = 1 << 1 | 1 << 10  # else the kernel keeps locks itself
_BIG_WRITES = 1 << 5
_NO_SHARED_MAPS = 1  # direct input and output
_HEAD, _ANSWER = struct.Struct("<IIQQIIII"), struct.Struct("<IiQ")


class PoorDisk:
    """The server. A node is the number of a path below the backing folder, which is number 1."""

    def __init__(self, backing: Path) -> None:
        self.paths = {1: backing}
        self.last = 1
        self.answers: dict[int, Callable[[int, bytes], bytes]] = {
            Asked.init: self.init,
            Asked.lookup: lambda node, data: self.entry(self.below(node, data)),
            Asked.getattr: lambda node, data: self.attributes(self.paths[node]),
            Asked.setattr: self.set_attributes,
            Asked.mknod: self.make_file,
            Asked.mkdir: self.make_folder,
            Asked.unlink: self.unlink,
            Asked.rmdir: self.rmdir,
            Asked.rename: self.rename,
            Asked.open: lambda node, data: self.opened(self.paths[node], struct.unpack_from("<I", data)[0]),
            Asked.create: self.create,
            Asked.read: self.read,
            Asked.write: self.write,
            Asked.release: self.release,
            Asked.fsync: self.fsync,
            Asked.statfs: self.statfs,
            Asked.opendir: lambda node, data: bytes(16),
            Asked.readdir: self.list,
        }

    def serve(self, device: int) -> None:
        """Answer until the file system is unmounted."""
        while True:
            try:
                asked = os.read(device, 1 << 21)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.ENOENT):
                    continue
                return  # unmounted
            _, what, question, node, *_ = _HEAD.unpack_from(asked)
            if what in _UNANSWERED:
                continue
            code, answer = self.answer(what, node, asked[_HEAD.size :])
            with contextlib.suppress(FileNotFoundError):  # whoever asked was interrupted
                os.write(device, _ANSWER.pack(_ANSWER.size + len(answer), -code, question) + answer)

    def answer(self, what: int, node: int, data: bytes) -> tuple[int, bytes]:
        if what in _DONE:
            return 0, b""
        if what not in self.answers:
            return _REFUSED.get(what, errno.ENOSYS), b""
        try:
            return 0, self.answers[what](node, data)
        except OSError as error:
            return error.errno or errno.EIO, b""

    def init(self, node: int, data: bytes) -> bytes:
        major, _, ahead, offered = struct.unpack_from("<IIII", data)
        wanted = offered & (_BIG_WRITES | _LOCKS_ARE_OURS)
        return struct.pack("<IIIIHHIIHH8I", major, 31, ahead, wanted, 16, 12, 1 << 17, 1, 32, 0, *bytes(8))

    def below(self, node: int, name: bytes) -> Path:
        return self.paths[node] / os.fsdecode(name.partition(b"\0")[0])

    def entry(self, path: Path) -> bytes:
        attributes = packed(path)
        number = next((number for number, known in self.paths.items() if known == path), None)
        if number is None:
            self.last = number = self.last + 1
            self.paths[number] = path
        return struct.pack("<QQQQII", number, 0, 0, 0, 0, 0) + attributes

    def attributes(self, path: Path) -> bytes:
        return bytes(16) + packed(path)

    def set_attributes(self, node: int, data: bytes) -> bytes:
        valid, _, _, size, _, atime, mtime, _, atime_ns, mtime_ns, _, mode, _, uid, gid = struct.unpack_from(
            "<IIQQQQQQIIIIIII", data
        )
        path = self.paths[node]
        if valid & 1 << 0:
            path.chmod(stat.S_IMODE(mode))
        if valid & (1 << 1 | 1 << 2):
            os.chown(path, uid if valid & 1 << 1 else -1, gid if valid & 1 << 2 else -1)
        if valid & 1 << 3:
            os.truncate(path, size)
        if valid & (1 << 7 | 1 << 8):
            os.utime(path)
        elif valid & 1 << 5:
            os.utime(path, ns=(atime * 10**9 + atime_ns, mtime * 10**9 + mtime_ns))
        return self.attributes(path)

    def make_file(self, node: int, data: bytes) -> bytes:
        path = self.below(node, data[16:])
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, stat.S_IMODE(*struct.unpack_from("<I", data))))
        return self.entry(path)

    def make_folder(self, node: int, data: bytes) -> bytes:
        path = self.below(node, data[8:])
        path.mkdir(stat.S_IMODE(*struct.unpack_from("<I", data)))
        return self.entry(path)

    def unlink(self, node: int, data: bytes) -> bytes:
        self.below(node, data).unlink()
        self.forget(self.below(node, data))
        return b""

    def rmdir(self, node: int, data: bytes) -> bytes:
        self.below(node, data).rmdir()
        self.forget(self.below(node, data))
        return b""

    def forget(self, path: Path) -> None:
        """Let a file that is made later under this name be another one."""
        self.paths = {number: known for number, known in self.paths.items() if known != path}

    def rename(self, node: int, data: bytes) -> bytes:
        old, new, _ = data[8:].split(b"\0", 2)
        source, target = self.below(node, old), self.below(struct.unpack_from("<Q", data)[0], new)
        source.rename(target)
        self.forget(target)
        for number, path in self.paths.items():
            if path == source or source in path.parents:
                self.paths[number] = target / path.relative_to(source)
        return b""

    def opened(self, path: Path, flags: int, mode: int = 0) -> bytes:
        wanted = flags & (os.O_ACCMODE | os.O_TRUNC | os.O_CREAT | os.O_EXCL)
        return struct.pack("<QII", os.open(path, wanted, mode), _NO_SHARED_MAPS, 0)

    def create(self, node: int, data: bytes) -> bytes:
        flags, mode = struct.unpack_from("<II", data)
        path = self.below(node, data[16:])
        opened = self.opened(path, flags | os.O_CREAT, stat.S_IMODE(mode))
        return self.entry(path) + opened

    def read(self, node: int, data: bytes) -> bytes:
        handle, offset, size = struct.unpack_from("<QQI", data)
        return os.pread(handle, size, offset)

    def write(self, node: int, data: bytes) -> bytes:
        handle, offset, size = struct.unpack_from("<QQI", data)
        return struct.pack("<II", os.pwrite(handle, data[40 : 40 + size], offset), 0)

    def release(self, node: int, data: bytes) -> bytes:
        os.close(*struct.unpack_from("<Q", data))
        return b""

    def fsync(self, node: int, data: bytes) -> bytes:
        os.fsync(*struct.unpack_from("<Q", data))
        return b""

    def statfs(self, node: int, data: bytes) -> bytes:
        """Return the room of the backing disk. As of many shares, the number of inodes is not known."""
        found = os.statvfs(self.paths[1])
        blocks = (found.f_blocks, found.f_bfree, found.f_bavail)
        return struct.pack("<QQQQQIIII6I", *blocks, 0, 0, found.f_bsize, 255, found.f_frsize, 0, *bytes(6))

    def list(self, node: int, data: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", data)
        answer = b""
        for place, path in enumerate(sorted(self.paths[node].iterdir())[offset:], offset + 1):
            name = os.fsencode(path.name)
            one = struct.pack("<QQII", place + 1, place, len(name), 0) + name
            one += bytes(-len(one) % 8)
            if len(answer) + len(one) > size:
                break
            answer += one
        return answer


def packed(path: Path) -> bytes:
    """Return the attributes of a file as the kernel reads them."""
    found = path.lstat()
    times = [divmod(one, 10**9) for one in (found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns)]
    return struct.pack(
        "<QQQQQQIIIIIIIIII",
        *(found.st_ino, found.st_size, found.st_blocks, *(seconds for seconds, _ in times)),
        *(*(rest for _, rest in times), found.st_mode, found.st_nlink, found.st_uid, found.st_gid, 0, 4096, 0),
    )


def mounted(place: Path) -> int:
    """Mount the file system at `place` in a mount namespace of this process alone, with which it ends; its device."""
    libc = ctypes.CDLL(None, use_errno=True)
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions"
    new_mount_namespace, private_and_all_below, nosuid_nodev = 0x20000, 1 << 18 | 1 << 14, 6
    for failed in (
        libc.unshare(new_mount_namespace),
        libc.mount(b"none", b"/", None, private_and_all_below, None),
        libc.mount(b"poor", str(place).encode(), b"fuse.poor", nosuid_nodev, options.encode()),
    ):
        if failed:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return device


def main() -> int:
    backing, place, *command = sys.argv[1:]
    device = mounted(Path(place))
    server = os.fork()
    if server == 0:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        PoorDisk(Path(backing)).serve(device)
        os._exit(0)
    os.close(device)
    try:
        return subprocess.run(command, check=False, cwd=place).returncode
    finally:
        os.kill(server, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
