"""Small packages, and servers of files, for tests of the image's base."""

import hashlib
import io
import lzma
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from release.pins import Package


def tar_of(members: Mapping[str, tuple[tarfile.TarInfo, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz") as archive:
        for name, (info, content) in members.items():
            info.name, info.size = f"./{name}", len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def file_of(text: str, mode: int = 0o644) -> tuple[tarfile.TarInfo, bytes]:
    """Return a file of an archive."""
    info = tarfile.TarInfo()
    info.mode = mode
    return info, text.encode()


def link_of(target: str, kind: bytes = tarfile.SYMTYPE) -> tuple[tarfile.TarInfo, bytes]:
    """Return a link of an archive, or a file of another kind."""
    info = tarfile.TarInfo()
    info.type, info.linkname = kind, target
    return info, b""


def folder_of(mode: int = 0o755) -> tuple[tarfile.TarInfo, bytes]:
    """Return a folder of an archive."""
    info = tarfile.TarInfo()
    info.type, info.mode = tarfile.DIRTYPE, mode
    return info, b""


def deb(name: str, files: Mapping[str, tuple[tarfile.TarInfo, bytes]]) -> bytes:
    """Return a binary package, as dpkg-deb makes it."""
    control = tar_of({"control": file_of(f"Package: {name}\nVersion: 1-1\n")})
    members = {
        "debian-binary": b"2.0\n",
        "control.tar.xz": control,
        "data.tar.xz": tar_of(files),
    }
    data = b"!<arch>\n"
    for member, content in members.items():
        header = f"{member:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n"
        data += header.encode() + content + b"\n" * (len(content) % 2)
    return data


def pin(name: str, data: bytes, version: str = "1-1") -> Package:
    """Return the pin of a package."""
    file = f"{name}_{version.partition(':')[2] or version}_amd64.deb"
    return Package(
        architecture="amd64",
        name=name,
        version=version,
        sha256=hashlib.sha256(data).hexdigest(),
        path=f"debian/pool/main/{name[0]}/{name}/{file}",
    )


def packages_file(*paragraphs: str) -> bytes:
    """Return a compressed list of packages."""
    return lzma.compress("\n\n".join(paragraphs).encode() + b"\n")


@dataclass
class Files:
    """A server of files by path."""

    url: str = ""
    contents: dict[str, bytes] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)


@contextmanager
def serving() -> Iterator[Files]:
    """Serve files on this machine."""
    served = Files()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.requests.append(self.path)
            content = served.contents.get(self.path)
            self.send_response(404 if content is None else 200)
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        served.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield served
        finally:
            server.shutdown()
            thread.join()
